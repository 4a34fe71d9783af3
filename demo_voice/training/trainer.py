"""A time-boxed stretch of training: learning rate, progress line, loss plot, and what is kept of it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

WARM_UP, COOL_DOWN = 0.04, 0.35
"""Shares of a stretch in which the learning rate rises and falls."""
FINAL_RATE = 0.04
REPORT_STEPS = 20

Losses = dict[str, Tensor]


def rate_factor(progress: float) -> float:
    """Learning rate relative to its peak: up, level, and down to a fortieth, by the share of time spent."""
    if progress < WARM_UP:
        return max(progress, 0.002) / WARM_UP
    if progress < 1 - COOL_DOWN:
        return 1.0
    return FINAL_RATE + (1 - FINAL_RATE) * max(0.0, 1 - progress) / COOL_DOWN


def optimizer(parameters: Iterable[nn.Parameter], rate: float, decay: float = 0.01) -> torch.optim.AdamW:
    """AdamW whose peak rate is remembered for :func:`train`."""
    kept = list(parameters)
    on_gpu = kept[0].is_cuda
    # A graph reads the learning rate from the device.
    start = torch.tensor(rate, device=kept[0].device) if on_gpu else rate
    chosen = torch.optim.AdamW(kept, start, (0.9, 0.98), weight_decay=decay, fused=on_gpu, capturable=on_gpu)
    chosen.param_groups[0]["peak"] = rate
    return chosen


class Graphed:
    """A training step replayed as CUDA graphs: a small network's time goes into launching its kernels.

    One graph for each kind of step and shape of its inputs. On the CPU the step simply runs.

    Args:
        step: takes tensors and keywords, runs backward and optimizer, returns detached losses.
    """

    def __init__(self, step: Callable[..., Losses], device: str) -> None:
        self.step = step
        self.device = torch.device(device)
        self._graphs: dict[object, tuple[torch.cuda.CUDAGraph, list[Tensor], Losses]] = {}

    def __call__(self, *inputs: Tensor, **kind: bool) -> Losses:
        """Run one step; the losses are overwritten by the next one of the same kind."""
        if self.device.type != "cuda" or "NO_GRAPHS" in os.environ:
            return self.step(*(tensor.to(self.device) for tensor in inputs), **kind)
        key = tuple(tensor.shape for tensor in inputs), tuple(kind.items())
        if key not in self._graphs:
            self._graphs[key] = self._captured([tensor.to(self.device) for tensor in inputs], kind)
        graph, static, losses = self._graphs[key]
        for buffer, tensor in zip(static, inputs, strict=True):
            buffer.copy_(tensor, non_blocking=True)
        graph.replay()
        return losses

    def _captured(
        self, static: list[Tensor], kind: dict[str, bool]
    ) -> tuple[torch.cuda.CUDAGraph, list[Tensor], Losses]:
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                self.step(*static, **kind)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            losses = self.step(*static, **kind)
        return graph, static, losses


def train(
    name: str,
    step: Callable[[], Losses],
    optimizers: Iterable[torch.optim.Optimizer],
    until: float,
    log: Path,
) -> None:
    """Repeat ``step`` until the time ``until`` (seconds since the epoch); appends losses to ``log``.

    ``step`` does its own backward passes and optimizer steps.
    """
    began, steps = time.time(), 0
    groups = [group for one in optimizers for group in one.param_groups]
    latest: dict[str, float] = {}
    printed = began
    while (now := time.time()) < until:
        factor = rate_factor((now - began) / (until - began))
        for group in groups:
            _set_rate(group, group["peak"] * factor)
        losses = step()
        steps += 1
        if steps % REPORT_STEPS == 0:
            latest = {key: float(value.detach()) for key, value in losses.items()}
            _append(log, {"step": steps, "seconds": round(now - began, 1), **latest})
            if now - printed > 10:
                printed = now
                print(_line(name, steps, now - began, latest), flush=True)
    print(_line(name, steps, time.time() - began, latest), "done", flush=True)


def _set_rate(group: dict[str, Any], rate: float) -> None:
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def _line(name: str, steps: int, seconds: float, losses: dict[str, float]) -> str:
    values = " ".join(f"{key} {value:.3f}" for key, value in losses.items())
    return f"{name}: step {steps} at {seconds:.0f} s: {values}"


def _append(log: Path, entry: dict[str, float]) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def plot_losses(logs: Iterable[Path], picture: Path) -> None:
    """One panel for each log, all its losses on a logarithmic scale."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    present = [log for log in logs if log.exists()]
    figure, axes = pyplot.subplots(
        1, max(1, len(present)), figsize=(5 * max(1, len(present)), 4), squeeze=False
    )
    for axis, log in zip(axes[0], present, strict=False):
        entries = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        for key in (key for key in entries[-1] if key not in ("step", "seconds")):
            axis.plot([entry.get(key, float("nan")) for entry in entries], label=key, linewidth=0.7)
        axis.set(title=log.stem, yscale="log", xlabel=f"{REPORT_STEPS} steps")
        axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(picture, dpi=80)


def save(path: Path, **modules: nn.Module) -> None:
    """Weights of several modules in half precision, in one file."""
    states = {
        name: {key: _halved(tensor) for key, tensor in module.state_dict().items()}
        for name, module in modules.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(states, path)


def restore(path: Path, **modules: nn.Module) -> bool:
    """Load what :func:`save` wrote; False where there is no such file."""
    if not path.exists():
        return False
    states = torch.load(path, map_location="cpu", weights_only=True)
    for name, module in modules.items():
        if name in states:
            module.load_state_dict(states[name])
    return True


def _halved(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().half() if tensor.is_floating_point() else tensor.detach().cpu()

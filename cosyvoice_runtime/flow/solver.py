"""Euler solver of the conditional flow with classifier-free guidance (CosyVoice2 section 2.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cosyvoice_runtime.flow.estimator import Estimator
from cosyvoice_runtime.flow.past import NoPast, Past

NUM_STEPS = 10
MAX_FRAMES = 15_000
"""Frames of start noise: 300 s at 50 Hz, prompt included."""


@dataclass(frozen=True)
class Conditions:
    """What guides the solver, for each row.

    Attributes:
        mu: ``[B, T, mel]`` token encoding.
        speaker: ``[B, mel]`` projected speaker embedding.
        prompt: ``[B, T, mel]`` the prompt's mel on its frames, zeros after them.
    """

    mu: Tensor
    speaker: Tensor
    prompt: Tensor

    def with_unconditioned(self) -> Conditions:
        """Twice the rows: these, then the same number with every condition zero."""
        return Conditions(
            *(torch.cat([x, torch.zeros_like(x)]) for x in (self.mu, self.speaker, self.prompt))
        )


def time_steps(num_steps: int = NUM_STEPS) -> Tensor:
    """Cosine schedule ``1 - cos(k / n * pi / 2)``, k = 0..n: float32 ``[n + 1]``."""
    return 1 - torch.cos(torch.linspace(0, 1, num_steps + 1, dtype=torch.float32) * 0.5 * torch.pi)


def start_noise(mel_bins: int) -> Tensor:
    """Start of every solution, by absolute frame of the utterance: float32 ``[MAX_FRAMES, mel]``.

    The published model draws it once, channel by channel, from torch's CPU generator seeded with 0;
    a frame's noise is therefore the same in every call.
    """
    generator = torch.Generator().manual_seed(0)
    return torch.randn(mel_bins, MAX_FRAMES, generator=generator).T.contiguous()


class EulerSolver:
    """Integrates the estimator's velocity from noise to mel in fixed steps."""

    def __init__(self, estimator: Estimator, cfg_rate: float, num_steps: int = NUM_STEPS) -> None:
        self.estimator: nn.Module = estimator
        self.cfg_rate = cfg_rate
        self.num_steps = num_steps
        self.times, self.step_sizes = _accumulated(time_steps(num_steps))
        parameter = estimator.projection.weight
        self.dtype = parameter.dtype
        with torch.no_grad():
            self.time_biases = estimator.time_biases(self.times.to(parameter.device))[:, :, None, :]

    def solve(
        self,
        noise: Tensor,
        conditions: Conditions,
        visible: Tensor | None = None,
        past_of_step: Callable[[int], Past] = lambda _: NoPast(),
    ) -> Tensor:
        """Mel ``[B, T, mel]`` float32 from ``noise [B, T, mel]`` float32.

        Args:
            visible: bool ``[B, 1, T, S]`` attention mask of a row, the same for both guidance rows.
            past_of_step: what the estimator saw of earlier frames at each step, for ``2 * B`` rows.
        """
        guided = conditions.with_unconditioned()
        mu, speaker, prompt = (x.to(self.dtype) for x in (guided.mu, guided.speaker, guided.prompt))
        visible = None if visible is None else torch.cat([visible, visible])
        x = noise
        for step, step_size in enumerate(self.step_sizes):
            twice = torch.cat([x, x]).to(self.dtype)
            biases = self.time_biases[:, step]
            velocity = self.estimator(twice, mu, speaker, prompt, biases, visible, past_of_step(step))
            conditioned, unconditioned = velocity.float().chunk(2)
            x = x + step_size * ((1 + self.cfg_rate) * conditioned - self.cfg_rate * unconditioned)
        return x


def _accumulated(schedule: Tensor) -> tuple[Tensor, list[float]]:
    """Times fed to the estimator and step sizes, in the reference's order of float32 roundings."""
    time, times, sizes = schedule[0], [], []
    for following in schedule[1:]:
        size = following - time
        times.append(time)
        sizes.append(size.item())
        time = time + size
    return torch.stack(times), sizes

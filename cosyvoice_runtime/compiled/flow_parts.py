"""FlowEncoder and estimator of the flow as compiled networks, called as the torch modules are.

The incremental flow stays what it is: pages hold the past. These modules read it into whole tensors for the
network, and write back what the network hands on. The start of an utterance is a past of zeros behind the
mask.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from cosyvoice_runtime.checkpoint.config import FlowConfig
from cosyvoice_runtime.compiled.ports import FittedNetwork
from cosyvoice_runtime.compiled.shapes import FlowShape, Shapes
from cosyvoice_runtime.flow.encoder import FlowEncoder
from cosyvoice_runtime.flow.estimator import Estimator
from cosyvoice_runtime.flow.pages import GUIDANCE_ROWS, PagedPast
from cosyvoice_runtime.flow.past import Before, Past, PastLayout

Fit = Callable[[FlowShape], FlowShape]
"""The shape to compile or pad a call to; fewer rows split it."""


class EngineEncoder(nn.Module):
    """In place of :class:`~cosyvoice_runtime.flow.encoder.FlowEncoder`."""

    def __init__(self, network: FittedNetwork, encoder: FlowEncoder, shapes: Shapes, fit: Fit) -> None:
        super().__init__()
        self.token_layout, self.frame_layout = encoder.token_layout, encoder.frame_layout
        self._network, self._shapes, self._fit = network, shapes, fit
        self._config: FlowConfig = shapes.config.flow

    def forward(
        self,
        x: Tensor,
        present: Tensor,
        visible_tokens: Tensor | None,
        visible_frames: Tensor | None,
        token_past: Past,
        frame_past: Past,
    ) -> Tensor:
        rows, new = x.shape[0], x.shape[1] - self._config.lookahead_tokens
        rate = self._config.frames_per_token
        tokens = _before(token_past, self.token_layout, x, new)
        frames = _before(frame_past, self.frame_layout, x, rate * new)
        inputs = {
            "x": x,
            "present": present,
            "visible_tokens": _mask(visible_tokens, rows, new, tokens),
            "visible_frames": _mask(visible_frames, rows, rate * new, frames),
            "ends": tokens.lengths,
            **_past_inputs("token_", tokens),
            **_past_inputs("frame_", frames),
        }
        target = self._fit(FlowShape(rows, new, max(1, tokens.keys.shape[2])))
        outputs = self._network.run(inputs, self._shapes.encoder(target))
        _keep(token_past, "token_", outputs)
        _keep(frame_past, "frame_", outputs)
        return outputs["hidden"]


class EngineEstimator(nn.Module):
    """In place of :class:`~cosyvoice_runtime.flow.estimator.Estimator`."""

    def __init__(self, network: FittedNetwork, estimator: Estimator, shapes: Shapes, fit: Fit) -> None:
        super().__init__()
        self.layout = estimator.layout
        self._network, self._shapes, self._fit = network, shapes, fit

    def mask(self, visible: Tensor) -> Tensor:
        """The graph takes it as it is."""
        return visible

    def forward(
        self,
        x: Tensor,
        mu: Tensor,
        speaker: Tensor,
        condition: Tensor,
        time_biases: Tensor,
        visible: Tensor | None,
        past: Past,
    ) -> Tensor:
        rows, new = x.shape[:2]
        before = _before(past, self.layout, x, new)
        inputs = {
            "x": x,
            "mu": mu,
            "speaker": speaker,
            "condition": condition,
            "time_biases": time_biases[:, 0],
            "visible": _mask(visible, rows, new, before),
            "ends": before.lengths,
            **_past_inputs("", before),
        }
        rate = self._shapes.config.flow.frames_per_token
        shape = FlowShape(rows // GUIDANCE_ROWS, new // rate, max(1, before.keys.shape[2] // rate))
        outputs = self._network.run(inputs, self._shapes.estimator(self._fit(shape)))
        _keep(past, "", outputs)
        return outputs["velocity"]


def _before(past: Past, layout: PastLayout, x: Tensor, new: int) -> Before:
    """The past in whole tensors; without one, nothing and zeros."""
    if isinstance(past, PagedPast):
        return past.before()
    nothing = x.new_zeros(layout.attentions, len(x), 0, layout.heads, layout.head_dim)
    tails = x.new_zeros(len(x), layout.tail_size)
    return Before(nothing, nothing, tails, torch.full((len(x),), new, device=x.device))


def _mask(visible: Tensor | None, rows: int, new: int, before: Before) -> Tensor:
    if visible is not None:
        return visible
    keys = before.keys
    return torch.ones(rows, 1, new, keys.shape[2] + new, dtype=torch.bool, device=keys.device)


def _past_inputs(prefix: str, before: Before) -> dict[str, Tensor]:
    return {f"{prefix}keys": before.keys, f"{prefix}values": before.values, f"{prefix}tails": before.tails}


def _keep(past: Past, prefix: str, outputs: dict[str, Tensor]) -> None:
    if isinstance(past, PagedPast):
        past.store(*(outputs[f"new_{prefix}{name}"] for name in ("keys", "values", "tails")))

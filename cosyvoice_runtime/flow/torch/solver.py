"""The solver of the flow on torch: from noise to mel along an estimator's velocities.

Classifier-free guidance is that of CosyVoice2, section 2.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config_flow import guidance_rows
from cosyvoice_runtime.flow.solvers import (
    EULER,
    NUM_STEPS,
    ends_of,
    even_times,
    given_times,
    require_solver,
    slopes,
    step_count,
)
from cosyvoice_runtime.flow.torch.dit import DiT
from cosyvoice_runtime.flow.torch.estimator import Estimator
from cosyvoice_runtime.flow.torch.layers import NoPast, Past
from cosyvoice_runtime.flow.torch.resampling_estimator import ResamplingEstimator
from cosyvoice_runtime.flow.voice_flow import MAX_FRAMES


@dataclass(frozen=True)
class Conditions:
    """Conditions that guide the solver, for each row.

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


class FlowSolver:
    """Integrates the estimator's velocity from noise to mel in fixed steps.

    Args:
        estimator: the network, or later an engine in its place.
        num_steps: None for those of ``times``, or the published number.
        name: one of :data:`~cosyvoice_runtime.flow.solvers.SOLVERS`.
        times: of a distilled flow; empty for those of the solver.
        meanflow: the estimator gives the mean velocity of a step.

    Raises:
        InvalidInput: another name, or another number of steps than that of ``times``.
    """

    def __init__(
        self,
        estimator: Estimator | DiT | ResamplingEstimator,
        cfg_rate: float,
        num_steps: int | None = None,
        name: str = EULER,
        times: Sequence[float] = (),
        meanflow: bool = False,
    ) -> None:
        require_solver(name, meanflow)
        self.name = name
        self.estimator: Any = estimator
        self.cfg_rate = cfg_rate
        self.num_steps = step_count(num_steps, times)
        parameter = estimator.projection.weight
        self.dtype = parameter.dtype
        if times:
            self.times, step_sizes = map(torch.from_numpy, given_times(times))
        elif name == EULER:
            self.times, step_sizes = _accumulated(time_steps(self.num_steps))
        else:
            self.times, step_sizes = map(torch.from_numpy, even_times(self.num_steps))
        self.step_sizes = step_sizes.to(parameter.device)
        self.slopes = torch.from_numpy(slopes(name, step_sizes.numpy())).to(parameter.device)
        with torch.no_grad():
            spans = (self.times, torch.from_numpy(ends_of(self.times.numpy())))[: 2 if meanflow else 1]
            self.time_biases = estimator.time_biases(*(each.to(parameter.device) for each in spans))

    @property
    def guidance_rows(self) -> int:
        """Rows of the estimator for one utterance."""
        return guidance_rows(self.cfg_rate)

    @property
    def looks_back(self) -> bool:
        """Whether a step needs the velocity of the step before."""
        return self.name != EULER

    def solve(
        self,
        noise: Tensor,
        conditions: Conditions,
        visible: Tensor | None = None,
        past: Past | None = None,
    ) -> Tensor:
        """Mel ``[B, T, mel]`` float32 from ``noise [B, T, mel]`` float32, with nothing before it.

        Args:
            visible: bool ``[B, 1, T, T]`` attention mask of a row, the same for all guidance rows.
            past: how attention sees the input; by default as it is.
        """
        guided, mask = self.guided(conditions), self.mask(visible)
        x, before = noise, torch.zeros_like(noise)
        for index in torch.arange(self.num_steps, device=x.device).split(1):
            x = self.step(x, guided, mask, past or NoPast(), index, before)
        return x

    def guided(self, conditions: Conditions) -> Conditions:
        """Inputs of :meth:`step`: the rows with guidance and, unless its rate is 0, without, in the network's
        type."""
        rows = conditions.with_unconditioned() if self.cfg_rate else conditions
        return Conditions(*(x.to(self.dtype) for x in (rows.mu, rows.speaker, rows.prompt)))

    def mask(self, visible: Tensor | None) -> Tensor | None:
        """Input of :meth:`step`: the mask of all guidance rows as the network wants it."""
        return None if visible is None else self.estimator.mask(self._for_each_row(visible))

    def step(
        self,
        x: Tensor,
        guided: Conditions,
        mask: Tensor | None,
        past: Past,
        index: Tensor,
        before: Tensor,
    ) -> Tensor:
        """One step on from ``x [B, T, mel]`` float32.

        Args:
            guided: from :meth:`guided`; ``past`` has as many rows.
            mask: from :meth:`mask`.
            index: number of the step, int64 ``[1]``: a tensor, so that one captured graph serves all steps.
            before: like ``x``, the velocity of the step before, finite at the first; becomes this one's.
        """
        biases = self.time_biases.index_select(1, index)
        noisy = self._for_each_row(x).to(self.dtype)
        velocity = self.estimator(noisy, guided.mu, guided.speaker, guided.prompt, biases, mask, past)
        guidance = self._guided_velocity(velocity.float())
        if not self.looks_back:
            return x + self.step_sizes.index_select(0, index) * guidance
        slope = self.slopes.index_select(0, index) * (guidance - before)
        before.copy_(guidance)
        return x + self.step_sizes.index_select(0, index) * (guidance + slope)

    def _for_each_row(self, x: Tensor) -> Tensor:
        """``x [B, ...]`` once for each guidance row."""
        return torch.cat([x] * self.guidance_rows)

    def _guided_velocity(self, velocity: Tensor) -> Tensor:
        """``[B, T, mel]`` of all guidance rows' velocities."""
        if not self.cfg_rate:
            return velocity
        conditioned, unconditioned = velocity.chunk(2)
        return (1 + self.cfg_rate) * conditioned - self.cfg_rate * unconditioned


def _accumulated(schedule: Tensor) -> tuple[Tensor, Tensor]:
    """Times fed to the estimator and step sizes, in the reference's order of float32 roundings."""
    time, times, sizes = schedule[0], [], []
    for following in schedule[1:]:
        size = following - time
        times.append(time)
        sizes.append(size)
        time = time + size
    return torch.stack(times), torch.stack(sizes)

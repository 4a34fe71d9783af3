"""One call of the flow's networks on ONNX Runtime, for several utterances at different positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.arrays import Array, Floats, Halves
from cosyvoice_runtime.onnx_cpu.flow_pages import CpuPages, CpuTails, stacked_past
from cosyvoice_runtime.wave.page_store import GUIDANCE_ROWS
from cosyvoice_runtime.wave.prompt import TokenSpan

if TYPE_CHECKING:
    from cosyvoice_runtime.onnx_cpu.flow import OnnxFlow

HIDDEN_SCORE = np.float32(-30000.0)
"""Added to the score of a key that a query must not see."""
Mask = npt.NDArray[np.bool_]


class FlowCall:
    """One call of the networks for several utterances.

    Args:
        held: pages of each that are done; ``new``: pages for its new blocks, none to keep nothing.
    """

    def __init__(
        self,
        flow: OnnxFlow,
        pool: CpuPages,
        spans: Sequence[TokenSpan],
        held: Sequence[Sequence[int]],
        new: Sequence[Sequence[int]],
    ) -> None:
        self.flow, self.pool, self.spans, self.held, self.new = flow, pool, spans, held, new
        self.rows, self.tokens = len(spans), max(span.count for span in spans)
        self.before = max(map(len, held))
        self.rate = flow.config.frames_per_token
        self.frames = self.rate * self.tokens
        self.counts = np.array([span.count for span in spans])
        self.missing = np.array([self.before - len(numbers) for numbers in held])

    def run(self, tails: Sequence[CpuTails]) -> tuple[Floats, list[CpuTails]]:
        """Mel ``[B, frames, mel]`` of all rows, and their tails after it."""
        old = (np.stack([own.tokens for own in tails]), np.stack([own.frames for own in tails]))
        conditions, *stacks = self.encode(*old)
        before = np.concatenate([np.stack([own.estimator[:, g] for own in tails], 1) for g in range(2)], 1)
        mel, steps, after = self.noise(), CallSteps(self, conditions), np.empty_like(before)
        velocity = None
        for step in range(self.flow.num_steps):
            mel, velocity, after[step] = steps.take(mel, step, velocity, before[step], place=step)
        by_row = (after[:, row :: self.rows] for row in range(self.rows))
        return mel, [CpuTails(*own) for own in zip(*stacks, by_row, strict=True)]

    def encode(self, token_tails: Floats, frame_tails: Floats) -> tuple[Floats, Floats, Floats]:
        """Conditions of the estimator, and new tails ``[B, N]`` of both stacks."""
        pool, lookahead = self.pool, self.flow.config.lookahead_tokens
        tokens = np.zeros((self.rows, self.tokens + lookahead), np.int64)
        present = np.zeros(tokens.shape, np.bool_)
        for row, span in enumerate(self.spans):
            tokens[row, : len(span.tokens)] = span.tokens
            present[row, : len(span.tokens)] = True
        inputs = {
            "tokens": tokens,
            "present": present,
            "speaker": np.stack([span.prompt.speaker for span in self.spans]),
            "visible_tokens": self.visible(pool.block),
            "visible_frames": self.visible(pool.block_frames),
            "ends": self.counts.astype(np.int64),
            "token_tails": token_tails,
            "frame_tails": frame_tails,
        }
        for prefix, pages in (("token_", pool.tokens), ("frame_", pool.frames)):
            keys, values = stacked_past(pages, self.held, self.before)
            inputs |= {f"{prefix}keys": keys, f"{prefix}values": values}
        made = self.flow.encoder.run(inputs)
        for prefix, pages, frames in (
            ("token_", pool.tokens, pool.block), ("frame_", pool.frames, pool.block_frames)
        ):  # fmt: skip
            if f"new_{prefix}keys" in made:
                self._store(pages, (made[f"new_{prefix}keys"], made[f"new_{prefix}values"]), frames)
        conditions = self._conditions(made["mu"], made["voice"])
        return conditions, made["new_token_tails"], made.get("new_frame_tails", frame_tails)

    def _store(self, pages: Floats, new: Sequence[Floats], frames: int) -> None:
        """Keep keys and values ``[A, B, T, H, D]``."""
        for row, place, page, count in self.blocks(frames):
            for side, values in enumerate(new):
                pages[page, side, :, :count] = values[:, row, place : place + count]

    def blocks(self, frames: int) -> list[tuple[int, int, int, int]]:
        """Row, first new frame, page and frames of every new block."""
        per_token = frames // self.pool.block
        return [
            (row, place * frames, page, min(frames, per_token * int(self.counts[row]) - place * frames))
            for row, pages in enumerate(self.new)
            for place, page in enumerate(pages)
        ]

    def _conditions(self, mu: Floats, voice: Floats) -> Floats:
        """``[2B, frames, 3 * mel]``: all with guidance, then zeros."""
        bins = self.flow.config.mel_bins
        conditions = np.zeros((GUIDANCE_ROWS * self.rows, self.frames, 3 * bins), np.float32)
        conditions[: self.rows, :, :bins] = mu
        conditions[: self.rows, :, bins : 2 * bins] = voice[:, None]
        for row, span in enumerate(self.spans):
            prompt = self.flow.prompt_frames(span, self.frames)
            conditions[row, : len(prompt), 2 * bins :] = prompt
        return conditions

    def noise(self) -> Floats:
        """What the solver starts with, ``[B, frames, mel]``."""
        return np.stack([self.flow.noise(span.start, self.frames) for span in self.spans])

    def visible(self, block: int) -> Mask:
        """``[B, 1, T, S + T]``: keys that exist, up to the query's own block."""
        per_token = block // self.pool.block
        query = np.arange(per_token * self.tokens)
        position = self.before * block
        key = np.arange(position + len(query))
        ends = position + per_token * self.counts
        exists = (key >= (self.missing * block)[:, None]) & (key < ends[:, None])
        causal = key // block <= self.before + query[:, None] // block
        visible: Mask = exists[:, None, None, :] & causal
        return visible


class CallSteps:
    """The solver's steps over a call's frames.

    Args:
        conditions: as :meth:`FlowCall.encode` gives them.
    """

    def __init__(self, call: FlowCall, conditions: Floats) -> None:
        self._call, self._pages = call, call.pool.estimator
        self._frames, self._past = call.pool.block_frames, self._room()
        visible = call.visible(self._frames)
        bias = np.where(visible, np.float32(0), HIDDEN_SCORE)
        starts = np.array([call.rate * span.start for span in call.spans], np.int64)
        self._inputs = {
            "conditions": conditions,
            "bias": np.concatenate([bias, bias]),
            "last": self._last(),
            "starts": np.tile(starts, GUIDANCE_ROWS),
        }
        for index, values in enumerate(self._past):
            self._inputs[f"{('keys', 'values')[index % 2]}.{index // 2}"] = values

    def take(
        self, mel: Floats, step: int, before: Floats | None, tails: Floats, place: int
    ) -> tuple[Floats, Floats, Floats]:
        """The solution ``[B, frames, mel]`` after a step, its velocity, and new tails.

        Args:
            before: velocity of the step before; None at the first.
            place: of the step in the pages.
        """
        flow, rows, rate = self._call.flow, self._call.rows, np.float32(self._call.flow.config.cfg_rate)
        self._gather(place)
        own = {"x": np.concatenate([mel, mel]), "time_biases": flow.time_biases[step], "tails": tails}
        made = flow.estimator.run(self._inputs | own)
        self._keep(made["new"], place)
        velocity, new_tails = made["velocity"], made["new_tails"]
        conditioned, unconditioned = velocity[:rows], velocity[rows:]
        guided = (1 + rate) * conditioned - rate * unconditioned
        return flow.solver.moved(mel, guided, before, step), guided, new_tails

    def _last(self) -> Array:
        """Row and place of the last frames of each that a tail holds, counted from those before the new."""
        ends = np.tile(self._call.rate * self._call.counts, GUIDANCE_ROWS)
        tail, _ = self._call.flow.past_sizes.estimator_tail
        rows = np.arange(len(ends))[:, None] + np.zeros((1, tail), np.int64)
        return np.stack([rows, ends[:, None] + np.arange(tail)], axis=2).astype(np.int64)

    def _room(self) -> Array:
        """For keys and values of a step, ``[2A, 2B, H, S, D]``; zeros where a row has none."""
        _, _, _, attentions, heads, frames, size = self._pages.shape
        rows = GUIDANCE_ROWS * self._call.rows
        shape = (attentions, rows, heads, self._call.before * frames, size)
        return np.zeros(shape, self._pages.dtype)

    def _gather(self, step: int) -> None:
        call, frames = self._call, self._frames
        for row, numbers in enumerate(call.held):
            for place, page in enumerate(numbers, int(call.missing[row])):
                span = slice(place * frames, (place + 1) * frames)
                for guidance in range(GUIDANCE_ROWS):
                    self._past[:, guidance * call.rows + row, :, span] = self._pages[page, step, guidance]

    def _keep(self, new: Floats | Halves, step: int) -> None:
        """Keep keys and values ``[2A, 2B, T, H * D]`` of a step."""
        _, _, _, attentions, heads, frames, size = self._pages.shape
        for row, place, page, count in self._call.blocks(frames):
            for guidance in range(GUIDANCE_ROWS):
                values = new[:, guidance * self._call.rows + row, place : place + count]
                by_head = values.reshape(attentions, count, heads, size).swapaxes(1, 2)
                self._pages[page, step, guidance, :, :, :count] = by_head

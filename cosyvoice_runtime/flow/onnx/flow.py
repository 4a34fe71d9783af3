"""The flow on ONNX Runtime and numpy: blocks of utterances at different positions, over pages."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.arrays import Array, Floats
from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.flow.onnx.pages import CpuPages, CpuTails, PastSizes, stacked_past
from cosyvoice_runtime.flow.paged_flow import FlowState, FlowWork, PagedFlow
from cosyvoice_runtime.flow.solvers import EULER, CpuSolver, ends_of, require_solver
from cosyvoice_runtime.flow.voice_flow import MAX_FRAMES, FlowInputs, TokenSpan
from cosyvoice_runtime.onnx.session import (
    FLOW_ENCODER,
    FLOW_ESTIMATOR,
    FLOW_TIMES,
    NamedSession,
    graph_path,
    open_session,
)
from cosyvoice_runtime.onnx.torch_random import TorchRandom

MOST_BLOCKS = 8
"""New blocks of a row in one call: the memory of attention's scores grows with their square."""
HIDDEN_SCORE = -30000.0
"""Added to the score of a key that a query must not see."""
Block = tuple[int, int, int]
Ports = tuple[Mapping[str, Array], Mapping[str, Array]]
Mask = npt.NDArray[np.bool_]


class OnnxFlow(FlowInputs):
    """Sessions of one checkpoint and the solver's constants.

    Args:
        directory: of the graphs (:mod:`~cosyvoice_runtime.onnx.session`).
        num_steps: None for those of the configuration's times, or the published number.
        threads: of one operation.
        solver: one of :data:`~cosyvoice_runtime.flow.solvers.SOLVERS`.

    Raises:
        EngineFileError: a graph is missing or no readable model.
    """

    def __init__(
        self, config: FlowConfig, directory: Path, num_steps: int | None, threads: int, solver: str = EULER
    ) -> None:
        super().__init__(config)
        self.encoder, self.estimator = (
            NamedSession(open_session(graph_path(directory, name), threads))
            for name in (FLOW_ENCODER, FLOW_ESTIMATOR)
        )
        require_solver(solver, config.meanflow)
        self.solver = CpuSolver(solver, num_steps, config.times)
        times = open_session(graph_path(directory, FLOW_TIMES), threads)
        ends = {"ends": ends_of(self.solver.times)} if config.meanflow else {}
        [self.time_biases] = times.run(None, {"times": self.solver.times, **ends})
        noise = TorchRandom(0).normal(config.mel_bins * MAX_FRAMES)
        self.start_noise = np.ascontiguousarray(noise.reshape(config.mel_bins, MAX_FRAMES).T)
        self.past_sizes = PastSizes.of(self.encoder, self.estimator)

    @property
    def num_steps(self) -> int:
        return len(self.solver.times)

    def noise(self, start: int, frames: int) -> Floats:
        """Start of the solution ``[frames, mel]`` from token ``start`` on."""
        first = self.config.frames_per_token * start
        places = np.minimum(np.arange(first, first + frames), MAX_FRAMES - 1)
        return self.start_noise[places]


class CallPart:
    """A run of the estimator over some blocks of a call.

    Args:
        blocks: page, first frame in the call and number of frames of each.
        before: number of frames before the call.
        conditions: conditions of the call's frames.
        shared: inputs and outputs that all runs of the call use.

    Attributes:
        velocity: ``[R, frames, mel]``, after a run.
    """

    def __init__(
        self, call: FlowCall, blocks: Sequence[Block], before: int, conditions: Floats, shared: Ports
    ) -> None:
        self.blocks = blocks
        start, (_, last, count) = blocks[0][1], blocks[-1]
        self._own = slice(start, last + count)
        total, config = before + last + count, call.flow.config
        self._x = np.empty((config.guidance_rows, last + count - start, config.mel_bins), np.float32)
        self.velocity = np.empty_like(self._x)
        shown = call.visible(call.pool.block_frames)[:, :, self._own, :total]
        inputs: dict[str, Array] = {
            "x": self._x,
            "conditions": np.ascontiguousarray(conditions[:, self._own]),
            "bias": np.where(shown, 0, HIDDEN_SCORE).astype(call.pool.code.room),
            "last": np.array([total - 1], np.int32),
            "total": np.array([total], np.int32),
            "starts": np.full(config.guidance_rows, before + start, np.int64),
        }
        read, written = shared
        self._bound = call.flow.estimator.bound({**inputs, **read}, {"velocity": self.velocity, **written})

    def run(self, mel: Floats) -> None:
        """Compute the velocity at the call's mel ``[frames, mel]`` so far."""
        self._x[:] = mel[self._own]
        self._bound.run()


class FlowCall:
    """One call of the networks for an utterance. A batch of utterances would gain a CPU nothing: products are
    bound by arithmetic with the frames of one.

    Args:
        held: its pages that are done; ``new``: pages for its new blocks.
    """

    def __init__(
        self, flow: OnnxFlow, pool: CpuPages, span: TokenSpan, held: Sequence[int], new: Sequence[int]
    ) -> None:
        self.flow, self.pool, self.span, self.held, self.new = flow, pool, span, held, new
        self.rate = flow.config.frames_per_token
        self.frames = self.rate * span.count

    def run(self, tails: CpuTails) -> tuple[Floats, CpuTails]:
        """Mel ``[frames, mel]``, and the utterance's tails after it."""
        conditions, token_tails, frame_tails = self.encode(tails.tokens, tails.frames)
        mel, steps, after = self.noise(), CallSteps(self, conditions), np.empty_like(tails.estimator)
        velocity = None
        for step in range(self.flow.num_steps):
            mel, velocity, after[step] = steps.take(mel, step, velocity, tails.estimator[step], place=step)
        return mel, CpuTails(token_tails, frame_tails, after)

    def encode(self, token_tails: Floats, frame_tails: Floats) -> tuple[Floats, Floats, Floats]:
        """Conditions of the estimator, and new tails ``[N]`` of both stacks."""
        pool, span = self.pool, self.span
        tokens = np.zeros(span.count + self.flow.config.lookahead_tokens, np.int64)
        present = np.zeros(tokens.shape, np.bool_)
        tokens[: len(span.tokens)] = span.tokens
        present[: len(span.tokens)] = True
        inputs = {
            "tokens": tokens[None],
            "present": present[None],
            "speaker": span.prompt.speaker[None],
            "visible_tokens": self.visible(pool.block),
            "visible_frames": self.visible(pool.block_frames),
            "ends": np.array([span.count], np.int64),
            "token_tails": token_tails[None],
            "frame_tails": frame_tails[None],
        }
        for prefix, pages in (("token_", pool.tokens), ("frame_", pool.frames)):
            keys, values = stacked_past(pages, self.held)
            inputs |= {f"{prefix}keys": keys, f"{prefix}values": values}
        made = self.flow.encoder.run(inputs)
        for prefix, pages, frames in (
            ("token_", pool.tokens, pool.block), ("frame_", pool.frames, pool.block_frames)
        ):  # fmt: skip
            if f"new_{prefix}keys" in made:
                self._store(pages, (made[f"new_{prefix}keys"], made[f"new_{prefix}values"]), frames)
        conditions = self._conditions(made["mu"], made["voice"])
        new_frame_tails = made["new_frame_tails"][0] if "new_frame_tails" in made else frame_tails
        return conditions, made["new_token_tails"][0], new_frame_tails

    def _store(self, pages: Floats, new: Sequence[Floats], frames: int) -> None:
        """Keep keys and values ``[A, 1, T, H, D]``."""
        for page, place, count in self.blocks(frames):
            for side, values in enumerate(new):
                pages[page, side, :, :count] = values[:, 0, place : place + count]

    def blocks(self, frames: int) -> Iterator[tuple[int, int, int]]:
        """Page, first new frame and frames of every new block, of ``frames`` unless it is the last one."""
        end = frames // self.pool.block * self.span.count
        return (
            (page, place, min(frames, end - place))
            for page, place in zip(self.new, range(0, end, frames), strict=True)
        )

    def _conditions(self, mu: Floats, voice: Floats) -> Floats:
        """``[R, frames, 3 * mel]``: with guidance, then, if there is any, zeros."""
        bins, rows = self.flow.config.mel_bins, self.flow.config.guidance_rows
        conditions = np.zeros((rows, self.frames, 3 * bins), np.float32)
        conditions[0, :, :bins] = mu[0]
        conditions[0, :, bins : 2 * bins] = voice[0]
        prompt = self.flow.prompt_frames(self.span, self.frames)
        conditions[0, : len(prompt), 2 * bins :] = prompt
        return conditions

    def noise(self) -> Floats:
        """Start of the solution, ``[frames, mel]``."""
        return self.flow.noise(self.span.start, self.frames)

    def visible(self, block: int) -> Mask:
        """``[1, 1, T, S + T]``: keys up to the query's own block."""
        before = len(self.held)
        query = np.arange(block // self.pool.block * self.span.count)
        key = np.arange(before * block + len(query))
        seen: Mask = key // block <= before + query[:, None] // block
        return seen[None, None]


class CallSteps:
    """The solver's steps over a call's frames: of all blocks at once, or one after the other where pages want
    it."""

    def __init__(self, call: FlowCall, conditions: Floats) -> None:
        self._call, self._pages, self._code = call, call.pool.estimator, call.pool.code
        self._frames = call.pool.block_frames
        self._before = self._frames * len(call.held)
        flow = call.flow
        _, _, rows, sides, heads, _, size = self._pages.shape
        tails = rows, *flow.past_sizes.estimator_tail
        room = (sides, rows, heads, self._before + call.frames, size)
        self._room = np.empty(room, self._code.room)
        self._times = np.empty_like(flow.time_biases[0])
        self._tails, self._new_tails = np.empty(tails, np.float32), np.empty(tails, np.float32)
        shared = self._shared()
        blocks = list(call.blocks(self._frames))
        self._parts = [
            CallPart(call, part, self._before, conditions, shared)
            for part in ([[block] for block in blocks] if self._code.by_block else [blocks])
        ]

    def take(
        self, mel: Floats, step: int, before: Floats | None, tails: Floats, place: int
    ) -> tuple[Floats, Floats, Floats]:
        """The solution ``[frames, mel]`` after a step, its velocity, and new tails.

        Args:
            before: velocity of the step before; None at the first.
            place: of the step in the pages.
        """
        flow = self._call.flow
        self._times[:] = flow.time_biases[step]
        self._new_tails[:] = tails
        self._gather(place)
        for part in self._parts:
            self._tails[:] = self._new_tails
            part.run(mel)
            self._keep(part, place)
        guided = self._guided(np.concatenate([part.velocity for part in self._parts], axis=1))
        return flow.solver.moved(mel, guided, before, step), guided, self._new_tails.copy()

    def _guided(self, velocity: Floats) -> Floats:
        """``[frames, mel]`` of the velocities ``[R, frames, mel]``."""
        rate = np.float32(self._call.flow.config.cfg_rate)
        if not rate:
            return velocity[0]
        guided: Floats = (1 + rate) * velocity[0] - rate * velocity[1]
        return guided

    def _shared(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """Inputs and outputs of the estimator that are the same memory for all parts."""
        inputs: dict[str, Array] = {"time_biases": self._times, "tails": self._tails}
        outputs: dict[str, Array] = {"new_tails": self._new_tails}
        for index, memory in enumerate(self._room):
            side, layer = ("keys", "values")[index % 2], index // 2
            heads = memory.reshape(1, -1, *memory.shape[2:])
            inputs[f"{side}.{layer}"] = outputs[f"{side}_after.{layer}"] = heads
        return inputs, outputs

    def _gather(self, step: int) -> None:
        """Keys and values of a step to the front of the room."""
        for place, page in enumerate(self._call.held):
            self._code.read(self._page(page, step), self._at(place * self._frames, self._frames))

    def _keep(self, part: CallPart, step: int) -> None:
        """Those that were written behind them; the next part sees them as they are kept."""
        for page, place, count in part.blocks:
            written, kept = self._at(self._before + place, count), self._page(page, step)[:, :, :, :count]
            self._code.write(written, kept)
            if part is not self._parts[-1]:
                self._code.read(kept, written)

    def _page(self, page: int, step: int) -> Array:
        """``[2A, R, H, frames, D]``."""
        kept: Array = self._pages[page, step].swapaxes(0, 1)
        return kept

    def _at(self, first: int, frames: int) -> Array:
        """Frames of the room, ``[2A, R, H, frames, D]``."""
        return self._room[:, :, :, first : first + frames]


def _recomputed(flow: OnnxFlow, span: TokenSpan, most_blocks: int) -> Floats:
    """Mel ``[frames, mel]`` of a span that begins its utterance; nothing is kept.

    Each step goes through all parts before the next one begins: so memory holds keys and values of one step,
    and attention's scores of one part.

    Args:
        most_blocks: of a part.
    """
    calls = _calls(flow, span, most_blocks)
    empty = calls[0].pool.empty_tails()
    tokens, frames, conditions = empty.tokens, empty.frames, []
    for call in calls:
        of_call, tokens, frames = call.encode(tokens, frames)
        conditions.append(of_call)
    mels = [call.noise() for call in calls]
    velocities: list[Floats | None] = [None] * len(calls)
    for step in range(flow.num_steps):
        tails = empty.estimator[0]
        for place, call in enumerate(calls):
            steps = CallSteps(call, conditions[place])  # made anew: what they hold grows with the past
            before = velocities[place]
            mels[place], velocities[place], tails = steps.take(mels[place], step, before, tails, place=0)
    return np.concatenate(mels)


def _calls(flow: OnnxFlow, span: TokenSpan, most_blocks: int) -> list[FlowCall]:
    """Calls for a span, over pages of their own that have room for one step."""
    block = flow.config.encoder.chunk_tokens
    pool = CpuPages(flow.config, 1, flow.past_sizes, -(-span.count // block))
    pages = pool.acquire(pool.num_pages) or []
    edges = [*range(0, len(pages), most_blocks), len(pages)]
    parts = _parts_of(span, most_blocks * block, flow.lookahead_tokens)
    return [
        FlowCall(flow, pool, part, pages[:first], pages[first:end])
        for part, (first, end) in zip(parts, pairwise(edges), strict=True)
    ]


def _parts_of(span: TokenSpan, most: int, lookahead: int) -> Iterator[TokenSpan]:
    for start in range(0, span.count, most):
        count = min(most, span.count - start)
        yield TokenSpan(span.prompt, start, count, span.tokens[start:][: count + lookahead])


class OnnxFlowStream(PagedFlow):
    """A flow over pages, of ``num_pages * page_bytes`` of memory; mels are numpy arrays."""

    flow: OnnxFlow
    pool: CpuPages

    def __init__(self, flow: OnnxFlow, num_pages: int) -> None:
        super().__init__(flow, CpuPages(flow.config, flow.num_steps, flow.past_sizes, num_pages))

    def fork(self) -> OnnxFlowStream:
        """A stream for another thread with the same networks and pages, and counts of its own."""
        other = copy.copy(self)
        other.forget_counts()
        return other

    def give_back_memory(self) -> None:
        """Return the memory of free pages to the system; any threads may compute meanwhile."""
        self.pool.give_back_free()

    def joined(self, mels: Sequence[Floats]) -> Floats:
        if not mels:
            return np.zeros((self.flow.config.mel_bins, 0), np.float32)
        return np.concatenate(mels, axis=1)

    def first_parts(self, spans: Sequence[TokenSpan]) -> Sequence[TokenSpan]:
        most = MOST_BLOCKS * self.pool.block
        return [span.first(most, self.flow.lookahead_tokens) for span in spans]

    def continued(self, work: Sequence[FlowWork]) -> list[Floats]:
        """One after the other: for each, the networks write keys and values behind its own."""
        return [self._continued(item.state, item.span) for item in work]

    def _continued(self, state: FlowState, span: TokenSpan) -> Floats:
        pages = state.pages or []
        done = span.start // self.pool.block
        call = FlowCall(self.flow, self.pool, span, pages[:done], pages[done:])
        mel, state.tails = call.run(state.tails)
        return mel

    def recomputed(self, spans: Sequence[TokenSpan]) -> list[Floats]:
        """One after the other, each in parts: memory grows with an utterance's length and no faster."""
        return [_recomputed(self.flow, span, MOST_BLOCKS) for span in spans]

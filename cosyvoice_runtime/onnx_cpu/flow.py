"""The flow on ONNX Runtime and numpy: blocks of utterances at different positions, over pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.arrays import Array, Floats
from cosyvoice_runtime.checkpoint.config import FlowConfig
from cosyvoice_runtime.onnx_cpu import flow_encoder_graph, flow_estimator_graph, flow_times_graph
from cosyvoice_runtime.onnx_cpu.flow_estimator_graph import TAIL
from cosyvoice_runtime.onnx_cpu.flow_pages import CpuPages, CpuTails, stacked_past
from cosyvoice_runtime.onnx_cpu.session import open_session
from cosyvoice_runtime.onnx_cpu.torch_random import TorchRandom
from cosyvoice_runtime.onnx_cpu.wave_files import graph_path
from cosyvoice_runtime.wave.page_store import GUIDANCE_ROWS
from cosyvoice_runtime.wave.paged_flow import FlowState, FlowWork, PagedFlow
from cosyvoice_runtime.wave.prompt import MAX_FRAMES, FlowInputs, TokenSpan

HIDDEN_SCORE = np.float32(-30000.0)
"""Added to the score of a key that a query must not see."""
MOST_BLOCKS = 8
"""New blocks of a row in one call: attention's memory grows with their square."""
Mask = npt.NDArray[np.bool_]


class OnnxFlow(FlowInputs):
    """Sessions of one checkpoint and the solver's constants.

    Args:
        directory: of the graphs (:mod:`~cosyvoice_runtime.onnx_cpu.wave_files`).
        threads: of one operation.

    Raises:
        EngineFileError: a graph is missing or no readable model.
    """

    def __init__(self, config: FlowConfig, directory: Path, num_steps: int, threads: int) -> None:
        super().__init__(config)
        self.encoder, self.estimator = (
            open_session(graph_path(directory, name), threads)
            for name in (flow_encoder_graph.NAME, flow_estimator_graph.NAME)
        )
        self.times, self.step_sizes = accumulated_times(num_steps)
        times = open_session(graph_path(directory, flow_times_graph.NAME), threads)
        [self.time_biases] = times.run(None, {"times": self.times})
        noise = TorchRandom(0).normal(config.mel_bins * MAX_FRAMES)
        self.start_noise = np.ascontiguousarray(noise.reshape(config.mel_bins, MAX_FRAMES).T)
        sizes = {port.name: port.shape[-1] for port in self.encoder.get_inputs()}
        self.tail_sizes = sizes["token_tails"], sizes["frame_tails"]

    @property
    def num_steps(self) -> int:
        return len(self.times)

    def noise(self, start: int, frames: int) -> Floats:
        """Start of the solution ``[frames, mel]`` from token ``start`` on."""
        first = self.config.frames_per_token * start
        places = np.minimum(np.arange(first, first + frames), MAX_FRAMES - 1)
        return self.start_noise[places]


class OnnxFlowStream(PagedFlow):
    """A flow over pages; mels are numpy arrays.

    Args:
        num_pages: the memory is ``num_pages * page_bytes``.
    """

    def __init__(self, flow: OnnxFlow, num_pages: int) -> None:
        self._pool = CpuPages(flow.config, flow.num_steps, flow.tail_sizes, num_pages)
        super().__init__(flow, self._pool)
        self._flow = flow

    def advance(self, states: Sequence[FlowState]) -> list[Floats]:
        return self.advanced(states)

    def joined(self, mels: Sequence[Floats]) -> Floats:
        if not mels:
            return np.zeros((self.flow.config.mel_bins, 0), np.float32)
        return np.concatenate(mels, axis=1)

    def first_parts(self, spans: Sequence[TokenSpan]) -> Sequence[TokenSpan]:
        most = MOST_BLOCKS * self._pool.block
        return [span.first(most, self.flow.lookahead_tokens) for span in spans]

    def continued(self, work: Sequence[FlowWork]) -> list[Floats]:
        block = self._pool.block
        held = [(item.state.pages or [])[: item.span.start // block] for item in work]
        new = [(item.state.pages or [])[item.span.start // block :] for item in work]
        call = _Call(self._flow, self._pool, [item.span for item in work], held, new)
        mel, tails = call.run([item.state.tails for item in work])
        for item, own in zip(work, tails, strict=True):
            item.state.tails = own
        return list(mel)

    def recomputed(self, spans: Sequence[TokenSpan]) -> list[Floats]:
        """One after the other: each takes memory with the square of its length."""
        return [self._alone(span) for span in spans]

    def _alone(self, span: TokenSpan) -> Floats:
        [mel], _ = _Call(self._flow, self._pool, [span], [[]], [[]]).run([self._pool.empty_tails()])
        return mel


class _Call:
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
        mu, voice, token_tails, frame_tails = self._encode(tails)
        old = np.concatenate([np.stack([own.estimator[:, g] for own in tails], 1) for g in range(2)], 1)
        mel, new = self._solve(self._conditions(mu, voice), old)
        by_row = (new[:, row :: self.rows] for row in range(self.rows))
        return mel, [CpuTails(*own) for own in zip(token_tails, frame_tails, by_row, strict=True)]

    def _encode(self, tails: Sequence[CpuTails]) -> tuple[Floats, Floats, Floats, Floats]:
        """mu, the projected speaker, and new tails of both stacks."""
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
            "visible_tokens": self._visible(pool.block),
            "visible_frames": self._visible(pool.block_frames),
            "ends": self.counts.astype(np.int64),
            "token_tails": np.stack([own.tokens for own in tails]),
            "frame_tails": np.stack([own.frames for own in tails]),
        }
        for prefix, pages in (("token_", pool.tokens), ("frame_", pool.frames)):
            keys, values = stacked_past(pages, self.held, self.before)
            inputs |= {f"{prefix}keys": keys, f"{prefix}values": values}
        names = ["mu", "voice", "new_token_tails", "new_frame_tails"]
        stores = ["new_token_keys", "new_token_values", "new_frame_keys", "new_frame_values"]
        mu, voice, token_tails, frame_tails, *new = self.flow.encoder.run([*names, *stores], inputs)
        self._store(pool.tokens, new[:2], pool.block)
        self._store(pool.frames, new[2:], pool.block_frames)
        return mu, voice, token_tails, frame_tails

    def _store(self, pages: Floats, new: Sequence[Floats], frames: int) -> None:
        """Keep keys and values ``[A, B, T, H, D]``."""
        for row, place, page, count in self._blocks(frames):
            for side, values in enumerate(new):
                pages[page, side, :, :count] = values[:, row, place : place + count]

    def _blocks(self, frames: int) -> list[tuple[int, int, int, int]]:
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

    def _solve(self, conditions: Floats, tails: Floats) -> tuple[Floats, Floats]:
        """Mel, and tails ``[steps, 2B, 2, N]`` after it."""
        flow, config = self.flow, self.flow.config
        mel = np.stack([flow.noise(span.start, self.frames) for span in self.spans])
        inputs = self._step_inputs(conditions)
        past = self._past()
        for index in range(past.shape[0]):
            inputs[f"{('keys', 'values')[index % 2]}.{index // 2}"] = past[index]
        new_tails = np.empty_like(tails)
        rate = np.float32(config.cfg_rate)
        for step in range(flow.num_steps):
            self._gather(past, step)
            inputs |= {
                "x": np.concatenate([mel, mel]),
                "time_biases": flow.time_biases[step],
                "tails": tails[step],
            }
            velocity, new_tails[step], new = flow.estimator.run(None, inputs)
            self._keep(new, step)
            conditioned, unconditioned = velocity[: self.rows], velocity[self.rows :]
            mel = mel + flow.step_sizes[step] * ((1 + rate) * conditioned - rate * unconditioned)
        return mel, new_tails

    def _step_inputs(self, conditions: Floats) -> dict[str, Array]:
        """What all steps share."""
        visible = self._visible(self.pool.block_frames)
        bias = np.where(visible, np.float32(0), HIDDEN_SCORE)
        ends = np.tile(self.rate * self.counts, GUIDANCE_ROWS)
        rows = np.arange(len(ends))[:, None] + np.zeros((1, TAIL), np.int64)
        last = np.stack([rows, ends[:, None] + np.arange(TAIL)], axis=2).astype(np.int64)
        return {"conditions": conditions, "bias": np.concatenate([bias, bias]), "last": last}

    def _past(self) -> Floats:
        """Room for keys and values of a step, ``[2A, 2B, H, S, D]``; zeros where a row has none."""
        _, _, _, attentions, heads, frames, size = self.pool.estimator.shape
        rows = GUIDANCE_ROWS * self.rows
        return np.zeros((attentions, rows, heads, self.before * frames, size), np.float32)

    def _gather(self, past: Floats, step: int) -> None:
        frames = self.pool.block_frames
        for row, numbers in enumerate(self.held):
            for place, page in enumerate(numbers, int(self.missing[row])):
                span = slice(place * frames, (place + 1) * frames)
                for guidance in range(GUIDANCE_ROWS):
                    past[:, guidance * self.rows + row, :, span] = self.pool.estimator[page, step, guidance]

    def _keep(self, new: Floats, step: int) -> None:
        """Keep keys and values ``[2A, 2B, T, H * D]`` of a step."""
        _, _, _, attentions, heads, frames, size = self.pool.estimator.shape
        for row, place, page, count in self._blocks(frames):
            for guidance in range(GUIDANCE_ROWS):
                values = new[:, guidance * self.rows + row, place : place + count]
                by_head = values.reshape(attentions, count, heads, size).swapaxes(1, 2)
                self.pool.estimator[page, step, guidance, :, :, :count] = by_head

    def _visible(self, block: int) -> Mask:
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


def accumulated_times(num_steps: int) -> tuple[Floats, Floats]:
    """Times fed to the estimator and step sizes of the cosine schedule ``1 - cos(k / n * pi / 2)``.

    In the published order of float32 roundings.
    """
    size = np.float32(1) / np.float32(num_steps)
    steps = np.arange(num_steps + 1, dtype=np.float32)
    # as torch.linspace: from both ends
    line = np.where(steps < (num_steps + 1) // 2, size * steps, 1 - size * (num_steps - steps))
    schedule = 1 - np.cos(line.astype(np.float32) * np.float32(0.5) * np.float32(np.pi))
    time, times, sizes = schedule[0], [], []
    for following in schedule[1:]:
        sizes.append(following - time)
        times.append(time)
        time = time + sizes[-1]
    return np.array(times, np.float32), np.array(sizes, np.float32)

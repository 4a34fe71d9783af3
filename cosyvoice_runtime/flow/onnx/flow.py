"""The flow on ONNX Runtime and numpy: blocks of utterances at different positions, over pages."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.flow.onnx.call import FlowCall, recomputed
from cosyvoice_runtime.flow.onnx.pages import CpuPages, PastSizes
from cosyvoice_runtime.flow.paged_flow import FlowState, FlowWork, PagedFlow
from cosyvoice_runtime.flow.solvers import EULER, CpuSolver
from cosyvoice_runtime.flow.voice_flow import MAX_FRAMES, FlowInputs, TokenSpan
from cosyvoice_runtime.onnx.session import NamedSession, open_session
from cosyvoice_runtime.onnx.torch_random import TorchRandom
from cosyvoice_runtime.onnx.wave_graphs import FLOW_ENCODER, FLOW_ESTIMATOR, FLOW_TIMES, graph_path

MOST_BLOCKS = 8
"""New blocks of a row in one call: the memory of attention's scores grows with their square."""


class OnnxFlow(FlowInputs):
    """Sessions of one checkpoint and the solver's constants.

    Args:
        directory: of the graphs (:mod:`~cosyvoice_runtime.onnx.wave_graphs`).
        threads: of one operation.
        solver: one of :data:`~cosyvoice_runtime.flow.solvers.SOLVERS`.

    Raises:
        EngineFileError: a graph is missing or no readable model.
    """

    def __init__(
        self, config: FlowConfig, directory: Path, num_steps: int, threads: int, solver: str = EULER
    ) -> None:
        super().__init__(config)
        self.encoder, self.estimator = (
            NamedSession(open_session(graph_path(directory, name), threads))
            for name in (FLOW_ENCODER, FLOW_ESTIMATOR)
        )
        self.solver = CpuSolver(solver, num_steps)
        times = open_session(graph_path(directory, FLOW_TIMES), threads)
        [self.time_biases] = times.run(None, {"times": self.solver.times})
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


class OnnxFlowStream(PagedFlow):
    """A flow over pages; mels are numpy arrays.

    Args:
        num_pages: the memory is ``num_pages * page_bytes``.
    """

    def __init__(self, flow: OnnxFlow, num_pages: int) -> None:
        self._pool = CpuPages(flow.config, flow.num_steps, flow.past_sizes, num_pages)
        super().__init__(flow, self._pool)
        self._flow = flow

    def beside(self) -> OnnxFlowStream:
        """The same networks and pages for another thread, with counts of its own."""
        other = copy.copy(self)
        other.forget_counts()
        return other

    def give_back_memory(self) -> None:
        """Of pages that nobody holds; any threads may compute meanwhile."""
        self._pool.give_back_free()

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
        """One after the other: for each, the networks write keys and values behind its own."""
        return [self._continued(item.state, item.span) for item in work]

    def _continued(self, state: FlowState, span: TokenSpan) -> Floats:
        pages = state.pages or []
        done = span.start // self._pool.block
        call = FlowCall(self._flow, self._pool, span, pages[:done], pages[done:])
        mel, state.tails = call.run(state.tails)
        return mel

    def recomputed(self, spans: Sequence[TokenSpan]) -> list[Floats]:
        """One after the other, each in parts: memory grows with an utterance's length and no faster."""
        return [recomputed(self._flow, span, MOST_BLOCKS) for span in spans]

"""The sizes that engines are built for and that are captured as CUDA graphs; docs/engines.md says why.

Everything is counted in utterances and speech tokens; how many rows and frames a graph gets follows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.flow.export import encoder, estimator
from cosyvoice_runtime.tensorrt.graph_files import networks_of
from cosyvoice_runtime.vocoder import export as vocoder
from cosyvoice_runtime.vocoder.geometry import context

Sizes = dict[str, int]
"""A graph's free sizes by name."""
Profile = dict[str, tuple[int, int, int]]
"""Least, best and greatest of every free size."""

CHUNK_TOKENS = 25
"""Of most chunks: the hop that streaming starts with."""
LONGEST_HOP = 100
TYPICAL_PAST = 200
"""8 s: a prompt of 3 s and half of an utterance of 10 s."""
LARGEST_TENSOR = 2**31
"""TensorRT numbers the elements of a tensor in 32 bits."""
GRAPH_NEW = (25, 50)
GRAPH_PAST = (100, 200, 400)
GRAPH_ROW_TOKENS = 800
"""Most rows times past tokens of a captured shape: its buffers hold all their keys and values, 0.44 MiB a
token in float16 as published."""


@dataclass(frozen=True)
class FlowShape:
    """One call of the flow: utterances, tokens to turn into mel, tokens done before (at least one)."""

    rows: int
    new: int
    past: int

    def holds(self, other: FlowShape) -> bool:
        return self.rows >= other.rows and self.new >= other.new and self.past >= other.past


@dataclass(frozen=True)
class VocoderShape:
    """One call of the vocoder's decoder: utterances, and mel frames of the longest with its context."""

    rows: int
    frames: int

    def holds(self, other: VocoderShape) -> bool:
        return self.rows >= other.rows and self.frames >= other.frames


@dataclass(frozen=True)
class Shapes:
    """Sizes that the engines of a deployment are built for.

    Attributes:
        max_rows: utterances in one call.
        max_tokens: of one utterance, prompt included.
    """

    config: ModelConfig
    max_rows: int
    max_tokens: int

    def encoder(self, shape: FlowShape) -> Sizes:
        rate = self.config.flow.frames_per_token
        new, past = shape.new, shape.past
        return {
            "batch": shape.rows, "new": new, "past": past, "all": past + new,
            "padded": new + self.config.flow.lookahead_tokens,
            "new_frames": rate * new, "past_frames": rate * past, "all_frames": rate * (past + new),
        }  # fmt: skip

    def estimator(self, shape: FlowShape) -> Sizes:
        rate = self.config.flow.frames_per_token
        new, past = rate * shape.new, rate * shape.past
        rows = self.config.flow.guidance_rows * shape.rows
        return {"batch": rows, "new": new, "past": past, "all": past + new}

    def decoder(self, shape: VocoderShape) -> Sizes:
        samples = self.config.vocoder.hop * shape.frames
        return {"batch": shape.rows, "frames": shape.frames, "samples": samples}

    def profiles(self) -> dict[str, list[Profile]]:
        """Of every graph: first for the chunks of many utterances, then for any length of a single one."""
        flow = [
            (FlowShape(1, 1, 1), FlowShape(1, CHUNK_TOKENS, self._past(TYPICAL_PAST)), self.widest_chunks),
            (FlowShape(1, 1, 1), FlowShape(1, self._past(TYPICAL_PAST), 1), self.longest),
        ]
        wave = [
            (VocoderShape(1, 1), VocoderShape(1, self._window(CHUNK_TOKENS)), self.widest_windows),
            (VocoderShape(1, 1), VocoderShape(1, self._window(TYPICAL_PAST)), self.longest_window),
        ]
        every = {
            encoder.NAME: [_profile(*map(self.encoder, shapes)) for shapes in flow],
            estimator.NAME: [_profile(*map(self.estimator, shapes)) for shapes in flow],
            vocoder.NAME: [_profile(*map(self.decoder, shapes)) for shapes in wave],
        }
        return {name: every[name] for name in networks_of(self.config)}

    @property
    def widest_chunks(self) -> FlowShape:
        """Longest past for a full batch: TensorRT limits the elements of the tensor that holds its keys."""
        flow, config = self.config.flow, self.config.flow.blockwise
        keys_a_token = config.attentions * flow.guidance_rows * flow.frames_per_token
        elements = keys_a_token * config.num_heads * config.head_dim * self.max_rows
        past = min(self.max_tokens, (LARGEST_TENSOR - 1) // elements)
        return FlowShape(self.max_rows, min(LONGEST_HOP, self.max_tokens), past)

    @property
    def longest(self) -> FlowShape:
        return FlowShape(1, self.max_tokens, self.max_tokens)

    @property
    def widest_windows(self) -> VocoderShape:
        return VocoderShape(self.max_rows, self._window(LONGEST_HOP))

    @property
    def longest_window(self) -> VocoderShape:
        """At half speed, which doubles the frames."""
        return VocoderShape(1, self._window(2 * self.max_tokens))

    @cached_property
    def flow_graphs(self) -> list[FlowShape]:
        """Shapes of the flow to capture as CUDA graphs, smallest first."""
        shapes = [
            FlowShape(rows, new, past)
            for rows in self._rows()
            for past in GRAPH_PAST
            for new in GRAPH_NEW
            if rows * past <= GRAPH_ROW_TOKENS and self.widest_chunks.holds(FlowShape(rows, new, past))
        ]
        return sorted(shapes, key=lambda shape: shape.rows * shape.new * (shape.past + shape.new))

    @cached_property
    def vocoder_graphs(self) -> list[VocoderShape]:
        """Windows of the decoder to capture as CUDA graphs, smallest first."""
        shapes = [VocoderShape(rows, self._window(new)) for rows in self._rows() for new in GRAPH_NEW]
        return sorted(shapes, key=lambda shape: shape.rows * shape.frames)

    def fit_flow(self, shape: FlowShape) -> FlowShape:
        """Size to pad a call to: the smallest captured shape that holds it, or itself if none does.

        With fewer rows than the call, it is split: long utterances run one at a time.
        """
        rows = self.max_rows if self.widest_chunks.holds(replace(shape, rows=1)) else 1
        fitting = replace(shape, rows=min(shape.rows, rows))
        return next((graph for graph in self.flow_graphs if graph.holds(fitting)), fitting)

    def fit_vocoder(self, shape: VocoderShape) -> VocoderShape:
        """Size to pad a call of the decoder to, alike."""
        rows = self.max_rows if self.widest_windows.holds(replace(shape, rows=1)) else 1
        fitting = replace(shape, rows=min(shape.rows, rows))
        return next((graph for graph in self.vocoder_graphs if graph.holds(fitting)), fitting)

    def _rows(self) -> list[int]:
        return [rows for rows in (2**power for power in range(11)) if rows <= self.max_rows]

    def _past(self, tokens: int) -> int:
        return min(tokens, self.max_tokens)

    def _window(self, tokens: int) -> int:
        around = context(self.config.vocoder)
        return self.config.flow.frames_per_token * tokens + around.left + around.right


def _profile(least: Sizes, best: Sizes, greatest: Sizes) -> Profile:
    return {name: (least[name], best[name], greatest[name]) for name in least}

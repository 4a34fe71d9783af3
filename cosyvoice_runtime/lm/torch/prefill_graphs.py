"""Prompts, with the draw after them, captured once as CUDA graphs and replayed.

R: prompts of a graph, T: positions of each, S: slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosyvoice_runtime.gpu.buckets import batch_buckets
from cosyvoice_runtime.gpu.cuda_graphs import GraphCapture, ReplayedGraph
from cosyvoice_runtime.gpu.transfer import move
from cosyvoice_runtime.lm.prefills import PREFILL_POSITIONS, Prefill
from cosyvoice_runtime.lm.prompt import prompt_codes
from cosyvoice_runtime.lm.torch.kv_cache import CacheView, KVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.lm.torch.slot_draws import (
    Count,
    DrawSlots,
    Factor,
    SlotTables,
    SlotWork,
    slot_values,
    work_after_feed,
)

PROMPT_SIZES = (64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
"""Positions that whole prompts are padded to."""
TEXT_POSITIONS = 16
"""Positions that a block of a text that goes on is padded to."""
TEXT_SPANS = (512, 2048)
"""Positions of the cache to which a block of a text attends; longer ones attend to all."""

LogitsPrefill = Callable[[Tensor, Tensor, Tensor, CacheView, int | None], Tensor]
"""Computes logits of codes, lengths, starts, slots and span, as :meth:`SpeechLM.prefill_codes`; can be
captured."""


@runtime_checkable
class SpanlessPrefill(Protocol):
    """A :data:`LogitsPrefill` that reads texts as far as each sequence has come, whatever the span."""

    spanless: Literal[True]


class Column(IntEnum):
    """Columns of the tensor that brings each prompt to the device, before its codes."""

    SLOT = 0
    LENGTH = 1
    START = 2
    WORK = 3
    COUNTS = 4
    """The first of `Count`."""
    FACTORS = COUNTS + len(Count)
    """The first of `Factor`, as the bits of float32."""
    CODES = FACTORS + len(Factor)


class Shape(NamedTuple):
    """Prompts of a graph, positions of each, and positions of the cache that they attend to; None for whole
    prompts."""

    rows: int
    positions: int
    span: int | None = None


class GraphedPrefills:
    """Passes over whole prompts, and over short texts that follow in sequences that have begun.

    There is one captured graph for each number of prompts, padded length and span that differs. A pass feeds,
    sets the slots' rows of the tables and draws. All graphs are made at the start.

    Args:
        cache: the graphs read and write its memory; it may not be in use yet.
        batch: most prompts in one pass.
        draw: draws from the logits.
        tables: state of the cache's slots.
        feed: captured before the draws; None captures the network's own pass.
    """

    def __init__(
        self,
        lm: SpeechLM,
        cache: KVCache,
        batch: int,
        draw: DrawSlots,
        tables: SlotTables,
        capture: GraphCapture,
        feed: LogitsPrefill | None = None,
    ) -> None:
        self._lm = lm
        self._feed = feed or lm.prefill_codes
        self._cache = cache
        self._draw = draw
        self._tables = tables
        self._capture = capture
        self._shapes = list(prompt_shapes(min(batch, cache.slots), cache.max_len))
        most = max(shape.rows * (Column.CODES + shape.positions) for shape in self._shapes)
        self._fed = torch.zeros(most, dtype=torch.int64, device=cache.data.device)
        # Largest first: the smaller ones then find their memory in the pool.
        self._graphs = {
            shape: self._captured(shape)
            for shape in reversed(self._shapes)
            if shape == self._served_by(shape)
        }

    def __len__(self) -> int:
        return len(self._graphs)

    def graph(self, shape: Shape) -> ReplayedGraph[Tensor]:
        """The graph of a shape of `prompt_shapes`."""
        return self._graphs[self._served_by(shape)]

    def fits(self, group: Sequence[Prefill]) -> bool:
        """Whether one pass may take these together."""
        return self._shape(group) is not None

    def run(self, group: Sequence[Prefill]) -> Tensor:
        """Launch the pass of prompts that fit, without waiting.

        Returns:
            ids [R] drawn, as `DrawSlots`, the prompts' first; overwritten by later passes.
        """
        shape = self._shape(group)
        assert shape is not None
        sequences = [prefill.sequence for prefill in group]
        self._cache.prepare()
        self._tables.set_history(sequences)
        self._cache.lengths[[sequence.slot for sequence in sequences]] = [prefill.end for prefill in group]
        move(torch.from_numpy(self._rows(group, shape)), self._table(shape))
        graph = self.graph(shape)
        graph.replay()
        return graph.result

    def _shape(self, group: Sequence[Prefill]) -> Shape | None:
        """The smallest shape that holds these prompts, and their padding within sequences."""
        positions = max(prefill.positions for prefill in group)
        start, end = max(prefill.start for prefill in group), max(prefill.end for prefill in group)
        for shape in self._shapes:
            seen = start == 0 if shape.span is None else start > 0 and end <= shape.span
            fits = len(group) <= shape.rows and positions <= shape.positions
            if seen and fits and start + shape.positions <= self._cache.max_len:
                return shape
        return None

    def _served_by(self, shape: Shape) -> Shape:
        """The shape whose graph serves this one: that of the longest span where spans change nothing."""
        if shape.span is None or not isinstance(self._feed, SpanlessPrefill):
            return shape
        return shape._replace(span=self._cache.max_len)

    def _table(self, shape: Shape) -> Tensor:
        columns = Column.CODES + shape.positions
        return self._fed[: shape.rows * columns].view(shape.rows, columns)

    def _rows(self, group: Sequence[Prefill], shape: Shape) -> npt.NDArray[np.int64]:
        """[R, columns]: the prompts, and slots that have nothing to feed."""
        rows = np.zeros((shape.rows, Column.CODES + shape.positions), dtype=np.int64)
        rows[:, Column.LENGTH] = 1
        rows[:, Column.WORK] = SlotWork.IDLE
        taken = {prefill.sequence.slot for prefill in group}
        idle = [slot for slot in range(self._cache.slots) if slot not in taken][: shape.rows - len(group)]
        rows[len(group) :, Column.SLOT] = idle
        rows[len(group) :, Column.START] = self._cache.lengths[idle]
        for row, prefill in zip(rows, group, strict=False):
            self._fill(row, prefill)
        return rows

    def _fill(self, row: npt.NDArray[np.int64], prefill: Prefill) -> None:
        codes = prompt_codes(prefill.segments, self._lm.config)
        counts, factors = slot_values(prefill.sequence, self._lm.config.speech_rows)
        work = work_after_feed(prefill.sequence)
        row[Column.SLOT : Column.COUNTS] = prefill.sequence.slot, len(codes), prefill.start, work
        row[Column.COUNTS : Column.FACTORS] = counts
        row[Column.FACTORS : Column.CODES] = factors.view(np.int32)
        row[Column.CODES : Column.CODES + len(codes)] = codes

    def _captured(self, shape: Shape) -> ReplayedGraph[Tensor]:
        table = self._table(shape)
        slots, lengths, starts, work = (
            table[:, column] for column in (Column.SLOT, Column.LENGTH, Column.START, Column.WORK)
        )
        counts = table[:, Column.COUNTS : Column.FACTORS]
        bits = table[:, Column.FACTORS : Column.CODES]
        codes = table[:, Column.CODES :]

        def prefill() -> Tensor:
            own, draws = slots.contiguous(), work.contiguous()
            view = self._cache.gathered(own)
            logits = self._feed(codes, lengths, starts, view, shape.span)
            factors = bits.to(torch.int32).view(torch.float32)
            self._tables.begin(own, counts, factors, draws != SlotWork.IDLE)
            return self._draw(logits, own, draws, self._tables)

        self._reset(table)
        return self._capture(prefill)

    def _reset(self, table: Tensor) -> None:
        """Undo the rows of captured passes, which ran."""
        table.zero_()
        table[:, Column.SLOT] = torch.arange(len(table), device=table.device)
        table[:, Column.LENGTH] = 1


def prompt_shapes(batch: int, max_len: int) -> Iterator[Shape]:
    """Shapes of passes with up to ``batch`` prompts; the fewest rows, positions and span come first."""
    for rows in batch_buckets(batch):
        for positions in _up_to(min(max_len, PROMPT_SIZES[-1]), PROMPT_SIZES):
            if rows == 1 or rows * positions <= PREFILL_POSITIONS:
                yield Shape(rows, positions)
        for span in _up_to(max_len, TEXT_SPANS):
            yield Shape(rows, min(TEXT_POSITIONS, max_len), span)


def _up_to(most: int, sizes: Sequence[int]) -> list[int]:
    """The sizes below ``most``, and ``most``."""
    return [*(size for size in sizes if size < most), most]

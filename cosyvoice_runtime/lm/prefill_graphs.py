"""Prompts fed whole, with the draw after them, captured once as CUDA graphs and replayed.

R: prompts of a graph, T: positions of each, S: slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosyvoice_runtime.cuda_graphs import CapturedGraph, GraphCapture, batch_buckets
from cosyvoice_runtime.lm.network import GatheredView, KVCache, SpeechLM
from cosyvoice_runtime.lm.prefills import PREFILL_POSITIONS, Prefill
from cosyvoice_runtime.lm.prompt import num_positions, prompt_codes
from cosyvoice_runtime.lm.slot_draws import Count, DrawSlots, Factor, SlotTables, Turn, slot_values
from cosyvoice_runtime.transfer import moved

PROMPT_SIZES = (64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
"""Positions that prompts are padded to."""


class Column(IntEnum):
    """What comes to the device for each prompt, before its codes."""

    SLOT = 0
    LENGTH = 1
    START = 2
    TURN = 3
    COUNTS = 4
    """The first of `Count`."""
    FACTORS = COUNTS + len(Count)
    """The first of `Factor`, as the bits of float32."""
    CODES = FACTORS + len(Factor)


class Shape(NamedTuple):
    """Prompts of a graph, and positions of each."""

    rows: int
    positions: int


class GraphedPrefills:
    """Passes over whole prompts, one captured graph for each number of prompts and padded length.

    A pass feeds prompts to empty slots, sets their rows of the tables and draws their first ids. All graphs
    are made at the start.

    Args:
        cache: whose memory the graphs write; nobody may use it yet.
        batch: prompts in one pass at most.
        draw: draws from the logits.
        tables: of the cache's slots.
    """

    def __init__(
        self,
        lm: SpeechLM,
        cache: KVCache,
        batch: int,
        draw: DrawSlots,
        tables: SlotTables,
        capture: GraphCapture,
    ) -> None:
        self._lm = lm
        self._cache = cache
        self._draw = draw
        self._tables = tables
        self._capture = capture
        self._shapes = list(prompt_shapes(min(batch, cache.slots), cache.max_len))
        most = max((shape.rows * (Column.CODES + shape.positions) for shape in self._shapes), default=0)
        self._fed = torch.zeros(most, dtype=torch.int64, device=cache.data.device)
        # Largest first: the smaller ones then find their memory in the pool.
        self._graphs = {shape: self._captured(shape) for shape in reversed(self._shapes)}

    def __len__(self) -> int:
        return len(self._graphs)

    def graph(self, shape: Shape) -> CapturedGraph[Tensor]:
        """That of a shape, as `prompt_shapes` gives it."""
        return self._graphs[shape]

    def fits(self, rows: int, positions: int) -> bool:
        """Whether a graph holds so many prompts, the longest with so many positions."""
        return self._shape(rows, positions) is not None

    def run(self, group: Sequence[Prefill]) -> Tensor:
        """Launch the pass of prompts that fit, each into a slot without any position; waits for nothing.

        Returns:
            ids [R] drawn, as `DrawSlots`, the prompts' first; overwritten by later passes.
        """
        sequences = [prefill.sequence for prefill in group]
        lengths = [num_positions(prefill.parts) for prefill in group]
        shape = self._shape(len(group), max(lengths))
        assert shape is not None
        self._tables.set_history(sequences)
        self._cache.lengths[[sequence.slot for sequence in sequences]] = lengths
        fed = self._table(shape)
        fed.copy_(moved(torch.from_numpy(self._rows(group, shape)), fed.device))
        graph = self._graphs[shape]
        graph.replay()
        return graph.result

    def _shape(self, rows: int, positions: int) -> Shape | None:
        fitting = (each for each in self._shapes if each.rows >= rows and each.positions >= positions)
        return min(fitting, default=None)

    def _table(self, shape: Shape) -> Tensor:
        columns = Column.CODES + shape.positions
        return self._fed[: shape.rows * columns].view(shape.rows, columns)

    def _rows(self, group: Sequence[Prefill], shape: Shape) -> npt.NDArray[np.int64]:
        """[R, columns]: the prompts, and slots that have nothing to feed."""
        rows = np.zeros((shape.rows, Column.CODES + shape.positions), dtype=np.int64)
        rows[:, Column.LENGTH] = 1
        rows[:, Column.TURN] = Turn.IDLE
        taken = {prefill.sequence.slot for prefill in group}
        idle = [slot for slot in range(self._cache.slots) if slot not in taken][: shape.rows - len(group)]
        rows[len(group) :, Column.SLOT] = idle
        rows[len(group) :, Column.START] = self._cache.lengths[idle]
        for row, prefill in zip(rows, group, strict=False):
            self._fill(row, prefill)
        return rows

    def _fill(self, row: npt.NDArray[np.int64], prefill: Prefill) -> None:
        codes = prompt_codes(prefill.parts, self._lm.config)
        counts, factors = slot_values(prefill.sequence, self._lm.config.speech_rows)
        row[[Column.SLOT, Column.LENGTH, Column.TURN]] = prefill.sequence.slot, len(codes), Turn.DRAW
        row[Column.COUNTS : Column.FACTORS] = counts
        row[Column.FACTORS : Column.CODES] = factors.view(np.int32)
        row[Column.CODES : Column.CODES + len(codes)] = codes

    def _captured(self, shape: Shape) -> CapturedGraph[Tensor]:
        table = self._table(shape)
        slots, lengths, starts, turns = (
            table[:, column] for column in (Column.SLOT, Column.LENGTH, Column.START, Column.TURN)
        )
        counts = table[:, Column.COUNTS : Column.FACTORS]
        bits = table[:, Column.FACTORS : Column.CODES]
        codes = table[:, Column.CODES :]

        def prefill() -> Tensor:
            own, draws = slots.contiguous(), turns.contiguous()
            view = GatheredView(self._cache.data, own)
            logits = self._lm.prefill_codes(codes, lengths, starts, view)
            factors = bits.to(torch.int32).view(torch.float32)
            self._tables.begin(own, counts, factors, draws != Turn.IDLE)
            return self._draw(logits, own, draws, self._tables)

        self._reset(table)
        return self._capture(prefill)

    def _reset(self, table: Tensor) -> None:
        """Rows that change nothing: captured passes run."""
        table.zero_()
        table[:, Column.SLOT] = torch.arange(len(table), device=table.device)
        table[:, Column.LENGTH] = 1


def prompt_shapes(batch: int, max_len: int) -> Iterator[Shape]:
    """Of passes with up to ``batch`` prompts, each of the fewest rows first."""
    for rows in batch_buckets(batch):
        longest = min(max_len, PROMPT_SIZES[-1])
        for positions in sorted({min(size, longest) for size in PROMPT_SIZES}):
            if rows == 1 or rows * positions <= PREFILL_POSITIONS:
                yield Shape(rows, positions)

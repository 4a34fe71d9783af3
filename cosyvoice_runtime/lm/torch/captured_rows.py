"""Rows of attention of captured passes: how chosen heads share their attention among a sequence's text.

A row is computed behind a pass, from the queries that the pass keeps and from the keys in the cache, only
where it was asked for. So the pass is the same in either case.

A: sequences that ask for rows, D: head_dim, W: text tokens that a row has room for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from cosyvoice_runtime.gpu.buckets import bucket_for
from cosyvoice_runtime.gpu.transfer import Fetch, moved
from cosyvoice_runtime.lm.generation import Generation
from cosyvoice_runtime.lm.sampling import IntArray
from cosyvoice_runtime.lm.text_segment import MOST_TEXT
from cosyvoice_runtime.lm.torch.kept_queries import KeptQueries
from cosyvoice_runtime.lm.torch.kv_cache import KVCache

WIDTHS = (64, 128, MOST_TEXT)
"""Text tokens that rows have room for: enough for the longest text that asks."""
MOST_KNOWN = 32
"""The most lists of sequences that stay on the device, for the same ones ask in step after step."""
Asked = tuple[tuple[int, int, int, int], ...]
"""The values of each sequence that `ComputeRows` takes."""


class ComputeRows(Protocol):
    """Computes rows of attention behind a pass."""

    def __call__(self, kept: KeptQueries, cache: KVCache, asked: Tensor, rows: Tensor) -> None:
        """Write ``rows`` float16 ``[A, W]``, the mean over the heads, zeros behind the text.

        Args:
            asked: int32 ``[A, 4]``: place among the sequences of the pass, slot, first position of the
                text, and the position behind it, at most W further on.
        """


def text_rows_plain(kept: KeptQueries, cache: KVCache, asked: Tensor, rows: Tensor) -> None:
    """`ComputeRows` in plain PyTorch."""
    places, slots, first, end = asked.long().T
    page, depth = cache.data.shape[4:]
    positions = first[:, None] + torch.arange(rows.shape[1], device=rows.device)
    seen = positions < end[:, None]
    positions = torch.where(seen, positions, first[:, None])
    pages = cache.tables.read[slots].gather(1, positions // page).long()
    shared = kept.data.shape[2] // depth // cache.data.shape[3]
    total = torch.zeros(rows.shape, device=rows.device)
    for of_kept, layer, head in kept.placed:
        queries = kept.data[of_kept, places].unflatten(1, (-1, depth))[:, head]
        keys = cache.data[layer, 0][pages, head // shared, positions % page]
        scores = (keys.float() @ queries.float()[:, :, None])[:, :, 0] * math.log(2)
        total += scores.masked_fill(~seen, -torch.inf).softmax(dim=1)
    rows.copy_(total / len(kept.placed))


class RowsUnderWay:
    """Rows of a pass that was launched.

    Args:
        sequences: those that asked for rows, in the order of the rows.
    """

    def __init__(self, rows: Fetch, sequences: Sequence[Generation]) -> None:
        self._rows = rows
        self._sequences = sequences

    def tell(self, sequences: Iterable[Generation]) -> None:
        """Wait for the rows and give each to its sequence, if that is among these."""
        rows, wanted = self._rows.array().astype(np.float32), set(sequences)
        for sequence, row in zip(self._sequences, rows, strict=True):
            if sequence in wanted and sequence.rows is not None:
                text = sequence.rows.text
                sequence.rows.look(row[: text.stop - text.start])


class CapturedRows:
    """Launches rows behind the passes over a cache whose queries are kept.

    Args:
        compute: computes the rows; called at the start, so that its kernels are loaded then.
    """

    def __init__(self, cache: KVCache, kept: KeptQueries, compute: ComputeRows = text_rows_plain) -> None:
        self._cache = cache
        self._kept = kept
        self._compute = compute
        self._rows = torch.zeros(cache.slots * MOST_TEXT, dtype=torch.float16, device=cache.data.device)
        self._known: dict[Asked, tuple[Tensor, Tensor]] = {}
        first, _ = self._of(((0, 0, 0, 1),))
        for width in WIDTHS:
            compute(kept, cache, first, self._rows[:width].view(1, width))

    def behind(self, places: IntArray, sequences: Sequence[Generation]) -> RowsUnderWay | None:
        """Launch the rows of the latest pass without waiting; None if none of the sequences asks for any.

        Args:
            places: ``[n]`` of the sequences among those of the pass.
        """
        asking = [each for each in sequences if each.rows is not None]
        if not asking:
            return None
        asked = tuple(
            (place, each.slot, each.rows.text.start, each.rows.text.stop)
            for place, each in zip(places.tolist(), sequences, strict=True)
            if each.rows is not None
        )
        return RowsUnderWay(Fetch(self._launched(asked)), asking)

    def _launched(self, asked: Asked) -> Tensor:
        given, rows = self._of(asked)
        self._compute(self._kept, self._cache, given, rows)
        return rows

    def _of(self, asked: Asked) -> tuple[Tensor, Tensor]:
        """The list on the device, and the memory of its rows."""
        if asked not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            width = bucket_for(WIDTHS, max(end - first for _, _, first, end in asked))
            rows = self._rows[: len(asked) * width].view(len(asked), width)
            self._known[asked] = moved(torch.tensor(asked, dtype=torch.int32), rows.device), rows
        return self._known[asked]

"""Rows of attention of captured passes: how chosen heads share their attention among a sequence's text.

A row is computed behind a pass, from the queries that the pass keeps and from the keys in the cache, only
where it was asked for. So the pass is the same in either case. The device writes rows into memory of the
host, where they are once the ids of their pass have arrived: a launch is all that a pass costs.

B: sequences of a pass, W: text tokens that a row has room for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.gpu.buckets import bucket_for
from cosyvoice_runtime.gpu.transfer import move, moved, shared_with_host
from cosyvoice_runtime.lm.generation import Generation
from cosyvoice_runtime.lm.text_segment import MOST_TEXT
from cosyvoice_runtime.lm.torch.kept_queries import KeptQueries
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.slot_draws import SlotWork

WIDTHS = (64, 128, MOST_TEXT)
"""Text tokens that rows are computed for: enough for the longest text that asks."""
RING = 128
"""Rows of a slot that memory holds: that of a position overwrites the one so many positions before."""
UNREAD_PASSES = RING // 2
"""Passes after which all rows are read, taken or not. Some more passes are under way then."""


class ComputeRows(Protocol):
    """Computes rows of attention behind a pass."""

    def __call__(
        self, kept: KeptQueries, cache: KVCache, fed: Tensor, texts: Tensor, rows: Tensor, width: int
    ) -> None:
        """Write a row for each sequence that the pass draws for and that has a text, the mean over the heads.

        Args:
            fed: int64 ``[3, B]``: positions that the pass fed last, slots, and values of `SlotWork`. A slot
                that is idle fills up the pass: the row of its position may be that of an earlier pass.
            texts: int32 ``[slots, 2]``: first position of each slot's text, and the position behind it, at
                most ``width`` further on; equal where no row is asked for.
            rows: float16 ``[slots, RING, W]``; the row of a position is at its remainder by `RING`.
            width: of `WIDTHS`, up to W.
        """


def text_rows_plain(
    kept: KeptQueries, cache: KVCache, fed: Tensor, texts: Tensor, rows: Tensor, width: int
) -> None:
    """`ComputeRows` in plain PyTorch."""
    positions, slots, work = fed
    first, end = texts[slots].long().T
    asks = (first < end) & (work != SlotWork.IDLE)
    page, depth = cache.data.shape[4:]
    looked = first[:, None] + torch.arange(width, device=rows.device)
    seen = (looked < end[:, None]) | (looked == first[:, None])  # No row is empty: its softmax were none.
    looked = torch.where(seen, looked, first[:, None])
    pages = cache.tables.read[slots].gather(1, looked // page).long()
    shared = kept.data.shape[2] // depth // cache.data.shape[3]
    total = torch.zeros(len(slots), width, device=rows.device)
    for of_kept, layer, head in kept.placed:
        queries = kept.data[of_kept, : len(slots)].unflatten(1, (-1, depth))[:, head]
        keys = cache.data[layer, 0][pages, head // shared, looked % page]
        scores = (keys.float() @ queries.float()[:, :, None])[:, :, 0] * math.log(2)
        total += scores.masked_fill(~seen, -torch.inf).softmax(dim=1)
    places = slots, positions % RING
    old = rows[places]
    new = torch.cat([(total / len(kept.placed)).to(rows.dtype), old[:, width:]], dim=1)
    rows[places] = torch.where(asks[:, None], new, old)


class CapturedRows:
    """Computes rows behind the passes over a cache whose queries are kept.

    Args:
        compute: computes the rows; called at the start, so that its kernels are loaded then.
    """

    def __init__(self, cache: KVCache, kept: KeptQueries, compute: ComputeRows = text_rows_plain) -> None:
        self._cache = cache
        self._kept = kept
        self._compute = compute
        device = cache.data.device
        self._rows, self._on_host = shared_with_host((cache.slots, RING, MOST_TEXT), torch.float16, device)
        self._texts = torch.zeros(cache.slots, 2, dtype=torch.int32, device=device)
        self._changed = False
        self._followed: dict[int, SlotRows] = {}
        self._width = WIDTHS[0]
        self._passes = 0
        none = torch.zeros(3, 1, dtype=torch.int64, device=device)
        for width in WIDTHS:
            compute(kept, cache, none, self._texts, self._rows, width)

    def follow(self, sequence: Generation, text: slice) -> SlotRows | None:
        """Compute rows for a sequence that has a slot and has not been fed yet, until they are closed; none
        for a text that they have no room for."""
        if text.stop - text.start > MOST_TEXT:
            return None
        first = sequence.unfed_prompt - 1  # The last position of the prompt looks for the first token.
        rows = SlotRows(self, self._on_host[sequence.slot], sequence, text, first)
        self._followed[sequence.slot] = rows
        self._changed = True
        return rows

    def leave(self, slot: int) -> None:
        """Compute no more rows for a slot."""
        del self._followed[slot]
        self._changed = True

    def behind_step(self, fed: Tensor) -> None:
        """Launch the rows of the latest pass, a step, without waiting.

        Args:
            fed: as `ComputeRows` has it.
        """
        if self._followed:
            self._launch(fed)

    def behind_prompts(self, sequences: Sequence[Generation], ends: Sequence[int]) -> None:
        """Launch the rows of the latest pass, which fed prompts, without waiting.

        Args:
            ends: positions of each sequence behind the pass.
        """
        if any(each.rows is not None for each in sequences):
            slots, work = [each.slot for each in sequences], [int(SlotWork.DRAW)] * len(ends)
            fed = torch.tensor([[end - 1 for end in ends], slots, work])
            self._launch(moved(fed, self._rows.device))

    def _launch(self, fed: Tensor) -> None:
        if self._changed:
            self._changed = False
            self._send_texts()
        self._passes += 1
        if self._passes % UNREAD_PASSES == 0:
            for rows in self._followed.values():
                rows.read()
        self._compute(self._kept, self._cache, fed, self._texts, self._rows, self._width)

    def _send_texts(self) -> None:
        texts = np.zeros(self._texts.shape, np.int32)
        for slot, rows in self._followed.items():
            texts[slot] = rows.text.start, rows.text.stop
        self._width = bucket_for(WIDTHS, int((texts[:, 1] - texts[:, 0]).max()))
        move(torch.from_numpy(texts), self._texts)


class SlotRows:
    """`TextRows` of a sequence that rows are computed for.

    Args:
        of_slot: float16 ``[RING, W]``, which the device writes.
        text: positions of the text in the cache.
        first: the position whose row is that of the first token.
    """

    def __init__(
        self,
        rows: CapturedRows,
        of_slot: npt.NDArray[np.float16],
        sequence: Generation,
        text: slice,
        first: int,
    ) -> None:
        self.text = text
        self._all = rows
        self._of_slot = of_slot
        self._slot, self._tokens = sequence.slot, sequence.tokens
        self._first = self._next = first
        self._read: list[Floats] = [np.zeros((0, text.stop - text.start), np.float32)]

    def read(self) -> None:
        """Copy the rows of all tokens drawn so far, before others overwrite them."""
        end = self._first + len(self._tokens)
        if end > self._next:
            places = np.arange(self._next, end) % RING
            self._read.append(self._of_slot[places, : self.text.stop - self.text.start].astype(np.float32))
            self._next = end

    def take(self, count: int) -> Floats:
        """As `TextRows` does."""
        if self._slot >= 0:
            self.read()
        rows = np.concatenate(self._read)
        self._read = [rows[count:]]
        return rows[:count]

    def close(self) -> None:
        """As `TextRows` does."""
        self.read()
        self._all.leave(self._slot)
        self._slot = -1

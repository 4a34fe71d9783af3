"""Keys and values of the speech LM on a device, and the pages of a pass's sequences.

B: sequences of a pass, T: positions fed to each, span: cache positions that are attended to, W: most pages of
a slot, D: head_dim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cosyvoice_runtime.arrays import Ids
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.flow.page_store import FIRST_PAGE, WASTE_PAGE
from cosyvoice_runtime.gpu.transfer import integers, move, untouched_zeros
from cosyvoice_runtime.lm.cache import CachePool, CacheSlots
from cosyvoice_runtime.lm.torch.kept_queries import KeptQueries


def cache_bytes(config: SpeechLMConfig, slots: int, max_len: int, dtype: torch.dtype) -> int:
    """Memory of a cache with these dimensions (12,288 bytes per position at full size in bfloat16)."""
    values = config.num_layers * 2 * slots * config.num_kv_heads * max_len * config.head_dim
    return values * dtype.itemsize


class PageTables(NamedTuple):
    """Pages of each slot in the order of its positions, both [slots, W] int32.

    Where a slot has no page, ``read`` names a page of zeros, and ``written`` one that is never read.
    ``adapters`` [slots] int32 has the number of each slot's adapter; None in passes without adapters.
    """

    read: Tensor
    written: Tensor
    adapters: Tensor | None = None

    def rows(self, slots: slice | Tensor) -> PageTables:
        adapters = None if self.adapters is None else self.adapters[slots]
        return PageTables(self.read[slots], self.written[slots], adapters)


@dataclass(frozen=True, eq=False)
class LayerPages:
    """One layer of the cache, and the pages of a pass's slots.

    Attributes:
        keys, values: ``[pages, kv_heads, positions of a page, D]`` of the cache.
        tables: pages of the slots, ``[B, W]``.
    """

    keys: Tensor
    values: Tensor
    tables: PageTables

    @property
    def page(self) -> int:
        """Positions of a page."""
        return self.keys.shape[2]


@dataclass(frozen=True, eq=False)
class CacheLayer(LayerPages):
    """One layer of the S slots that a step feeds; ``positions [S]`` int64 are those of the tokens."""

    positions: Tensor


@dataclass(frozen=True, eq=False)
class PromptPages(LayerPages):
    """One layer of the slots that prompts are fed to, and the positions that are fed.

    Attributes:
        starts: ``[B]`` int64, position of each prompt's first code; they may lie apart, as lengths may.
        lengths: ``[B]`` int64, at least 1; what lies behind them is padding.
        max_len: most positions of a slot.
    """

    starts: Tensor
    lengths: Tensor
    max_len: int


class PassPages:
    """Pages that a pass writes and reads, the same for all layers.

    Args:
        data: as `KVCache.data`.
        pages, rows: int64, broadcast to [B, T]: page of each position that is fed, and its row in it.
        seen: [B, pages of the span] int32.
    """

    def __init__(self, data: Tensor, pages: Tensor, rows: Tensor, seen: Tensor, span: int) -> None:
        self._data = data
        self._pages, self._rows = pages, rows
        self._seen, self._span = seen, span

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store keys and values [B, T, kv_heads, D] of the positions that are fed."""
        self._data[layer, 0][self._pages, :, self._rows] = keys
        self._data[layer, 1][self._pages, :, self._rows] = values

    def read(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values [B, kv_heads, span, D] of the first positions, copied from their pages."""
        found = self._data[layer][:, :, :, : self._span].transpose(1, 2).index_select(2, self._seen.flatten())
        found = found.unflatten(2, self._seen.shape).flatten(3, 4)[:, :, :, : self._span]
        keys, values = found.transpose(1, 2)
        return keys, values


class WholePassPages(PassPages):
    """Pages of consecutive slots that have one each."""

    def read(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values as `PassPages.read` gives them, without a copy."""
        keys, values = self._data[layer, :, :, :, : self._span]
        return keys, values


class CacheView:
    """Slots of a cache, in any order; sequence ``b`` of a batch lives in the pages of row ``b``.

    Attributes:
        data: as `KVCache.data`.
        tables: [B, W] of these slots.
        max_len: most positions of a slot.
        kept: keeps queries of each pass; None where no rows of attention follow.
    """

    def __init__(
        self, data: Tensor, tables: PageTables, max_len: int, kept: KeptQueries | None = None
    ) -> None:
        self.data = data
        self.tables = tables
        self.max_len = max_len
        self.kept = kept

    def at(self, positions: Tensor, span: int | None) -> PassPages:
        """The pages of a pass; can be captured.

        Args:
            positions: [B, T] int64, positions that are fed.
            span: number of positions that are read; None for none.
        """
        page, span = self.data.shape[4], span or 0
        pages = self.tables.written.gather(1, positions // page).long()
        return PassPages(self.data, pages, positions % page, self.tables.read[:, : -(-span // page)], span)


class WholeView(CacheView):
    """Consecutive slots, from ``first`` on, whose pages are their own."""

    def __init__(
        self, data: Tensor, tables: PageTables, max_len: int, kept: KeptQueries | None, first: int
    ) -> None:
        super().__init__(data, tables, max_len, kept)
        self._own = data[:, :, first : first + len(tables.read)]

    def at(self, positions: Tensor, span: int | None) -> PassPages:
        # Made in each pass: the memory of a tensor that one capture makes is not kept for the others.
        slots = torch.arange(len(positions), device=positions.device)[:, None]
        return WholePassPages(self._own, slots, positions, self.tables.read, span or 0)


class KVCache(CacheSlots):
    """Slots on a device, each with a page of ``max_len`` positions of its own.

    On a CPU the system assigns memory when it is first written.

    Attributes:
        data: [layers, 2, pages, kv_heads, positions of a page, head_dim], keys then values.
        tables: page tables on the device.
        kept: as of its views.
    """

    tables: PageTables
    kept: KeptQueries | None = None
    _told: Ids

    def __init__(
        self,
        config: SpeechLMConfig,
        slots: int,
        max_len: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(slots, max_len)
        own = torch.arange(slots, dtype=torch.int32, device=device)[:, None]
        self._allocate(config, slots, device, dtype, PageTables(own, own))

    @property
    def bytes(self) -> int:
        return self.data.nbytes

    def serve_adapters(self) -> None:
        """Let passes know the adapter of each slot; called before there is any view."""
        numbers = torch.zeros(self.slots, dtype=torch.int32, device=self.data.device)
        self.tables = self.tables._replace(adapters=numbers)

    def keep_queries(self, config: SpeechLMConfig, heads: Sequence[tuple[int, int]]) -> None:
        """Let passes keep the queries of these heads, layer and head of each; called before there is any
        view."""
        self.kept = KeptQueries(config, heads, self.slots, self.data.device, self.data.dtype)

    @property
    def kinds(self) -> tuple[bool, ...]:
        """Whether passes have adapters: without, and where the checkpoint has some also with them."""
        return (False,) if self.tables.adapters is None else (True, False)

    @property
    def adapted(self) -> bool:
        """Whether the sequence of any slot has an adapter."""
        return bool(self.adapters.any())

    def prepare(self) -> None:
        """Tell the device before each pass which adapters slots have, and which pages; here the latter never
        change."""
        if self.tables.adapters is not None and not np.array_equal(self.adapters, self._told):
            self._told = self.adapters.copy()
            move(torch.from_numpy(self._told), self.tables.adapters)

    def wipe(self, slot: int) -> None:
        self.data[:, :, slot].zero_()

    def view(self, start: int, stop: int, adapted: bool = True) -> CacheView:
        """Slots ``start`` to ``stop`` (exclusive), sharing this cache's memory, with their adapters or
        without."""
        key = start, stop, adapted
        if key not in self._views:
            tables = self.tables if adapted else self.tables._replace(adapters=None)
            self._views[key] = self._viewed(start, tables.rows(slice(start, stop)))
        return self._views[key]

    def gathered(self, slots: Tensor, adapted: bool = True) -> CacheView:
        """A view of these slots [B] int64, which copies their tables and, in plain passes, what is read."""
        tables = self.tables if adapted else self.tables._replace(adapters=None)
        return CacheView(self.data, tables.rows(slots), self.max_len, self.kept)

    def _viewed(self, start: int, tables: PageTables) -> CacheView:
        return WholeView(self.data, tables, self.max_len, self.kept, start)

    def _allocate(
        self,
        config: SpeechLMConfig,
        pages: int,
        device: torch.device | str,
        dtype: torch.dtype,
        tables: PageTables,
    ) -> None:
        shape = (config.num_layers, 2, pages, config.num_kv_heads, self.pages.page, config.head_dim)
        # Zeros, not empty: attention weighs a masked position by 0, and 0 * nan is nan.
        self.data = untouched_zeros(*shape, device=device, dtype=dtype)
        self.tables = tables
        self._told = np.zeros_like(self.adapters)
        self._views: dict[tuple[int, int, bool], CacheView] = {}


class PagedKVCache(KVCache):
    """Slots on a device that share pages. A page that was given back is zeroed before a pass reads it
    again."""

    def __init__(
        self,
        config: SpeechLMConfig,
        slots: int,
        max_len: int,
        pool: CachePool,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        CacheSlots.__init__(self, slots, max_len, pool)  # KVCache's own gives each slot its own page.
        self._both = torch.empty(2, *self.pages.table.shape, dtype=torch.int32, device=device)
        self._allocate(config, FIRST_PAGE + pool.pages, device, dtype, PageTables(*self._both))
        self.prepare()

    def prepare(self) -> None:
        super().prepare()
        self.tidy()
        if self.pages.changed:
            self.pages.changed = False
            table = self.pages.table
            both = torch.from_numpy(np.stack([table, np.maximum(table, WASTE_PAGE)]))
            move(both, self._both)

    def tidy(self) -> None:
        """Zero pages that were given back: NaN would reach their next owner, even behind a mask."""
        returned = self.pages.take_returned()
        if returned:
            self.data.index_fill_(2, integers(returned, self.data.device), 0)

    def wipe(self, slot: int) -> None:
        """Do nothing: `prepare` zeroes all pages that were given back."""

    def _viewed(self, start: int, tables: PageTables) -> CacheView:  # noqa: ARG002
        return CacheView(self.data, tables, self.max_len, self.kept)

"""One layer of the speech LM's cache, and the pages of it that a pass's slots have."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from cosyvoice_runtime.lm.torch.kv_cache import PageTables


@dataclass(frozen=True, eq=False)
class LayerPages:
    """
    Attributes:
        keys, values: ``[pages, kv_heads, positions of a page, D]`` of the cache.
        tables: of the slots, ``[B, W]``.
    """

    keys: Tensor
    values: Tensor
    tables: PageTables

    @property
    def page(self) -> int:
        """Positions of a page."""
        return self.keys.shape[2]

    def gathered(self) -> tuple[Tensor, Tensor]:
        """Keys and values float32 ``[B, kv_heads, W * positions of a page, D]``, for the kernels' twins."""
        pages = self.tables.read.long()
        keys, values = (
            part[pages].float().transpose(1, 2).flatten(2, 3) for part in (self.keys, self.values)
        )
        return keys, values

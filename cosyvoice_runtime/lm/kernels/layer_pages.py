"""One layer of the speech LM's cache with the pages of a pass's slots, and the rotation of positions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cosyvoice_runtime.lm.torch.kv_cache import PageTables


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
    """One layer of the S slots that a step feeds, and the positions that are fed.

    Attributes:
        positions: ``[S]`` int64, position of the token that is fed.
    """

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


@dataclass(frozen=True, eq=False)
class RotaryTable:
    """Cosines and sines float32 ``[max_len, D / 2]`` of every position."""

    cosines: Tensor
    sines: Tensor

    @classmethod
    def of(cls, max_len: int, head_dim: int, theta: float, device: torch.device) -> RotaryTable:
        exponents = torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim
        angles = torch.arange(max_len, device=device)[:, None].float() * (1.0 / theta**exponents)
        return cls(angles.cos(), angles.sin())

"""A past held in whole tensors, as the graphs take it; for comparing the two."""

from __future__ import annotations

import torch
from torch import Tensor

from cosyvoice_runtime.flow.page_store import PastLayout, Tail


class DensePast:
    """Random frames before the input; keeps what the network makes of the input for the frames after it.

    Args:
        unused: of the first row's frames, those that only fill it up.
    """

    relative = None

    def __init__(
        self, layout: PastLayout, rows: int, frames: int, ends: list[int], seed: int, unused: int = 0
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        shape = (layout.attentions, rows, frames, layout.heads, layout.head_dim)
        self.keys, self.values = (torch.randn(shape, generator=generator) for _ in range(2))
        self.tails = torch.randn(rows, layout.tail_size, generator=generator)
        self.new_tails = torch.zeros_like(self.tails)
        self.new_keys: list[Tensor] = []
        self.new_values: list[Tensor] = []
        self._ends = ends
        self.starts = torch.full((rows,), frames)
        self.starts[0] -= unused

    def extend(self, tail: Tail, x: Tensor) -> Tensor:
        place = slice(tail.offset, tail.offset + tail.size)
        extended = torch.cat([self.tails[:, place].unflatten(1, (tail.frames, tail.channels)), x], dim=1)
        for row, end in enumerate(self._ends):
            self.new_tails[row, place] = extended[row, end : end + tail.frames].flatten()
        return extended

    def keys_values(self, attention: int, new: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = new.unbind(2)
        self.new_keys.append(keys)
        self.new_values.append(values)
        before = self.keys[attention], self.values[attention]
        all_keys, all_values = (torch.cat(pair, 1) for pair in zip(before, (keys, values), strict=True))
        return all_keys, all_values

    def inputs(self, prefix: str = "") -> dict[str, Tensor]:
        return {f"{prefix}{name}": getattr(self, name) for name in ("keys", "values", "tails")}

    def outputs(self, prefix: str = "") -> dict[str, Tensor]:
        """What the graph must hand on."""
        return {
            f"new_{prefix}keys": torch.stack(self.new_keys),
            f"new_{prefix}values": torch.stack(self.new_values),
            f"new_{prefix}tails": self.new_tails,
        }

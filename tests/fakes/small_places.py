"""Random pages, tables and tails for rows of different pasts and lengths."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from cosyvoice_runtime.flow.torch.call_pages import Places, coded, decoded

STEPS = 2
ATTENTIONS = 3


def random_places(
    before: list[int],
    lengths: list[int],
    *,
    page_frames: int = 6,
    heads: int = 2,
    head_dim: int = 16,
    tail_size: int = 0,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    attentions: int = ATTENTIONS,
    steps: int = STEPS,
    eight_bits: bool = False,
) -> Places:
    """An utterance for each of ``before`` (finished pages) and ``lengths`` (new frames), in any order."""
    generator = torch.Generator().manual_seed(sum(before) + sum(lengths))
    utterances, most, frames = len(before), max(before), max(lengths)
    blocks = -(-frames // page_frames)
    total = 2 + utterances * (most + blocks)
    order = 2 + torch.randperm(total - 2, generator=generator).view(utterances, most + blocks)
    for row, count in enumerate(before):
        order[row, : most - count] = 0
    place = torch.arange(frames)
    page = order[:, most:][:, place // page_frames]
    page = torch.where(place < torch.tensor(lengths)[:, None], page, 1)

    def flattened(pages: torch.Tensor) -> torch.Tensor:
        return torch.cat([(pages * 2 + row) * steps for row in range(2)]).to(device)

    tail_shape = (2 * utterances, steps, tail_size)
    shape = total * 2 * steps, attentions, page_frames, 2, heads, head_dim
    pages, scales = torch.randn(shape, generator=generator).to(device, dtype), None
    if eight_bits:
        pages, scales = coded(pages)
        scales = scales.permute(0, 1, 3, 4, 2).contiguous()
    return Places(
        pages=pages,
        scales=scales,
        table=flattened(order),
        page=flattened(page),
        frame=(place % page_frames).to(device),
        before=most,
        unused=torch.tensor([most - count for count in before], device=device),
        lengths=torch.tensor(lengths, device=device),
        tails=torch.randn(tail_shape, generator=generator).to(device, dtype),
        new_tails=torch.full(tail_shape, torch.nan, dtype=dtype, device=device),
        tails_to=flattened(order[:, -1]) // steps,
    )


def two(places: Places) -> tuple[Places, Places]:
    """The same places twice, for two ways to write into them."""
    scales = None if places.scales is None else places.scales.clone()
    other = dataclasses.replace(
        places, pages=places.pages.clone(), scales=scales, new_tails=places.new_tails.clone()
    )
    return places, other


def frames_of(places: Places) -> int:
    """Of all rows."""
    return places.rows * places.new_frames


def kept(places: Places, first: int = 0) -> Tensor:
    """Keys and values in pages from ``first`` on, float32 ``[pages, A, frames, 2, H, D]``."""
    pages = places.pages[first:]
    if places.scales is None:
        return pages.float()
    return decoded(pages, places.scales[first:].permute(0, 1, 4, 2, 3), torch.float32)


def same(actual: Tensor, expected: Tensor) -> None:
    """Within rounding of float32; NaN where nothing is to be written."""
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=2e-5, equal_nan=True)

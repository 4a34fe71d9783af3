"""Embedding of prompts, and its norm for the first product."""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.gpu.kernels.launch import launched, next_power_of_2

WARPS = 4
"""For a position's channels, which one program takes."""


@dataclass(frozen=True, eq=False)
class CodeTables:
    """Embedding tables ``[rows, C]`` of one type, whose rows `prompt_codes` counts through in this order."""

    text: Tensor
    control: Tensor
    speech: Tensor

    @property
    def control_from(self) -> int:
        """The code of the first row of the control table."""
        return len(self.text)

    @property
    def speech_from(self) -> int:
        return self.control_from + len(self.control)


@triton.jit
def store_normed(new, gain, at, inside, x, normed, CHANNELS: tl.constexpr, EPS: tl.constexpr):
    """Store the residual ``new`` of one position, zeros where not inside, and its RMSNorm."""
    scale = tl.rsqrt(tl.sum(new * new, axis=0) / CHANNELS + EPS)
    tl.store(x + at, new, mask=inside)
    tl.store(normed + at, (new * scale * gain.to(tl.float32)).to(normed.dtype.element_ty), mask=inside)


@launched
@triton.jit(do_not_specialize=["positions", "codes_stride", "control_from", "speech_from"])
def _prefill_embed(
    codes, text, control, speech, gain, x, normed, positions, codes_stride, control_from, speech_from,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    t, b = tl.program_id(0), tl.program_id(1)
    c = tl.arange(0, BLOCK)
    inside = c < CHANNELS
    code = tl.load(codes + b * codes_stride + t)
    # One of three is loaded, and added to zeros.
    is_text, is_speech = code < control_from, code >= speech_from
    is_control = (code >= control_from) & (code < speech_from)
    row = tl.load(text + code * CHANNELS + c, mask=inside & is_text, other=0.0).to(tl.float32)
    place = (code - control_from) * CHANNELS + c
    row += tl.load(control + place, mask=inside & is_control, other=0.0).to(tl.float32)
    place = (code - speech_from) * CHANNELS + c
    row += tl.load(speech + place, mask=inside & is_speech, other=0.0).to(tl.float32)
    g = tl.load(gain + c, mask=inside, other=0.0)
    store_normed(row, g, (b * positions + t) * CHANNELS + c, inside, x, normed, CHANNELS, EPS)


def prefill_embed(
    codes: Tensor, tables: CodeTables, gain: Tensor, epsilon: float, x: Tensor, normed: Tensor
) -> None:
    """
    Args:
        codes: ``[B, T]`` int64, `prompt_codes`; rows may be further apart.
        gain: ``[C]`` of the norm that comes next.
        x: float32 ``[B * T, C]`` the residual, written.
        normed: ``[B * T, C]``, written, in the type of products.
    """
    (batch, positions), channels = codes.shape, x.shape[1]
    _prefill_embed[(positions, batch)](
        codes, tables.text, tables.control, tables.speech, gain, x, normed,
        positions, codes.stride(0), tables.control_from, tables.speech_from,
        channels, epsilon, next_power_of_2(channels), num_warps=WARPS,
    )  # fmt: skip

"""Calls of the vocoder on torch as tests make them: states, chunks of mel, whole mels at another speed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyvoice_runtime.audio.audio import check_speed
from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.vocoder.state import UtteranceNoise, VocoderState
from cosyvoice_runtime.vocoder.torch import HiFT, HiFTStream
from cosyvoice_runtime.vocoder.torch.window_memory import carry_layout
from cosyvoice_runtime.vocoder.torch.windows import GraphedWindows


def change_speed(mel: Tensor, speed: float) -> Tensor:
    """Mel [B, bins, T] of a whole utterance, linearly interpolated to int(T / speed) frames (at least one).

    Raises:
        InvalidInput: a speed outside 0.5 to 2.0.
    """
    check_speed(speed)
    if speed == 1:
        return mel
    return F.interpolate(mel, size=max(1, int(mel.shape[-1] / speed)), mode="linear")


def open_state(
    config: VocoderConfig,
    noise: UtteranceNoise | None = None,
    lookahead: int | None = None,
    device: torch.device | str = "cpu",
) -> VocoderState:
    """Start of an utterance on a device."""
    return VocoderState(config, carry_layout(config, torch.device(device)).start, noise, lookahead)


def stream(
    hift: HiFT,
    states: Sequence[VocoderState],
    mels: Sequence[Tensor],
    last: Sequence[bool],
    graphs: GraphedWindows | None = None,
) -> list[Tensor]:
    """Take the next mel of each utterance; its next samples, as tensors of the host."""
    waves = HiFTStream(hift, graphs).advance(states, mels, last)
    return [torch.from_numpy(wave.array()) for wave in waves]

"""What a window leaves to the next one."""

from __future__ import annotations

import torch

from small_hift import OTHER, random_mel, small_hift, whole
from vocoder_calls import open_state, stream


def test_a_decoder_in_float32_leaves_the_mel_that_waits_as_it_was():
    """Its type is the mel's own, and it clears what lies beyond a row's end."""
    hift, mels = small_hift(OTHER, torch.float32), [random_mel(60, seed, OTHER) for seed in range(2)]
    states = [open_state(OTHER) for _ in mels]
    parts = zip(mels[0].split([25, 20, 15], dim=1), mels[1].split([18, 25, 17], dim=1), strict=True)
    waves = [
        stream(hift, states, part, [last] * 2) for part, last in zip(parts, (False, False, True), strict=True)
    ]
    for mel, row in zip(mels, zip(*waves, strict=True), strict=True):
        torch.testing.assert_close(torch.cat(row), whole(hift, mel), atol=1e-4, rtol=0)

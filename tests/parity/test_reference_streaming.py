"""The reference's own streaming behaves as its description says."""

from itertools import islice

import pytest
import torch
from reference_streaming import ReferenceVocoder, chunk_ends, single_precision_source, vocode

from small_hift import PUBLISHED, random_mel, small_hift

HOP = PUBLISHED.hop
HELD = 8 * HOP


def test_single_chunk_is_the_whole_utterance() -> None:
    hift, mel = small_hift(), random_mel(20)[None]
    noise = torch.randn(1, 20 * HOP, PUBLISHED.num_harmonics + 1)
    found = ReferenceVocoder(hift).next(mel, is_last=True, noise=noise)
    assert torch.equal(found, vocode(hift, mel, noise)[0])
    assert (found - hift(mel, hift.m_source.merge_noise(noise))).abs().max() < 1e-3


def test_single_precision_source_drifts_slowly() -> None:
    hift, f0 = small_hift(), torch.full((1, 500), 220.0, dtype=torch.float64)
    drift = (single_precision_source(hift, f0) - hift.source(f0)).abs().view(500, HOP).amax(1)
    assert drift[:10].max() < 1e-4
    assert drift[:10].max() < drift[-10:].max() < 1e-2


def test_last_frames_are_said_again_and_cross_faded() -> None:
    hift, mel = small_hift(), random_mel(50)[None]
    vocoder = ReferenceVocoder(hift)
    first = vocoder.next(mel[..., :30], is_last=False)
    second = vocoder.next(mel[..., 30:], is_last=True)
    assert first.shape == (1, 22 * HOP)
    assert second.shape == (1, 28 * HOP)
    held = vocode(hift, mel[..., :30])[0][:, -HELD:]
    again = single_precision_source(hift, hift.f0(mel[..., 22:]))
    again[:, :HELD] = single_precision_source(hift, hift.f0(mel[..., :30]))[:, -HELD:]
    fresh = hift.decode(mel[..., 22:], again)
    window = torch.hamming_window(2 * HELD, periodic=False, dtype=torch.float64)
    expected = fresh[:, :HELD] * window[:HELD] + held * window[HELD:]
    torch.testing.assert_close(second[:, :HELD], expected.float())
    assert torch.equal(second[:, HELD:], fresh[:, HELD:])


@pytest.mark.parametrize(
    ("prompt_tokens", "ends"),
    [(0, [25, 75, 175, 275]), (1, [49, 99, 199, 299]), (24, [26, 76, 176, 276]), (50, [25, 75, 175, 275])],
)
def test_hops_double_after_one_that_fills_the_prompts_last_block(prompt_tokens: int, ends: list[int]) -> None:
    assert list(islice(chunk_ends(prompt_tokens), 4)) == ends

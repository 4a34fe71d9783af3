"""Streaming: any chunking, any batch, bounded memory."""

from itertools import zip_longest

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.vocoder.torch import context, source_noise
from examples import examples
from small_hift import CONFIGS, OTHER, PUBLISHED, random_mel, small_hift, streamed, whole
from vocoder_calls import open_state, stream

ROUNDING = 1e-7
"""Of the float32 waveform, where the decoder is float64."""

EXACT = context(PUBLISHED).lookahead
SIZES = st.lists(st.integers(0, 20), min_size=1, max_size=4).filter(any)


@settings(max_examples=examples(15, fresh=60))
@given(sizes=SIZES)
def test_any_chunking_equals_the_whole_utterance(sizes: list[int]) -> None:
    hift, mel = small_hift(OTHER), random_mel(sum(sizes), config=OTHER)
    state = open_state(OTHER, source_noise(1, OTHER.hop))
    found = torch.cat(streamed(hift, state, mel, sizes))
    torch.testing.assert_close(found, whole(hift, mel, seed=1), atol=ROUNDING, rtol=0)


@settings(max_examples=examples(12, fresh=60))
@given(utterances=st.lists(SIZES, min_size=2, max_size=4))
def test_batch_row_equals_single_run_at_any_position(utterances: list[list[int]]) -> None:
    hift = small_hift(OTHER)
    mels = [random_mel(sum(sizes), seed, OTHER) for seed, sizes in enumerate(utterances)]
    found = _streamed_together(mels, utterances)
    for seed, mel in enumerate(mels):
        expected = whole(hift, mel, seed)
        torch.testing.assert_close(torch.cat(found[seed]), expected, atol=ROUNDING, rtol=0)


def _streamed_together(mels: list[torch.Tensor], utterances: list[list[int]]) -> list[list[torch.Tensor]]:
    """All utterances in lockstep; a shorter one leaves the batch when it has ended."""
    states = [open_state(OTHER, source_noise(seed, OTHER.hop)) for seed in range(len(mels))]
    chunks = [mel.split(sizes, dim=1) for mel, sizes in zip(mels, utterances, strict=True)]
    found: list[list[torch.Tensor]] = [[] for _ in mels]
    for step, parts in enumerate(zip_longest(*chunks)):
        live = [row for row, part in enumerate(parts) if part is not None]
        last = [step == len(chunks[row]) - 1 for row in live]
        waves = stream(small_hift(OTHER), [states[row] for row in live], [parts[row] for row in live], last)
        for row, wave in zip(live, waves, strict=True):
            found[row].append(wave)
    return found


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, ROUNDING), (torch.float32, 1e-5)])
def test_practical_chunks_equal_the_whole_utterance(dtype: torch.dtype, tolerance: float) -> None:
    hift, mel = small_hift(dtype=dtype), random_mel(121)
    found = streamed(hift, open_state(PUBLISHED, source_noise(1, PUBLISHED.hop)), mel, [20, 50, 50, 1])
    assert [len(wave) // PUBLISHED.hop for wave in found] == [0, 70 - EXACT, 50, EXACT + 1]
    torch.testing.assert_close(torch.cat(found), whole(hift, mel, seed=1), atol=tolerance, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_streams_every_sample(dtype: torch.dtype) -> None:
    hift = small_hift(dtype=dtype)
    found = streamed(hift, open_state(PUBLISHED), random_mel(30), [25, 5])
    assert sum(map(len, found)) == 30 * PUBLISHED.hop
    assert torch.cat(found).isfinite().all()


def test_empty_last_chunk_flushes_the_rest() -> None:
    hift, mel = small_hift(), random_mel(30)
    found = streamed(hift, open_state(PUBLISHED), mel, [30, 0])
    assert len(found[1]) == EXACT * PUBLISHED.hop
    torch.testing.assert_close(torch.cat(found), whole(hift, mel), atol=ROUNDING, rtol=0)


def test_utterance_without_mel_is_silent() -> None:
    assert stream(small_hift(), [open_state(PUBLISHED)], [random_mel(0)], [True])[0].shape == (0,)


def test_state_does_not_grow() -> None:
    hift, state, sizes = small_hift(), open_state(PUBLISHED, source_noise(0, PUBLISHED.hop)), []
    for _ in range(5):
        stream(hift, [state], [random_mel(40)], [False])
        sizes.append(state.nbytes)
    assert sizes[1:] == sizes[1:2] * 4
    assert state.carried.flat.untyped_storage().nbytes() <= state.nbytes


def test_ended_utterance_takes_no_more_mel() -> None:
    state = open_state(PUBLISHED)
    stream(small_hift(), [state], [random_mel(3)], [True])
    with pytest.raises(ValueError, match="last chunk"):
        stream(small_hift(), [state], [random_mel(3)], [False])


def test_refused_chunk_leaves_its_neighbours_untouched() -> None:
    states = [open_state(PUBLISHED), open_state(PUBLISHED)]
    with pytest.raises(ValueError, match=r"expected \(80, frames\)"):
        stream(small_hift(), states, [random_mel(30), torch.zeros(79, 30)], [False, False])
    assert states[0].received == 0


@pytest.mark.parametrize("lookahead", [-1, EXACT + 1])
def test_lookahead_outside_its_bounds_is_refused(lookahead: int) -> None:
    with pytest.raises(InvalidInput, match=f"from 0 to {EXACT}"):
        open_state(PUBLISHED, lookahead=lookahead)


@pytest.mark.parametrize("lookahead", [0, 1, 6, 12])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_short_lookahead_loses_no_sample(config: VocoderConfig, lookahead: int) -> None:
    lookahead = min(lookahead, context(config).lookahead)
    mel = random_mel(41, config=config)
    found = streamed(small_hift(config), open_state(config, lookahead=lookahead), mel, [20, 10, 1, 10])
    assert len(found[0]) == (20 - lookahead) * config.hop
    assert sum(map(len, found)) == 41 * config.hop
    assert torch.cat(found).isfinite().all()


@pytest.mark.parametrize("lookahead", [0, 6, 12])
def test_short_lookahead_joins_without_a_step(lookahead: int) -> None:
    hift, state = small_hift(), open_state(PUBLISHED, lookahead=lookahead)
    stream(hift, [state], [random_mel(30)], [False])
    expected, carried = state.continuation, state.carried
    samples = stream(hift, [state], [random_mel(30, seed=1)], [False])[0]
    assert expected is not None
    assert samples[0] == expected.array()[0]
    assert carried.f0 > 0
    assert carried.cycles.any()


def test_f0_lookahead_keeps_the_phase_of_the_whole_utterance() -> None:
    hift, mel = small_hift(), random_mel(60)
    state = open_state(PUBLISHED, lookahead=context(PUBLISHED).f0_lookahead)
    streamed_source = []
    for chunk in mel.split(20, dim=1):
        stream(hift, [state], [chunk], [False])
        past = min(state.emitted, state.context.left)
        streamed_source.append(state.carried.source[: past * PUBLISHED.hop])
    expected = hift.source(hift.f0(mel[None]))[0]
    end = state.emitted * PUBLISHED.hop
    assert torch.equal(streamed_source[-1], expected[end - len(streamed_source[-1]) : end])


def test_lookahead_may_grow_after_the_first_chunk() -> None:
    hift, mel = small_hift(), random_mel(100)
    state = open_state(PUBLISHED, lookahead=12)
    first = stream(hift, [state], [mel[:, :20]], [False])[0]
    state.lookahead = EXACT
    rest = streamed(hift, state, mel[:, 20:], [50, 30])
    expected = whole(hift, mel)
    assert len(first) == 8 * PUBLISHED.hop
    settled = 9 * PUBLISHED.hop
    found = torch.cat([first, *rest])
    torch.testing.assert_close(found[settled:], expected[settled:], atol=ROUNDING, rtol=0)

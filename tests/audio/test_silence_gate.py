"""The gate that leaves out the silence of an answer, against its rule applied to the whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.audio.silence import AUDIBLE_RMS, SilenceGate, check_trim
from cosyvoice_runtime.errors import InvalidInput

RATES = (22_050, 24_000)
LOUDNESS = (0.0, 1e-3, 0.9 * AUDIBLE_RMS, 1.1 * AUDIBLE_RMS, 0.1)
PARTS = st.lists(st.tuples(st.integers(0, 3000), st.sampled_from(LOUDNESS)), min_size=1, max_size=8)
CUTS = st.lists(st.floats(0, 1), max_size=12)


def noise(parts: list[tuple[int, float]], offset: float = 0.0) -> np.ndarray:
    """Noise of these lengths and effective values, on a constant offset."""
    generator = np.random.default_rng(1)
    values = [value * generator.choice([-1, 1], count) for count, value in parts]
    return (np.concatenate(values) + offset).astype(np.float32)


def windows(samples: np.ndarray, hop: int) -> list[bool]:
    """Whether each window is heard, one each hop."""
    starts = range(0, len(samples) - 2 * hop + 1, hop)
    return [bool(samples[at : at + 2 * hop].std(dtype=np.float64) >= AUDIBLE_RMS) for at in starts]


def onset_of(heard: list[bool]) -> int | None:
    """The first of two windows in a row that are heard."""
    return next((at for at in range(len(heard) - 1) if heard[at] and heard[at + 1]), None)


def last_of(heard: list[bool]) -> int:
    return max(at for at, is_heard in enumerate(heard) if is_heard)


def by_the_rule(samples: np.ndarray, rate: int, trims_end: bool) -> np.ndarray:
    hop = round(rate / 100)
    heard = windows(samples, hop)
    onset = onset_of(heard)
    if onset is None:
        return samples[-10 * hop :]
    end = (last_of(heard) + 4) * hop if trims_end else len(samples)
    return samples[max(0, onset - 2) * hop : end]


def gated(gate: SilenceGate, chunks: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([*(gate.push(chunk) for chunk in chunks), gate.finish()])


@given(PARTS, CUTS, st.sampled_from(RATES), st.booleans(), st.sampled_from([0.0, 0.25]))
def test_chunks_pass_what_the_rule_keeps_of_the_whole(parts, cuts, rate, trims_end, offset):
    samples = noise(parts, offset)
    places = sorted(round(cut * len(samples)) for cut in cuts)
    gate = SilenceGate(rate, trims_end)
    passed = gated(gate, np.split(samples, places))
    assert np.array_equal(passed, by_the_rule(samples, rate, trims_end))
    assert sum(gate.take_trimmed_s()) * rate == pytest.approx(len(samples) - len(passed))


@given(PARTS, CUTS, st.booleans())
def test_nothing_but_silence_is_held_back(parts, cuts, trims_end):
    samples, hop = noise(parts), 240
    gate, came, sent = SilenceGate(24_000, trims_end), 0, 0
    for chunk in np.split(samples, sorted(round(cut * len(samples)) for cut in cuts)):
        came, sent = came + len(chunk), sent + len(gate.push(chunk))
        heard = windows(samples[:came], hop)
        onset = onset_of(heard)
        if onset is None:
            assert sent == 0
        else:
            end = min(came, (last_of(heard) + 4) * hop) if trims_end else came
            assert max(0, onset - 2) * hop + sent == end


def test_silence_that_ends_an_answer_waits_until_speech_goes_on():
    speech, silence = noise([(4800, 0.1)]), np.zeros(2400, np.float32)
    gate = SilenceGate(24_000, trims_end=True)
    sent = [len(gate.push(part)) for part in (silence, speech, silence, silence, speech, silence)]
    # A window of 20 ms that speech reaches into by 10 ms is heard, and 20 ms stay around it.
    assert sent == [0, 720 + 4800, 720, 0, 2400 + 2400 - 720 + 4800, 720]
    assert len(gate.finish()) == 0
    assert gate.take_trimmed_s() == ((2400 - 720) / 24_000, (2400 - 720) / 24_000)


def test_all_goes_out_at_once_from_the_onset_on():
    gate = SilenceGate(24_000)
    assert len(gate.push(np.zeros(24_000, np.float32))) == 0
    assert gate.onset is None
    assert len(gate.push(noise([(479, 0.1)]))) == 0  # One window and half of another have it.
    assert len(gate.push(noise([(1, 0.1)]))) == 480 + 240 + 480
    assert gate.onset == 24_000 - 240
    silence = np.zeros(48_000, np.float32)
    assert gate.push(silence) is silence
    assert len(gate.finish()) == 0


@pytest.mark.parametrize("trims_end", [False, True])
@pytest.mark.parametrize(("came", "kept"), [(0, 0), (100, 100), (48_000, 2400)])
def test_a_silent_answer_keeps_its_last_100_ms(trims_end, came, kept):
    gate = SilenceGate(24_000, trims_end)
    samples = np.arange(came, dtype=np.float32) / 1e9
    assert np.array_equal(gated(gate, [samples]), samples[came - kept :])
    assert gate.take_trimmed_s() == ((came - kept) / 24_000, 0)


def test_one_loud_window_is_no_onset():
    gate = SilenceGate(24_000)
    click = np.zeros(24_000, np.float32)
    click[120] = 0.9  # In the first window alone.
    assert len(gate.push(click)) == 0
    assert gate.onset is None


@pytest.mark.parametrize("trims_end", [False, True])
def test_an_interruption_keeps_what_follows_the_onset(trims_end):
    gate = SilenceGate(24_000, trims_end)
    silence, speech = np.zeros(4800, np.float32), noise([(4800, 0.1)])
    assert len(gate.push(silence)) == len(gate.interrupt()) == 0
    assert gate.take_trimmed_s() == (0.2, 0)
    parts = [gate.push(np.concatenate([speech, silence])), gate.interrupt()]
    parts += [gate.push(silence), gate.finish()]
    assert sum(map(len, parts)) == 9600 + (0 if trims_end else 4800)
    assert gate.take_trimmed_s() == (0, 0.2 if trims_end else 0)


@pytest.mark.parametrize("value", ["", "on", "end", "Start"])
def test_another_value_is_refused_with_those_that_there_are(value):
    says = f"trim_silence: '{value}' is not accepted; one of off, start, both"
    with pytest.raises(InvalidInput, match=says):
        check_trim(value)

"""The estimate of when each word is heard."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.alignment.estimate import LAST_UNITS, WordTimes
from cosyvoice_runtime.alignment.sound import FRAME_S
from cosyvoice_runtime.alignment.words import WordReader
from cosyvoice_runtime.audio.silence import SilenceGate

TEXT = "The train to the coast leaves from platform four."


def hear(times, seconds):
    """Words told for this much sound."""
    return times.hear(np.full(round(seconds * 24_000), 0.3, np.float32))


def texts(words):
    return [word.text for word in words]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" Hello,  “world”! ", ["Hello,", "“world”!"]),
        ("It's $1,299.50 – ok?", ["It's", "$1,299.50", "–", "ok?"]),
        ("你好，世界。", ["你", "好", "，", "世", "界", "。"]),
        ("用GPU算 fast", ["用", "GPU", "算", "fast"]),
        ("ひらがな カナ", ["ひ", "ら", "が", "な", "カ", "ナ"]),
        ("안녕하세요 세계", ["안녕하세요", "세계"]),
        ("  ", []),
    ],
)
@pytest.mark.parametrize("step", [1, 3, 100])
def test_words_of_a_text_however_it_comes(text, words, step):
    reader = WordReader()
    found = [word for at in range(0, len(text), step) for word in reader.read(text[at : at + step])]
    found += reader.finish()
    assert texts(found) == words
    assert [text[: word.end].endswith(word.text) for word in found] == [True] * len(words)


def test_segment_is_shared_out_in_full():
    times = WordTimes()
    times.add(TEXT)
    words = hear(times, 3.0) + times.end_segment(len(TEXT))
    assert texts(words) == TEXT.split()
    assert words[0].start_s == 0
    assert words[-1].end_s == pytest.approx(3.0)


@pytest.mark.parametrize("trims_end", [False, True])
def test_times_move_with_the_silence_that_is_left_out(trims_end):
    silence, sound = np.zeros(19_200, np.float32), np.resize(np.float32([0.3, -0.3]), 48_000)
    samples, gate = np.concatenate([silence, sound, silence]), SilenceGate(24_000, trims_end)
    whole, moved = WordTimes(), WordTimes()
    for times in (whole, moved):
        times.add(TEXT)
    expected, words = whole.hear(samples), []
    for part in np.split(samples, range(0, len(samples), 1000)):
        words += moved.hear(gate.push(part))
    expected, words = expected + whole.end_segment(len(TEXT)), words + moved.end_segment(len(TEXT))
    cut_s = gate.take_trimmed_s()[0]
    assert cut_s == pytest.approx(0.8 - 0.03)
    assert texts(words) == TEXT.split()
    assert [word.start_s for word in words] == pytest.approx([word.start_s - cut_s for word in expected])
    places = [place for word in words for place in (word.start_s, word.end_s)]
    assert places == sorted(places)
    assert places[0] >= 0


def test_longer_words_last_longer():
    times = WordTimes()
    times.add("a aaaa aaaaaaaa")
    first, second, third = hear(times, 0) + hear(times, 2.0) + times.end_segment(15)
    assert first.end_s - first.start_s < second.end_s - second.start_s < third.end_s - third.start_s


@pytest.mark.parametrize("hop", [240, 700, 72_000])
@pytest.mark.parametrize(("text", "share"), [("bb bbbbbb", 2 / 8), ("bbbbbbbb b", 8 / 9)])
def test_silence_belongs_to_no_word(text, share, hop):
    """A second of silence, half a second of sound, and all again, with silence at the end."""
    sound, silence = np.full(12_000, 0.3, np.float32), np.zeros(24_000, np.float32)
    samples = np.concatenate([silence, sound, silence, sound, silence])
    times = WordTimes(0.01)  # so slow that nothing is told before the end
    times.add(text)
    told = [word for at in range(0, len(samples), hop) for word in times.hear(samples[at : at + hop])]
    first, second = told + times.end_segment(len(text))
    units = len(text) - 1 + LAST_UNITS
    sounding = share * (len(text) - 1) / units
    assert (first.start_s, second.end_s) == (pytest.approx(1.0), pytest.approx(3.0))
    assert first.end_s == pytest.approx(1 + sounding + (sounding > 0.5), abs=FRAME_S)
    assert second.start_s == pytest.approx(first.end_s, abs=FRAME_S)


def test_last_word_waits_for_the_end_of_its_segment():
    times = WordTimes()
    times.add("Hello there. ")
    assert texts(hear(times, 60)) == ["Hello"]
    assert texts(times.end_segment(13)) == ["there."]


def test_words_behind_a_flush_belong_to_the_next_segment():
    times = WordTimes()
    times.add("One two")
    times.bar(7)
    times.add(" three four ")
    assert texts(hear(times, 60)) == ["One"]
    assert texts(times.end_segment(7)) == ["two"]
    assert texts(hear(times, 60)) == ["three"]


def test_broken_word_is_two_at_a_flush():
    times = WordTimes()
    times.add("inter")
    times.bar(5)
    times.add("national")
    assert texts(hear(times, 1) + times.end_segment(5)) == ["inter"]
    assert texts(hear(times, 1) + times.end_segment(13)) == ["national"]


def test_pace_is_learned_from_what_has_been_spoken():
    """A slow voice: the second segment's words are not told too early."""
    times = WordTimes()
    times.add(TEXT)
    times.bar(len(TEXT))
    hear(times, 30.0)
    times.end_segment(len(TEXT))
    times.add(" " + TEXT)
    assert 3 <= len(hear(times, 10.0)) <= 5  # of nine, in a third of the time that the first took


def test_speed_counts_from_the_beginning():
    slow, fast = WordTimes(0.5), WordTimes(2.0)
    for times in (slow, fast):
        times.add(TEXT)
    assert len(hear(slow, 1.0)) < len(hear(fast, 1.0))


pieces = st.lists(
    st.tuples(
        st.text(alphabet="ab ,.你", max_size=20), st.floats(0, 3), st.sampled_from(["", "flush", "end"])
    ),
    max_size=20,
)


@given(pieces)
def test_times_never_go_back_and_no_word_is_lost(pieces):
    times, text, heard_s, told = WordTimes(), "", 0.0, []
    reader, expected = WordReader(), []
    for piece, seconds, what in pieces:
        text += piece
        times.add(piece)
        expected += reader.read(piece)
        if what == "flush":
            times.bar(len(text))
            expected += reader.finish()
        heard_s += seconds
        told += hear(times, seconds)
        if what == "end":
            before = len(told)
            told += times.end_segment(len(text))
            if any(letter.isalpha() for word in told[before:] for letter in word.text):
                assert told[-1].end_s == pytest.approx(heard_s, abs=FRAME_S + 1e-6)
        assert all(word.end_s <= heard_s + 1e-6 for word in told)
    told += times.finish()
    assert "".join(texts(told)) == "".join(text.split())
    starts = [each for word in told for each in (word.start_s, word.end_s)]
    assert all(before <= after + 1e-9 for before, after in pairwise(starts))

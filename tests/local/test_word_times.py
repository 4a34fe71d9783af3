"""Times of words that come with the chunks of the library."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from cosyvoice_runtime.audio.silence import TRIMS
from cosyvoice_runtime.engine.utterance.turn import Turn
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.local import SpeechRequest, Synthesizer

TEXT = 'Pay $25 to Dr. Li – now.<break time="300ms"/> The train <speed ratio="1.5"/>leaves at 7:45.'
WORDS = ["Pay", "$25", "to", "Dr.", "Li", "–", "now.", "The", "train", "leaves", "at", "7:45."]
SAMPLING = SamplingOptions(min_tokens=40, max_tokens=60)


@pytest.fixture(scope="module")
def followed(followed_checkpoint) -> Synthesizer:
    return Synthesizer.from_checkpoint(followed_checkpoint, ode_steps=2)


@pytest.fixture(scope="module")
def estimated(tiny_checkpoint) -> Synthesizer:
    return Synthesizer.from_checkpoint(tiny_checkpoint, ode_steps=2)


@pytest.fixture(params=["followed", "estimated"])
def synthesizer(request) -> Synthesizer:
    return request.getfixturevalue(request.param)


def asked(synthesizer: Synthesizer, text: str = TEXT, **options) -> SpeechRequest:
    voice = next(iter(synthesizer.speakers.values()))
    return SpeechRequest(text, voice, seed=3, sampling=SAMPLING, **options)


def spoken(synthesizer: Synthesizer, request: SpeechRequest):
    """Words, and the second at the end of the chunk that told each."""
    words, seconds, told_at = [], 0.0, []
    for chunk in synthesizer.synthesize(request, words=True):
        seconds += chunk.seconds
        words += chunk.words
        told_at += [seconds] * len(chunk.words)
    return words, told_at


def test_method_is_said(followed, estimated):
    assert (followed.word_method, estimated.word_method) == ("attention", "estimate")
    assert "alignment_heads.json" in estimated.no_heads


@pytest.mark.parametrize("trim", TRIMS)
def test_words_are_echoed_and_lie_in_what_was_heard(synthesizer, trim):
    words, told_at = spoken(synthesizer, asked(synthesizer, trim_silence=trim))
    assert [word.text for word in words] == WORDS
    places = [place for word in words for place in (word.start_s, word.end_s)]
    assert places == sorted(places)
    assert places[0] >= 0
    assert all(word.end_s <= at + 0.011 for word, at in zip(words, told_at, strict=True))
    assert len(set(told_at)) > 1


def test_words_of_turns_are_those_of_each_text(synthesizer):
    turns = [Turn("one", "Is it $25?"), Turn("", 'No<break time="300ms"/> – 7:45.'), Turn("one", "Yes.")]
    voice = next(iter(synthesizer.speakers.values()))
    words, _ = spoken(synthesizer, asked(synthesizer, "", turns=turns, find_voice=lambda name: voice))
    assert [word.text for word in words] == ["Is", "it", "$25?", "No", "–", "7:45.", "Yes."]
    places = [place for word in words for place in word[1:]]
    assert places == sorted(places)
    assert words[-1].start_s - words[-2].end_s >= 0.29


def test_pause_that_the_text_asks_for_belongs_to_no_word(followed):
    words, _ = spoken(followed, asked(followed))
    gaps = [after.start_s - before.end_s for before, after in pairwise(words)]
    assert gaps[WORDS.index("now.")] >= 0.29


def test_words_change_no_sample(synthesizer):
    request = asked(synthesizer)
    plain = [chunk.samples for chunk in synthesizer.synthesize(request)]
    timed = [chunk.samples for chunk in synthesizer.synthesize(request, words=True)]
    assert all(map(np.array_equal, plain, timed))
    assert synthesizer.lm.scores is None


def test_words_of_one_chunk_are_near_those_of_a_stream(followed):
    request = asked(followed)
    streamed, _ = spoken(followed, request)
    whole, _ = spoken(followed, dataclasses.replace(request, streaming=False))
    assert [word.text for word in whole] == [word.text for word in streamed]


def test_words_on_onnx_runtime_are_those_on_torch(followed, followed_checkpoint, tmp_path):
    other = Synthesizer.from_checkpoint(followed_checkpoint, ode_steps=2, runtime="onnx", exported=tmp_path)
    assert other.word_method == "attention"
    (found, _), (wanted, _) = spoken(other, asked(other)), spoken(followed, asked(followed))
    assert [word.text for word in found] == [word.text for word in wanted]
    for places in zip(found, wanted, strict=True):
        np.testing.assert_allclose(*[place[1:] for place in places], atol=0.02)

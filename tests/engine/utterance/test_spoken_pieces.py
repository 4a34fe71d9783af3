"""A library's speech of text that arrives in pieces."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from test_streamed_text import FLUSH, SENTENCES

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.local import SpeechRequest, Synthesizer
from cosyvoice_runtime.voice import Voice


@pytest.fixture(scope="module")
def synthesizer(tiny_checkpoint: Path) -> Synthesizer:
    return Synthesizer.from_checkpoint(tiny_checkpoint, ode_steps=2)


def audio(synthesizer: Synthesizer, pieces, voice: Voice, **options) -> Floats:
    sampling = SamplingOptions(ceiling=120)
    request = SpeechRequest("", voice, seed=5, sampling=sampling, **options)
    return np.concatenate([chunk.samples for chunk in synthesizer.synthesize_pieces(pieces, request)])


def test_speech_is_closed_while_its_text_is_awaited(synthesizer):
    more, voice = threading.Event(), next(iter(synthesizer.speakers.values()))

    def pieces():
        yield SENTENCES[0] * 2
        more.wait()

    chunks = synthesizer.synthesize_pieces(pieces(), SpeechRequest("", voice, seed=1), interleaved=False)
    next(chunks)
    closing = threading.Thread(target=chunks.close, daemon=True)
    closing.start()
    closing.join(60)
    still_closing = closing.is_alive()
    more.set()
    assert not still_closing


@pytest.mark.parametrize("cross_lingual", [True, False])
def test_audio_depends_on_clauses_and_marks_and_not_on_pieces_or_time(synthesizer, cross_lingual):
    voice = next(iter(synthesizer.speakers.values()))

    def slowly():
        for character in text:
            yield character
            if character == " ":
                time.sleep(0.002)

    text = "".join(SENTENCES)
    options = {"cross_lingual": cross_lingual}
    expected = audio(synthesizer, [text], voice, **options)
    assert np.array_equal(audio(synthesizer, slowly(), voice, **options), expected)
    assert not np.array_equal(
        audio(synthesizer, [SENTENCES[0], FLUSH, *SENTENCES[1:]], voice, **options)[: len(expected)],
        expected[: len(expected)],
    )

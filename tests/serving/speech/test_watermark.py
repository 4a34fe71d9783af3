"""A mark in the sound: on every sample, the same however the speech is divided."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from coded_listener import TEXT, VOICE, Ear, groups
from hypothesis import given
from hypothesis import strategies as st
from triton_python_backend_utils import InferenceRequest

from coded_stages import TOKEN_SAMPLES, CodedStages
from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.engine.utterance.request import AudioChunk
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.serving.speech.admission import Admission
from cosyvoice_runtime.serving.speech.service import SpeechService
from cosyvoice_runtime.serving.speech.speech_metrics import SpeechMetrics
from cosyvoice_runtime.serving.speech.voice_book import VoiceBook
from cosyvoice_runtime.serving.speech.watermark import find_watermark, marked
from cosyvoice_runtime.serving.triton.request import Inputs
from cosyvoice_runtime.text import TextFrontEnd, TextTokenizer
from cosyvoice_runtime.voice import VoiceStore

STRENGTH = 2.0**-10


class ReferenceWatermark:
    """Adds a sequence of signs that everybody knows, a thousandth of full scale strong."""

    def __init__(self, sample_rate: int) -> None:
        self.position = 0

    def mark(self, samples):
        start, self.position = self.position, self.position + len(samples)
        return samples + np.float32(STRENGTH) * signs(self.position)[start:]


def signs(count: int):
    return np.random.default_rng(1).integers(0, 2, count).astype(np.float32) * 2 - 1


def found(samples) -> float:
    """How strong the mark is in samples: 0 without, 1 with it."""
    return float((samples * signs(len(samples))).mean() / STRENGTH)


def speech(count: int):
    return np.random.default_rng(2).random(count, np.float32) - np.float32(0.5)


async def marked_parts(parts) -> list:
    async def chunks():
        for part in parts:
            yield AudioChunk(part, 24_000, 0)

    return [chunk.samples async for chunk in marked(chunks(), ReferenceWatermark(24_000))]


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=8))
def test_streamed_equals_offline(sizes):
    samples = speech(sum(sizes))
    [whole] = asyncio.run(marked_parts([samples]))
    parts = asyncio.run(marked_parts(np.split(samples, np.cumsum(sizes)[:-1])))
    assert [len(part) for part in parts] == sizes
    assert np.array_equal(np.concatenate(parts), whole)


def test_mark_is_found_and_only_where_it_is():
    samples = speech(240_000)
    [whole] = asyncio.run(marked_parts([samples]))
    assert found(whole) - found(samples) == pytest.approx(1, abs=0.01)


@pytest.fixture
def answer(tiny_checkpoint, tmp_path: Path):
    """``answer(watermark)`` is what the service says of a text, in its chunks."""

    def answer(watermark, streaming: bool = True, text: str = "Hello there.") -> list:
        async def run() -> Ear:
            stages, ear = CodedStages(groups(60)), Ear(streams=streaming)
            tokenizer = TextTokenizer(tiny_checkpoint / "CosyVoice-BlankEN")
            store = VoiceStore(tmp_path / "voices", "checkpoint")
            service = SpeechService(
                stages, VoiceBook(store, {"one": VOICE}, "one", stages, "checkpoint"),
                TextFrontEnd(tokenizer), tokenizer, HopPolicy(25, 3, 10, 25, 100, 25),
                24_000, SpeechMetrics(Metrics("cosyvoice2", tmp_path)), Admission(4),
                sampling=SamplingOptions(), max_characters=100, speech_tokens=100, watermark=watermark,
            )  # fmt: skip
            written = {"target_text": np.array([[text.encode()]], np.object_)}
            await service.answer(Inputs(InferenceRequest(TEXT | written)), ear)
            assert ear.errors == [None]
            return ear

        return [chunk.samples for chunk in asyncio.run(run()).chunks]

    return answer


def test_every_sample_that_leaves_the_service_is_marked(answer):
    plain, streamed = answer(None), answer(ReferenceWatermark)
    offline = answer(ReferenceWatermark, streaming=False)
    assert len(streamed) > len(offline)
    assert np.array_equal(np.concatenate(streamed), np.concatenate(offline))
    [expected] = asyncio.run(marked_parts([np.concatenate(plain)]))
    assert np.array_equal(np.concatenate(streamed), expected)


@pytest.mark.parametrize("text", ["[pause:0.25s]Hello <break time='500ms'/>there.[pause:1s]"])
def test_silences_of_a_text_are_zeros_with_the_mark_in_their_places(answer, text):
    plain = np.concatenate(answer(None, text=text))
    streamed = answer(ReferenceWatermark, text=text)
    [offline] = asyncio.run(marked_parts([plain]))
    assert np.array_equal(np.concatenate(streamed), offline)
    assert np.array_equal(np.concatenate(answer(ReferenceWatermark, streaming=False, text=text)), offline)
    spoken = 60 * TOKEN_SAMPLES
    for start, seconds in ((0, 0.25), (6_000 + spoken, 0.5), (18_000 + 2 * spoken, 1.0)):
        silence = slice(start, start + round(seconds * 24_000))
        assert not plain[silence].any()
        assert np.array_equal(np.abs(offline[silence]), np.full_like(offline[silence], STRENGTH))
    assert len(plain) == 42_000 + 2 * spoken


def test_each_utterance_has_a_mark_of_its_own(answer):
    assert np.array_equal(
        np.concatenate(answer(ReferenceWatermark)), np.concatenate(answer(ReferenceWatermark))
    )


def test_setting_names_a_class():
    assert find_watermark("none") is None
    assert find_watermark("test_watermark:ReferenceWatermark") is not None


@pytest.mark.parametrize("name", ["no_such_module:Mark", "test_watermark:NoSuchClass"])
def test_class_that_is_not_there_is_named(name):
    with pytest.raises(InvalidInput, match=rf"cosyvoice2\.watermark: '{name}'"):
        find_watermark(name)

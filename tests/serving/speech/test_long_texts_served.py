"""Long texts at the service: what is streamed, what is refused, and answers that begin amid a text."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from coded_listener import Ear, groups
from triton_python_backend_utils import InferenceRequest

from cosyvoice_runtime.serving.triton.request import Inputs

PARAGRAPHS = [f"Paragraph {number} of the text." for number in range(1, 8)]
TEXT = "\n\n".join(PARAGRAPHS)
RATE = 24_000


@pytest.fixture
def answer(open_service):
    """``answer(text, **inputs)`` is what a client hears that asks for this."""

    def answer(text: str, streams: bool = True, **inputs: np.ndarray) -> Ear:
        async def run() -> Ear:
            stages, service, _ = open_service(max_characters=100_000, paragraph_pause_s=0.25)
            stages.groups = groups(30)
            ear = Ear(streams=streams)
            given = {"target_text": np.array([[text.encode()]], np.object_), "seed": np.array([[1]])}
            await service.answer(Inputs(InferenceRequest(given | inputs)), ear)
            return ear

        return asyncio.run(run())

    return answer


def number(value: float, dtype: type = np.float32) -> np.ndarray:
    return np.array([[value]], dtype)


def pauses(ear: Ear) -> list[float]:
    return [len(chunk.samples) / RATE for chunk in ear.chunks if chunk.is_pause]


def test_paragraphs_have_the_silence_of_the_deployment_or_of_the_request(answer):
    assert pauses(answer(TEXT)) == [0.25] * 6
    assert pauses(answer(TEXT, paragraph_pause_s=number(1.5))) == [1.5] * 6
    assert pauses(answer(TEXT, paragraph_pause_s=number(0.0))) == []


def test_an_answer_from_a_character_on_says_where_it_begins(answer):
    whole, start = answer(TEXT), len("\n\n".join(PARAGRAPHS[:3]))
    later = answer(TEXT, start_character=number(start + 5, np.int32))
    assert (later.errors, later.start_character) == ([None], start)
    assert not hasattr(whole, "start_character")
    chunks = [chunk for chunk in whole.chunks if chunk.segment >= 3]
    assert [chunk.spoken_characters for chunk in later.chunks] == [each.spoken_characters for each in chunks]
    for one, other in zip(later.chunks, chunks, strict=True):
        assert np.array_equal(one.samples, other.samples)


@pytest.mark.parametrize("streams", [True, False])
def test_a_long_text_is_spoken_where_its_speech_is_not_kept(answer, streams):
    text = "Hello.\n\n" * 1_251
    ear = answer(text, streams)
    if streams:
        assert ear.errors == [None]
        assert [chunk.spoken_characters for chunk in ear.chunks][-1] == len(text)
        return
    assert [str(error) for error in ear.errors] == [
        "target_text: '10008 characters' is not accepted; at most 10000"
    ]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            {"start_character": number(len(TEXT), np.int32)},
            f"less than the {len(TEXT)} characters of the text",
        ),
        ({"start_character": number(-1, np.int32)}, "an integer from 0 on"),
        ({"paragraph_pause_s": number(11)}, "0 to 10 seconds"),
        ({"sentence_pause_s": number(-1)}, "0 to 10 seconds"),
    ],
)
def test_what_can_not_be_is_refused_with_its_name(answer, inputs, message):
    [error] = answer(TEXT, **inputs).errors
    assert str(error).startswith(f"{next(iter(inputs))}: ")
    assert message in str(error)


def test_a_text_in_pieces_has_no_character_to_begin_with(answer):
    named = {
        "utterance_id": np.array([[b"0123456789abcdef"]], np.object_),
        "text_event": np.array([[b"open"]], np.object_),
    }
    [error] = answer(TEXT, start_character=number(3, np.int32), **named).errors
    assert str(error) == "start_character: 3 is not accepted; 0 where the text comes in pieces"

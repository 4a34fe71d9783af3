"""Utterances whose text comes in several requests: order, names, ends, and that nothing stays behind."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from coded_listener import Ear
from open_utterance import FIRST, SECOND, Utterance, message, run
from triton_python_backend_utils import InferenceRequest

from coded_stages import TOKEN_SAMPLES
from cosyvoice_runtime.engine.utterance.utterance import TokenGroup
from cosyvoice_runtime.errors import status_of
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.serving.triton.request import Inputs


def test_first_answer_says_that_the_utterance_is_open(open_service):
    async def work(stages, service):
        utterance = Utterance(service)
        await utterance.until(lambda: utterance.ear.chunks)
        opened = list(utterance.ear.chunks)
        assert await utterance.answer_of("end") is None
        await utterance.speaking
        return opened, utterance

    opened, utterance = run(open_service, work)
    assert [(len(chunk.samples), chunk.finish_reason) for chunk in opened] == [(0, None)]
    assert utterance.ear.chunks == opened
    assert utterance.ear.errors == [None]


def test_audio_comes_before_the_text_ends_and_all_of_it_in_the_end(open_service):
    async def work(stages, service):
        utterance = Utterance(service)
        assert await utterance.answer_of("push", FIRST + "Sh") is None
        await utterance.until(lambda: utterance.samples)
        assert await utterance.answer_of("push", SECOND[2:]) is None
        assert await utterance.answer_of("end") is None
        await utterance.speaking
        return stages, utterance

    stages, utterance = run(open_service, work)
    assert utterance.ear.errors == [None]
    assert utterance.ends == [len(FIRST + SECOND)]
    assert utterance.ear.tokens == stages.said
    assert utterance.samples == TOKEN_SAMPLES * len(stages.said)


def test_messages_are_applied_in_the_order_they_were_sent(open_service, tokenizer):
    async def work(stages, service):
        utterance = Utterance(service, "One ")
        words = [utterance.say("push", f"and {number} ") for number in range(20)]
        said = [*words, utterance.say("flush"), utterance.say("push", "Two"), utterance.say("end")]
        assert await asyncio.gather(*said) == [None] * len(said)
        await utterance.speaking
        return stages, utterance

    _, utterance = run(open_service, work)
    flushed = len("One " + "".join(f"and {number} " for number in range(20)))
    assert utterance.ends == [flushed, flushed + 3]


def test_flushed_text_is_spoken_to_its_end_while_the_utterance_stays_open(open_service):
    async def work(stages, service):
        utterance = Utterance(service, "No mark here")
        assert await utterance.answer_of("flush") is None
        await utterance.until(lambda: utterance.ends)
        assert await utterance.answer_of("end", " and no more") is None
        await utterance.speaking
        return utterance

    assert run(open_service, work).ends == [12, 24]


def test_open_utterances_hold_one_place_each_however_many_messages_come(open_service):
    async def work(stages, service):
        utterance = Utterance(service, "x")
        other = Utterance(service, "y", "another-utterance")
        for _ in range(5):
            assert await utterance.answer_of("push", "x") is None
        refused = Utterance(service, "z", "a-third-utterance")
        await refused.speaking
        missing = await refused.answer_of("push", "z")
        for each in (utterance, other):
            assert await each.answer_of("cancel") is None
            await each.speaking
        return refused.ear.errors, missing

    [error], missing = run(open_service, work)
    assert status_of(error) == "UNAVAILABLE"
    assert status_of(missing) == "NOT_FOUND"


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"name": "nobody-opened-this"}, "NOT_FOUND"),
        ({"client": "somebody else"}, "NOT_FOUND"),
        ({"name": "short"}, "INVALID_ARGUMENT"),
        ({"name": "0123456789abcde/"}, "INVALID_ARGUMENT"),
        ({"name": "0" * 129}, "INVALID_ARGUMENT"),
    ],
)
def test_name_that_is_unknown_foreign_or_none_adds_nothing(open_service, changes, status):
    async def work(stages, service):
        utterance = Utterance(service, "One.", client="me")
        error = await utterance.answer_of("push", " Two.", **changes)
        assert await utterance.answer_of("end") is None
        await utterance.speaking
        return error, utterance

    error, utterance = run(open_service, work)
    assert status_of(error) == status
    assert "utterance_id: " in str(error)
    assert utterance.ends[-1:] == [4]


def test_name_in_use_is_refused_and_its_utterance_goes_on(open_service):
    async def work(stages, service):
        first, second = Utterance(service, "One."), Utterance(service, "Two.")
        await second.speaking
        assert await first.answer_of("end") is None
        await first.speaking
        return first, second

    first, second = run(open_service, work)
    assert "an utterance of this name has not ended yet" in str(second.ear.errors[0])
    assert first.ends == [4]


@pytest.mark.parametrize(
    ("event", "text", "message"),
    [
        ("push", "x" * 300, "target_text: '304 characters' is not accepted; at most 300"),
        (
            "shout",
            "x",
            "text_event: 'shout' is not accepted; with utterance_id, one of open, push",
        ),
    ],
)
def test_message_that_can_not_be_used_is_refused_alone(open_service, event, text, message):
    async def work(stages, service):
        utterance = Utterance(service, "One.")
        error = await utterance.answer_of(event, text)
        assert await utterance.answer_of("end", " Two.") is None
        late = await utterance.answer_of("push", "x")
        await utterance.speaking
        return error, late, utterance

    error, late, utterance = run(open_service, work)
    assert str(error).startswith(message)
    assert "the text of this utterance is complete" in str(late)
    assert utterance.ends[-1] == 9


def test_event_without_a_name_and_a_model_that_answers_once_are_refused(open_service):
    async def work(stages, service):
        nameless, once = Ear(), Ear(streams=False)
        tensors = {"target_text": "x", "text_event": "push"}
        request = {key: np.array([[value.encode()]], np.object_) for key, value in tensors.items()}
        await service.answer(Inputs(InferenceRequest(request)), nameless)
        await service.answer(message("open"), once)
        return nameless.errors + once.errors

    nameless, once = run(open_service, work)
    assert str(nameless) == "text_event: 'push' is not accepted; it goes with utterance_id only"
    assert "a model that answers once takes the text with its request" in str(once)


def test_clauses_are_segments_where_the_speech_lm_takes_whole_texts(open_service):
    async def work(stages, service):
        stages.groups = [TokenGroup(list(range(30))), TokenGroup([], FinishReason.STOP)]
        utterance = Utterance(service, FIRST + SECOND)
        await utterance.until(lambda: utterance.ends)
        assert await utterance.answer_of("end") is None
        await utterance.speaking
        return utterance

    utterance = run(open_service, work, blocks=None)
    assert utterance.ends == [len(FIRST), len(FIRST + SECOND)]
    assert np.array_equal(
        np.concatenate([chunk.samples for chunk in utterance.ear.chunks])[::TOKEN_SAMPLES].astype(int),
        np.tile(np.arange(30), 2),
    )

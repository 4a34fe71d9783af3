"""Utterances whose text comes in several requests: order, names, ends, and that nothing stays behind."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from test_speech_service import VOICE, Ear
from triton_python_backend_utils import InferenceRequest

from coded_stages import TOKEN_SAMPLES, CodedStages
from cosyvoice_runtime.checkpoint import load_config
from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.engine.utterance.utterance import TokenGroup
from cosyvoice_runtime.errors import StageError, StageLostError, status_of
from cosyvoice_runtime.lm import FinishReason, SamplingOptions
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.serving.speech.admission import Admission
from cosyvoice_runtime.serving.speech.service import SpeechService
from cosyvoice_runtime.serving.speech.speech_metrics import SpeechMetrics
from cosyvoice_runtime.serving.speech.voice_book import VoiceBook
from cosyvoice_runtime.serving.triton.request import Inputs
from cosyvoice_runtime.text import TextFrontEnd, TextTokenizer
from cosyvoice_runtime.voice import VoiceStore

NAME = "utterance-of-mine"
FIRST, SECOND = "Where did Anna put the tickets for it? ", "She has no idea. "
WAIT_S = 30.0


def message(event: str, text: str = "", name: str = NAME, client: str | None = None) -> Inputs:
    inputs = {"target_text": text, "utterance_id": name, "text_event": event}
    tensors = {key: np.array([[value.encode()]], np.object_) for key, value in inputs.items()}
    tensors |= {"cross_lingual": np.array([[True]]), "seed": np.array([[1]], np.int64)}
    return Inputs(InferenceRequest(tensors, parameters=json.dumps({"x-client-id": client} if client else {})))


class Utterance:
    """A client's utterance with its messages.

    Attributes:
        ear: what the first request brings.
    """

    def __init__(self, service: SpeechService, text: str = "", name: str = NAME, client: str | None = None):
        self.ear = Ear()
        self._service, self._name, self._client = service, name, client
        self.speaking = asyncio.create_task(service.answer(message("open", text, name, client), self.ear))

    def say(self, event: str, text: str = "") -> asyncio.Task:
        return asyncio.create_task(self.answer_of(event, text))

    async def answer_of(self, event: str, text: str = "", **changes) -> Exception | None:
        """What a further request is answered with: nothing, or its error."""
        ear = Ear()
        said = {"name": self._name, "client": self._client} | changes
        await asyncio.create_task(self._service.answer(message(event, text, **said), ear))
        assert ear.chunks == []
        [error] = ear.errors
        return error

    async def until(self, holds) -> None:
        async def wait() -> None:
            while not holds():
                self.ear.heard.clear()
                await self.ear.heard.wait()

        await asyncio.wait_for(wait(), WAIT_S)

    @property
    def ends(self) -> list[int]:
        """Characters at the end of each segment."""
        return [chunk.spoken_characters for chunk in self.ear.chunks if chunk.finish_reason]

    @property
    def samples(self) -> int:
        return sum(len(chunk.samples) for chunk in self.ear.chunks)


@pytest.fixture(scope="module")
def tokenizer(tiny_checkpoint) -> TextTokenizer:
    return TextTokenizer(tiny_checkpoint / "CosyVoice-BlankEN")


@pytest.fixture(scope="module")
def metrics_dir(tmp_path_factory) -> Path:
    """One for all: its files stay open to the process's end."""
    return tmp_path_factory.mktemp("metrics")


@pytest.fixture
def make(tokenizer, tiny_checkpoint, tmp_path: Path, metrics_dir: Path):
    def service(**options) -> tuple[CodedStages, SpeechService, Admission]:
        stages = CodedStages([])
        stages.per_text = 15
        metrics = SpeechMetrics(Metrics("cosyvoice2", metrics_dir))
        store = VoiceStore(tmp_path / "voices", "checkpoint")
        admission = Admission(2, now=itertools.count(100).__next__)
        options = {"blocks": load_config(tiny_checkpoint).speech_lm} | options
        return (
            stages,
            SpeechService(
                stages,
                VoiceBook(store, {"one": VOICE}, "one", stages, "checkpoint"),
                TextFrontEnd(tokenizer),
                tokenizer,
                HopPolicy(25, 3, 10, 25, 100, 25),
                24_000,
                metrics,
                admission,
                sampling=SamplingOptions(),
                max_characters=300,
                **options,
            ),
            admission,
        )

    return service


def run(make, work, **options):
    """What ``work(stages, service)`` gives; no place is held afterwards, and no task is left."""

    async def inner():
        stages, service, admission = make(**options)
        result = await asyncio.wait_for(work(stages, service), WAIT_S)
        assert admission.count == 0
        async with asyncio.timeout(WAIT_S):  # the look for clients that left ends by itself
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.01)
        return result

    return asyncio.run(inner())


def test_first_answer_says_that_the_utterance_is_open(make):
    async def work(stages, service):
        utterance = Utterance(service)
        await utterance.until(lambda: utterance.ear.chunks)
        opened = list(utterance.ear.chunks)
        assert await utterance.answer_of("end") is None
        await utterance.speaking
        return opened, utterance

    opened, utterance = run(make, work)
    assert [(len(chunk.samples), chunk.finish_reason) for chunk in opened] == [(0, None)]
    assert utterance.ear.chunks == opened
    assert utterance.ear.errors == [None]


def test_audio_comes_before_the_text_ends_and_all_of_it_in_the_end(make):
    async def work(stages, service):
        utterance = Utterance(service)
        assert await utterance.answer_of("push", FIRST + "Sh") is None
        await utterance.until(lambda: utterance.samples)
        assert await utterance.answer_of("push", SECOND[2:]) is None
        assert await utterance.answer_of("end") is None
        await utterance.speaking
        return stages, utterance

    stages, utterance = run(make, work)
    assert utterance.ear.errors == [None]
    assert utterance.ends == [len(FIRST + SECOND)]
    assert utterance.ear.tokens == stages.said
    assert utterance.samples == TOKEN_SAMPLES * len(stages.said)


def test_messages_are_applied_in_the_order_they_were_sent(make, tokenizer):
    async def work(stages, service):
        utterance = Utterance(service, "One ")
        words = [utterance.say("push", f"and {number} ") for number in range(20)]
        said = [*words, utterance.say("flush"), utterance.say("push", "Two"), utterance.say("end")]
        assert await asyncio.gather(*said) == [None] * len(said)
        await utterance.speaking
        return stages, utterance

    _, utterance = run(make, work)
    flushed = len("One " + "".join(f"and {number} " for number in range(20)))
    assert utterance.ends == [flushed, flushed + 3]


def test_flushed_text_is_spoken_to_its_end_while_the_utterance_stays_open(make):
    async def work(stages, service):
        utterance = Utterance(service, "No mark here")
        assert await utterance.answer_of("flush") is None
        await utterance.until(lambda: utterance.ends)
        assert await utterance.answer_of("end", " and no more") is None
        await utterance.speaking
        return utterance

    assert run(make, work).ends == [12, 24]


def test_cancel_ends_at_once_and_frees_every_stage(make):
    async def work(stages, service):
        utterance = Utterance(service, FIRST + "S")
        await utterance.until(lambda: utterance.samples)
        assert await utterance.answer_of("cancel") is None
        await utterance.speaking
        gone = await utterance.answer_of("push", "x")
        return stages, utterance, gone

    stages, utterance, gone = run(make, work)
    assert len(stages.stopped) == len(stages.dropped) == 1
    assert utterance.ends == []
    assert len(utterance.ear.errors) == 1
    assert status_of(gone) == "NOT_FOUND"


def test_client_that_leaves_ends_all(make):
    async def work(stages, service):
        utterance = Utterance(service, FIRST + "S")
        await utterance.until(lambda: utterance.samples)
        utterance.ear.gone = True
        await utterance.speaking
        return stages, await utterance.answer_of("push", "x")

    stages, gone = run(make, work)
    assert len(stages.stopped) == len(stages.dropped) == 1
    assert status_of(gone) == "NOT_FOUND"


def test_utterance_without_text_ends_after_a_while(make):
    async def work(stages, service):
        utterance = Utterance(service, FIRST + "S")
        await utterance.speaking
        return utterance

    [error] = run(make, work, text_timeout_s=0.1).ear.errors
    assert (status_of(error), str(error)) == ("CANCELLED", "no text came for 0.1 s, and no end of it")


def test_stage_that_dies_while_nothing_is_asked_of_it_ends_the_utterance_at_once(make):
    async def work(stages, service):
        utterance = Utterance(service, FIRST + "S")
        await utterance.until(lambda: utterance.samples)
        stages.one_is_lost.set()
        await utterance.speaking
        return utterance

    [error] = run(make, work).ear.errors
    assert isinstance(error, StageLostError)
    assert status_of(error) == "UNAVAILABLE"


def test_engine_that_takes_no_text_in_pieces_is_named(make):
    refusal = "text_open: True is not accepted; engine vllm takes the text of a request whole"

    async def work(stages, service):
        async def refuse(*arguments):
            raise StageError(refusal, "INVALID_ARGUMENT")
            yield

        stages.generate_from_pieces = refuse
        utterance = Utterance(service, FIRST + "S")
        await utterance.speaking
        return utterance

    [error] = run(make, work).ear.errors
    assert (str(error), status_of(error)) == (refusal, "INVALID_ARGUMENT")


def test_open_utterances_hold_one_place_each_however_many_messages_come(make):
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

    [error], missing = run(make, work)
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
def test_name_that_is_unknown_foreign_or_none_adds_nothing(make, changes, status):
    async def work(stages, service):
        utterance = Utterance(service, "One.", client="me")
        error = await utterance.answer_of("push", " Two.", **changes)
        assert await utterance.answer_of("end") is None
        await utterance.speaking
        return error, utterance

    error, utterance = run(make, work)
    assert status_of(error) == status
    assert "utterance_id: " in str(error)
    assert utterance.ends[-1:] == [4]


def test_name_in_use_is_refused_and_its_utterance_goes_on(make):
    async def work(stages, service):
        first, second = Utterance(service, "One."), Utterance(service, "Two.")
        await second.speaking
        assert await first.answer_of("end") is None
        await first.speaking
        return first, second

    first, second = run(make, work)
    assert "an utterance of this name has not ended yet" in str(second.ear.errors[0])
    assert first.ends == [4]


@pytest.mark.parametrize(
    ("event", "text", "message"),
    [
        ("push", "x" * 300, "target_text: '304 characters' is not accepted; at most 300"),
        ("push", "\x00", "target_text: "),
        (
            "shout",
            "x",
            "text_event: 'shout' is not accepted; with utterance_id, one of open, push",
        ),
    ],
)
def test_message_that_can_not_be_used_is_refused_alone(make, event, text, message):
    async def work(stages, service):
        utterance = Utterance(service, "One.")
        error = await utterance.answer_of(event, text)
        assert await utterance.answer_of("end", " Two.") is None
        late = await utterance.answer_of("push", "x")
        await utterance.speaking
        return error, late, utterance

    error, late, utterance = run(make, work)
    assert str(error).startswith(message)
    assert "the text of this utterance is complete" in str(late)
    assert utterance.ends[-1] == 9


def test_event_without_a_name_and_a_model_that_answers_once_are_refused(make):
    async def work(stages, service):
        nameless, once = Ear(), Ear(streams=False)
        tensors = {"target_text": "x", "text_event": "push"}
        request = {key: np.array([[value.encode()]], np.object_) for key, value in tensors.items()}
        await service.answer(Inputs(InferenceRequest(request)), nameless)
        await service.answer(message("open"), once)
        return nameless.errors + once.errors

    nameless, once = run(make, work)
    assert str(nameless) == "text_event: 'push' is not accepted; it goes with utterance_id only"
    assert "a model that answers once takes the text with its request" in str(once)


def test_clauses_are_segments_where_the_speech_lm_takes_whole_texts(make):
    async def work(stages, service):
        stages.groups = [TokenGroup(list(range(30))), TokenGroup([], FinishReason.STOP)]
        utterance = Utterance(service, FIRST + SECOND)
        await utterance.until(lambda: utterance.ends)
        assert await utterance.answer_of("end") is None
        await utterance.speaking
        return utterance

    utterance = run(make, work, blocks=None)
    assert utterance.ends == [len(FIRST), len(FIRST + SECOND)]
    assert np.array_equal(
        np.concatenate([chunk.samples for chunk in utterance.ear.chunks])[::TOKEN_SAMPLES].astype(int),
        np.tile(np.arange(30), 2),
    )


def test_cancel_ends_an_utterance_whose_text_is_complete_at_once(make):
    async def work(stages, service):
        utterance, held = Utterance(service, FIRST + "S"), asyncio.Event()
        await utterance.until(lambda: utterance.samples)
        stages.wave = lambda *_: held.wait()  # token2wav takes its time
        assert await utterance.answer_of("end", SECOND[1:]) is None
        await asyncio.sleep(0.1)  # all of it has been read
        assert await utterance.answer_of("cancel") is None
        assert (await asyncio.wait([utterance.speaking], timeout=WAIT_S / 2))[0]
        return stages, utterance

    stages, utterance = run(make, work)
    assert [type(error).__name__ for error in utterance.ear.errors] == ["ClientGoneError"]
    assert len(stages.dropped) == 1


@pytest.mark.parametrize("steps", range(10))
def test_stage_that_dies_just_as_text_comes_ends_the_utterance_at_once(make, steps):
    async def work(stages, service):
        utterance = Utterance(service, FIRST + "S")
        await utterance.until(lambda: utterance.samples)
        await asyncio.sleep(0.05)
        [(_, text)] = service._open._open.values()
        stages.one_is_lost.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        text.push(SECOND)
        assert (await asyncio.wait([utterance.speaking], timeout=WAIT_S / 2))[0]

    run(make, work, text_timeout_s=2 * WAIT_S)


@pytest.mark.parametrize("first", ["cancel", "leave", "lost"])
@pytest.mark.parametrize("steps", range(1, 10))
def test_client_that_leaves_while_its_utterance_is_being_ended_leaves_nothing(make, first, steps):
    """A client says cancel and goes; a gateway says again that it has gone, as the look for clients does."""

    async def work(stages, service):
        utterance, comes, ends = Utterance(service, FIRST + "S"), asyncio.Event(), []

        def send(chunk):
            if len(chunk.samples):
                comes.set()

        def finish(error):
            ends.append(type(error).__name__)  # not the error, whose traceback holds what is looked for

        utterance.ear.call, utterance.ear.send, utterance.ear.finish = "call", send, finish
        await comes.wait()
        await asyncio.sleep(0.05)
        if first == "cancel":
            utterance.say("cancel")
        elif first == "lost":
            stages.one_is_lost.set()
        else:
            service.leave("call")
        for _ in range(steps):
            await asyncio.sleep(0)
        service.leave("call")
        await utterance.speaking
        await asyncio.sleep(0.01)
        return ends, len(stages.stopped), len(stages.dropped)

    [end], stopped, dropped = run(make, work)
    assert end in ("ClientGoneError", "StageLostError")
    assert (stopped, dropped) == (1, 1)

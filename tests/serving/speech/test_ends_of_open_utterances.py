"""Open utterances that are cancelled, left, silent or lose a stage: all of it is freed."""

from __future__ import annotations

import asyncio

import pytest
from open_utterance import FIRST, SECOND, WAIT_S, Utterance, run

from cosyvoice_runtime.errors import StageError, StageLostError, status_of


def test_cancel_ends_at_once_and_frees_every_stage(open_service):
    async def work(stages, service):
        utterance = Utterance(service, FIRST + "S")
        await utterance.until(lambda: utterance.samples)
        assert await utterance.answer_of("cancel") is None
        await utterance.speaking
        gone = await utterance.answer_of("push", "x")
        return stages, utterance, gone

    stages, utterance, gone = run(open_service, work)
    assert len(stages.stopped) == len(stages.dropped) == 1
    assert utterance.ends == []
    assert len(utterance.ear.errors) == 1
    assert status_of(gone) == "NOT_FOUND"


def test_client_that_leaves_ends_all(open_service):
    async def work(stages, service):
        utterance = Utterance(service, FIRST + "S")
        await utterance.until(lambda: utterance.samples)
        utterance.ear.gone = True
        await utterance.speaking
        return stages, await utterance.answer_of("push", "x")

    stages, gone = run(open_service, work)
    assert len(stages.stopped) == len(stages.dropped) == 1
    assert status_of(gone) == "NOT_FOUND"


def test_utterance_without_text_ends_after_a_while(open_service):
    async def work(stages, service):
        utterance = Utterance(service, FIRST + "S")
        await utterance.speaking
        return utterance

    [error] = run(open_service, work, text_timeout_s=0.1).ear.errors
    assert (status_of(error), str(error)) == ("CANCELLED", "no text came for 0.1 s, and no end of it")


def test_stage_that_dies_while_nothing_is_asked_of_it_ends_the_utterance_at_once(open_service):
    async def work(stages, service):
        utterance = Utterance(service, FIRST + "S")
        await utterance.until(lambda: utterance.samples)
        stages.one_is_lost.set()
        await utterance.speaking
        return utterance

    [error] = run(open_service, work).ear.errors
    assert isinstance(error, StageLostError)
    assert status_of(error) == "UNAVAILABLE"


def test_engine_that_takes_no_text_in_pieces_is_named(open_service):
    refusal = "text_open: True is not accepted; engine vllm takes the text of a request whole"

    async def work(stages, service):
        async def refuse(*arguments):
            raise StageError(refusal, "INVALID_ARGUMENT")
            yield

        stages.generate = refuse
        utterance = Utterance(service, FIRST + "S")
        await utterance.speaking
        return utterance

    [error] = run(open_service, work).ear.errors
    assert (str(error), status_of(error)) == (refusal, "INVALID_ARGUMENT")


def test_cancel_ends_an_utterance_whose_text_is_complete_at_once(open_service):
    async def work(stages, service):
        utterance, held = Utterance(service, FIRST + "S"), asyncio.Event()
        await utterance.until(lambda: utterance.samples)
        stages.wave = lambda *_: held.wait()  # token2wav takes its time
        assert await utterance.answer_of("end", SECOND[1:]) is None
        await asyncio.sleep(0.1)  # all of it has been read
        assert await utterance.answer_of("cancel") is None
        assert (await asyncio.wait([utterance.speaking], timeout=WAIT_S / 2))[0]
        return stages, utterance

    stages, utterance = run(open_service, work)
    assert [type(error).__name__ for error in utterance.ear.errors] == ["ClientGoneError"]
    assert len(stages.dropped) == 1


@pytest.mark.parametrize("steps", range(10))
def test_stage_that_dies_just_as_text_comes_ends_the_utterance_at_once(open_service, steps):
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

    run(open_service, work, text_timeout_s=2 * WAIT_S)


@pytest.mark.parametrize("first", ["cancel", "leave", "lost"])
@pytest.mark.parametrize("steps", range(1, 10))
def test_client_that_leaves_while_its_utterance_is_being_ended_leaves_nothing(open_service, first, steps):
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

    [end], stopped, dropped = run(open_service, work)
    assert end in ("ClientGoneError", "StageLostError")
    assert (stopped, dropped) == (1, 1)

"""Text that comes piece by piece, as a client of the library sends it, against a real server."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import numpy as np
import pytest

from cosyvoice_client import AsyncSpeechClient, RefusedError, SpeechRequest, TextSpeech, UnavailableError

EMPTY = SpeechRequest("")
PER_CHARACTER = 24
WAIT_S = 120.0


def run(work):
    async def inner():
        return await asyncio.wait_for(work(), WAIT_S)

    return asyncio.run(inner())


async def heard(speech: TextSpeech) -> list:
    return [chunk async for chunk in speech]


def numbers(*chunks) -> list[int]:
    """Of the characters that are spoken, in order."""
    samples = np.concatenate([chunk.samples for chunk in chunks])
    return np.rint(samples[::PER_CHARACTER] * 32768).astype(int).tolist()


def test_pieces_go_in_and_chunks_come_out_segment_by_segment(server):
    async def work():
        async with AsyncSpeechClient(server.grpc_url) as client, client.speak_text(EMPTY) as speech:
            await speech.push("Hel")
            await speech.push("lo.")
            await speech.flush()
            first = await anext(aiter(speech))
            await speech.push(" Wait")
            await speech.end()
            return first, await heard(speech)

    first, rest = run(work)
    assert numbers(first, *rest) == list(range(11))
    assert [(chunk.finish_reason, chunk.spoken_characters) for chunk in (first, *rest)] == [
        ("stop", 6),
        ("stop", 11),
    ]
    assert first.arrived_s > 0


def test_first_piece_may_stand_in_the_request(server):
    async def work():
        request = SpeechRequest("Hello")
        async with AsyncSpeechClient(server.grpc_url) as client, client.speak_text(request) as speech:
            await speech.end()
            return await heard(speech)

    assert numbers(*run(work)) == list(range(5))


def test_pieces_of_many_utterances_stay_in_order(server):
    async def speak(client, count):
        async with client.speak_text(EMPTY) as speech:
            await asyncio.gather(*(speech.push(f"{number} ") for number in range(count)))
            await speech.end()
            return sum(len(chunk.samples) for chunk in await heard(speech)) // PER_CHARACTER

    async def work():
        async with AsyncSpeechClient(server.grpc_url) as client:
            return await asyncio.gather(*(speak(client, count) for count in range(1, 13)))

    assert run(work) == [sum(len(f"{number} ") for number in range(count)) for count in range(1, 13)]


def test_cancel_ends_the_chunks_and_the_utterance(server):
    before = server.report()["cancelled"]

    async def work():
        async with AsyncSpeechClient(server.grpc_url) as client, client.speak_text(EMPTY) as speech:
            await speech.push("Hello.")
            await speech.cancel()
            return await heard(speech)

    assert run(work) == []
    server.wait_until(lambda now: now["cancelled"] == before + 1 and now["active"] == 0)


@pytest.mark.parametrize("way", ["block", "error", "task"])
def test_leaving_ends_the_utterance_on_the_server(server, way):
    before = server.report()["cancelled"]

    async def leave(entered: asyncio.Event):
        async with AsyncSpeechClient(server.grpc_url) as client, client.speak_text(EMPTY) as speech:
            await speech.push("Hello.")
            entered.set()
            if way == "error":
                raise KeyError(way)
            if way == "task":
                await heard(speech)

    async def work():
        entered = asyncio.Event()
        task = asyncio.create_task(leave(entered))
        await entered.wait()
        if way == "task":
            task.cancel()
        with suppress(KeyError, asyncio.CancelledError):
            await task

    run(work)
    server.wait_until(lambda now: now["cancelled"] == before + 1 and now["active"] == 0)


def test_failure_is_told_to_whoever_listens_and_to_whoever_pushes(server):
    async def work():
        async with AsyncSpeechClient(server.grpc_url) as client, client.speak_text(EMPTY) as speech:
            await speech.push("fail")
            with pytest.raises(UnavailableError, match=r"a stage is gone$"):
                await heard(speech)
            with pytest.raises(UnavailableError, match=r"a stage is gone$"):
                await speech.push("more")

    run(work)


def test_message_to_an_utterance_that_has_ended_is_refused(server):
    async def work():
        async with AsyncSpeechClient(server.grpc_url) as client, client.speak_text(EMPTY) as speech:
            await speech.end()
            assert await heard(speech) == []
            with pytest.raises(RefusedError, match="utterance_id: the utterance has ended") as caught:
                await speech.push("more")
            return caught.value.kind

    assert run(work) == "not_found"


def test_server_that_is_not_there_is_unavailable():
    async def work():
        async with AsyncSpeechClient("127.0.0.1:1") as client:
            with pytest.raises(UnavailableError):
                async with client.speak_text(EMPTY):
                    pass

    run(work)


def test_model_that_is_unknown_refuses_the_opening(server):
    async def work():
        async with AsyncSpeechClient(server.grpc_url, "none") as client:
            with pytest.raises(RefusedError, match="'none' is unknown here"):
                async with client.speak_text(EMPTY):
                    pass

    run(work)

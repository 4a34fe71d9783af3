"""The clients as a library, against a real server."""

from __future__ import annotations

import asyncio
import socket
from contextlib import aclosing, closing

import numpy as np
import pytest
from test_client_request import EVERYTHING

from cosyvoice_client import (
    AsyncSpeechClient,
    Reference,
    RefusedError,
    ServerTimeoutError,
    SpeechClient,
    SpeechRequest,
    UnavailableError,
)
from cosyvoice_client.http_client import HttpSpeechClient
from fake_server import coded

NOWHERE = "127.0.0.1:1"


def values(*chunks):
    return np.rint(np.concatenate([chunk.samples for chunk in chunks]) * 32768).astype(np.int16)


def test_chunks_come_in_order_and_the_last_has_the_reason(server):
    chunks = list(SpeechClient(server.grpc_url).speak(SpeechRequest("id=7 chunks=5")))
    assert np.array_equal(values(*chunks), coded(7, 5))
    assert [chunk.finish_reason for chunk in chunks] == ["", "", "", "", "stop"]
    arrivals = [chunk.arrived_s for chunk in chunks]
    assert arrivals == sorted(arrivals)


def test_chunks_come_long_before_the_stream_ends(server):
    request = SpeechRequest("id=7 chunks=10000 pause_ms=20")
    with closing(SpeechClient(server.grpc_url).speak(request)) as stream:
        chunks = [next(stream) for _ in range(5)]
    assert np.array_equal(values(*chunks), coded(7, 5))
    assert {chunk.finish_reason for chunk in chunks} == {""}
    server.wait_until(lambda now: now["active"] == 0)


def test_both_models_get_the_same_inputs_by_grpc_and_http(server):
    list(SpeechClient(server.grpc_url).speak(EVERYTHING))
    HttpSpeechClient(server.http_url).synthesize(EVERYTHING)
    streaming, offline = (server.report(model)["inputs"] for model in ("cosyvoice2", "cosyvoice2_offline"))
    assert streaming == offline
    assert len(streaming) == len(EVERYTHING.tensors())
    assert streaming["reference_wav"] == {"dtype": "float32", "shape": [1, 8000], "first": -0.5}
    assert streaming["target_text"] == {"dtype": "object", "shape": [1, 1], "first": "你好"}
    assert streaming["seed"] == {"dtype": "int64", "shape": [1, 1], "first": float(2**62)}


def test_long_reference_arrives_whole(server):
    reference = Reference(np.linspace(0, 1, 30 * 16000, dtype=np.float32))
    list(SpeechClient(server.grpc_url).speak(SpeechRequest("id=1", reference)))
    assert server.report()["inputs"]["reference_wav"]["shape"] == [1, 480000]


def test_offline_is_the_streams_audio(server):
    chunk = HttpSpeechClient(f"http://{server.http_url}/").synthesize(SpeechRequest("id=9 chunks=4"))
    assert np.array_equal(values(chunk), coded(9, 4))
    assert chunk.finish_reason == "stop"


def test_closing_after_the_first_chunk_reaches_the_server(server):
    before = server.report()["cancelled"]
    with closing(SpeechClient(server.grpc_url).speak(SpeechRequest("chunks=1000 pause_ms=20"))) as chunks:
        next(chunks)
    server.wait_until(lambda now: now["cancelled"] == before + 1 and now["active"] == 0)


def test_threads_share_a_client(server):
    client = SpeechClient(server.grpc_url)

    async def together():
        def speak(index):
            return list(client.speak(SpeechRequest(f"id={index} chunks=4 pause_ms=10")))

        return await asyncio.gather(*(asyncio.to_thread(speak, index) for index in range(4)))

    for index, chunks in enumerate(asyncio.run(together())):
        assert np.array_equal(values(*chunks), coded(index, 4))


def test_concurrent_streams_get_their_own_audio(server):
    async def speak(client, index):
        request = SpeechRequest(f"id={index} chunks=6 samples=120 pause_ms=5")
        return [chunk async for chunk in client.speak(request)]

    async def together():
        async with AsyncSpeechClient(server.grpc_url) as client:
            return await asyncio.gather(*(speak(client, index) for index in range(32)))

    for index, chunks in enumerate(asyncio.run(together())):
        assert np.array_equal(values(*chunks), coded(index, 6, 120))


def test_cancelled_task_and_closed_generator_reach_the_server(server):
    before = server.report()["cancelled"]
    request = SpeechRequest("chunks=1000 pause_ms=20")

    async def consume(client, first):
        async for _ in client.speak(request):
            first.set()

    async def cancel_both():
        async with AsyncSpeechClient(server.grpc_url) as client:
            first = asyncio.Event()
            task = asyncio.create_task(consume(client, first))
            await first.wait()
            task.cancel()
            async with aclosing(client.speak(request)) as chunks:
                await anext(chunks)
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(cancel_both())
    server.wait_until(lambda now: now["cancelled"] == before + 2 and now["active"] == 0)


def test_offline_over_grpc(server):
    async def synthesize():
        async with AsyncSpeechClient(server.grpc_url) as client:
            chunk = await client.synthesize(SpeechRequest("id=5 chunks=3"))
            with pytest.raises(UnavailableError):
                await client.synthesize(SpeechRequest("fail=UNAVAILABLE"))
            return chunk

    assert np.array_equal(values(asyncio.run(synthesize())), coded(5, 3))


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        ("UNAVAILABLE", UnavailableError, "unavailable"),
        ("INVALID_ARGUMENT", RefusedError, "invalid_argument"),
        ("NOT_FOUND", RefusedError, "not_found"),
        ("INTERNAL", RefusedError, "internal"),
    ],
)
def test_every_way_to_speak_reports_the_status_and_what_the_server_said(server, status, error, kind):
    request = SpeechRequest(f"fail={status}")

    async def synthesize():
        async with AsyncSpeechClient(server.grpc_url) as client:
            await client.synthesize(request)

    for speak in (
        lambda: list(SpeechClient(server.grpc_url).speak(request)),
        lambda: asyncio.run(synthesize()),
        lambda: HttpSpeechClient(server.http_url).synthesize(request),
    ):
        with pytest.raises(error, match=r"^127\.0\.0\.1:\d+: speech: told to fail$") as caught:
            speak()
        assert caught.value.kind == kind


@pytest.mark.parametrize(
    "words", ["Exceeds maximum queue size", "'try again later' is unknown; UNAVAILABLE: x", "UNAVAILABLE: x"]
)
def test_words_that_an_error_repeats_do_not_change_its_status(server, words):
    request = SpeechRequest(f"fail=INVALID_ARGUMENT says={words.replace(' ', '_')}")
    for speak in (
        lambda: list(SpeechClient(server.grpc_url).speak(request)),
        lambda: HttpSpeechClient(server.http_url).synthesize(request),
    ):
        with pytest.raises(RefusedError, match=f"{words}$") as caught:
            speak()
        assert caught.value.kind == "invalid_argument"


@pytest.mark.parametrize(
    ("says", "error", "told"),
    [
        ("request_timeout_expired", UnavailableError, "too many requests wait; try again in 2 s"),
        ("whatever", RefusedError, "internal error; the server's log has the details"),
    ],
)
def test_error_without_a_status_gets_one_at_the_door(server, says, error, told):
    request = SpeechRequest(f"fail=UNAVAILABLE unnamed=1 says={says}")
    with pytest.raises(error, match=f"{told}$"):
        list(SpeechClient(server.grpc_url).speak(request))


def test_error_after_chunks_comes_after_them(server):
    stream = SpeechClient(server.grpc_url).speak(SpeechRequest("id=3 chunks=9 fail=INTERNAL fail_after=2"))
    assert np.array_equal(values(next(stream), next(stream)), coded(3, 2))
    with pytest.raises(RefusedError):
        next(stream)


def test_unknown_model_is_refused(server):
    for speak in (
        lambda: list(SpeechClient(server.grpc_url, "none").speak(SpeechRequest("hello"))),
        lambda: HttpSpeechClient(server.http_url, "none").synthesize(SpeechRequest("hello")),
    ):
        with pytest.raises(RefusedError, match="'none' is unknown here") as caught:
            speak()
        assert caught.value.kind == "not_found"


def test_absent_server_is_unavailable():
    with pytest.raises(UnavailableError, match=NOWHERE):
        list(SpeechClient(NOWHERE).speak(SpeechRequest("hello")))
    with pytest.raises(UnavailableError, match=NOWHERE):
        HttpSpeechClient(NOWHERE).synthesize(SpeechRequest("hello"))


def test_silent_server_is_given_up_and_told(server):
    with pytest.raises(ServerTimeoutError, match="nothing came for 1 s"):
        HttpSpeechClient(server.http_url, timeout_s=1).synthesize(SpeechRequest("pause_ms=5000"))
    before = server.report()["cancelled"]
    with pytest.raises(ServerTimeoutError, match="nothing came for 5 s"):
        list(SpeechClient(server.grpc_url, timeout_s=5).speak(SpeechRequest("pause_ms=60000")))
    server.wait_until(lambda now: now["cancelled"] == before + 1)


def is_ready(url, timeout_s=60.0, **options):
    async def ask():
        async with AsyncSpeechClient(url, **options) as client:
            return await client.ready(timeout_s)

    return asyncio.run(ask())


def test_server_says_whether_its_model_takes_requests(server):
    assert is_ready(server.grpc_url)
    assert not is_ready(server.grpc_url, streaming_model="nothing")


def test_server_that_is_away_or_silent_is_not_ready():
    with pytest.raises(UnavailableError):
        is_ready(NOWHERE)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ServerTimeoutError):
        is_ready(f"127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.2)

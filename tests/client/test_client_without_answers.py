"""Servers that say nothing, or not any more: nobody waits without end, and nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from cosyvoice_client import (
    AsyncSpeechClient,
    ClientError,
    ServerTimeoutError,
    SpeechClient,
    SpeechRequest,
    grpc_client,
)
from cosyvoice_client.grpc_client import _background

LIMIT_S = 60.0
SOON_S = 8.0
"""Without a limit gRPC waits for longer than that before it looks for a server again."""
HELLO = SpeechRequest("Hello.")


class SilentServer(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers the first stream with a chunk, and nothing else.

    Attributes:
        streams: numbers of those that have not ended.
    """

    def __init__(self) -> None:
        self.port = 0
        self.streams: set[int] = set()
        self.closing = threading.Event()
        self._opened = 0

    def ModelStreamInfer(self, requests, context):  # noqa: N802
        self._opened += 1
        number = self._opened
        self.streams.add(number)
        if not context.add_callback(lambda: self.streams.discard(number)):  # it has ended already
            self.streams.discard(number)
        if number == 1:
            response = service_pb2.ModelStreamInferResponse()
            response.infer_response.outputs.add(name="waveform", datatype="FP32", shape=[1, 10])
            response.infer_response.raw_output_contents.append(bytes(40))
            yield response
        self.closing.wait()

    def ServerMetadata(self, request, context):  # noqa: N802
        self.closing.wait()
        context.abort(grpc.StatusCode.INTERNAL, "too late")

    ModelStatistics = ServerMetadata

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.port}"

    def wait_until_left(self) -> None:
        deadline = time.monotonic() + LIMIT_S
        while self.streams:
            assert time.monotonic() < deadline, f"streams {self.streams} have not ended"
            time.sleep(0.02)


@pytest.fixture
def silent():
    answers = SilentServer()
    server = grpc.server(ThreadPoolExecutor(8))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(answers, server)
    answers.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield answers
    answers.closing.set()
    server.stop(0).wait()


def test_message_that_nobody_answers_leaves_nothing_behind(silent):
    async def work():
        async with AsyncSpeechClient(silent.url, timeout_s=0.3) as client:
            before = asyncio.all_tasks()
            with suppress(ClientError):
                async with client.speak_text(HELLO) as speech:
                    await speech.push("More.")
            await asyncio.sleep(1)
            await asyncio.to_thread(silent.wait_until_left)
            assert asyncio.all_tasks() == before

    asyncio.run(work())


@pytest.mark.parametrize("question", ["server", "statistics"])
def test_question_that_nobody_answers_is_given_up(silent, question):
    async def work():
        async with AsyncSpeechClient(silent.url, timeout_s=0.3) as client:
            with pytest.raises(ServerTimeoutError):
                await asyncio.wait_for(getattr(client, question)(), LIMIT_S)

    asyncio.run(work())


def test_speech_that_is_collected_as_garbage_holds_up_no_other(silent, monkeypatch):
    monkeypatch.setattr(grpc_client, "CANCEL_WAIT_S", 2 * LIMIT_S)
    stream = SpeechClient(silent.url).speak(HELLO)
    next(stream)
    cycle = [stream]
    cycle.append(cycle)
    loop = _background()
    gc.disable()
    try:
        del stream, cycle
        loop.call_soon_threadsafe(gc.collect)  # it comes in whichever thread makes most objects
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(LIMIT_S)
    finally:
        gc.enable()
    silent.wait_until_left()


def test_child_of_a_process_that_has_spoken_does_not_wait_without_end():
    def speak():
        with suppress(ClientError):
            list(SpeechClient("127.0.0.1:1", timeout_s=1).speak(HELLO))

    speak()
    child = multiprocessing.get_context("fork").Process(target=speak)
    child.start()
    child.join(LIMIT_S)
    child.kill()
    child.join()
    assert child.exitcode == 0


def test_server_that_is_back_is_found_soon():
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]

    async def ask(client):
        with suppress(ClientError):
            await client.ready(1.0)
        await asyncio.sleep(0.1)

    async def work():
        came = asyncio.Event()
        async with AsyncSpeechClient(f"127.0.0.1:{port}") as client:
            away_until = time.monotonic() + 17
            while time.monotonic() < away_until:
                await ask(client)
            async with await asyncio.start_server(
                lambda _reader, writer: (came.set(), writer.close()), "127.0.0.1", port
            ):
                back = time.monotonic()
                while not came.is_set() and time.monotonic() < back + SOON_S:
                    await ask(client)
        assert came.is_set()

    asyncio.run(work())

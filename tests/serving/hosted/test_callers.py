"""What a model host does with callers who send other things than this library's, or who do not read."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hosted_calls import HostedCalls
from test_model_host import LM, PATIENCE_S, WAVE, CountingLm, EchoWave

from cosyvoice_runtime.engine import host_client
from cosyvoice_runtime.engine.frames import LENGTHS, FrameReader, read_tensors, write_frame
from cosyvoice_runtime.engine.host_client import HostClient, request_frame
from cosyvoice_runtime.errors import StageError
from cosyvoice_runtime.serving.hosted import model_host
from cosyvoice_runtime.serving.hosted.model_host import ModelHost
from cosyvoice_runtime.serving.triton.request import Inputs, Reply
from cosyvoice_runtime.serving.triton.schema import TENSORRT_LLM, TOKEN2WAV

PATH = "networks"


class RawCaller:
    """A connection to a host that sends what it is told."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE_S)
        self._socket.connect(str(path))
        self._reader = FrameReader()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def headers(self) -> Iterator[dict[str, Any]]:
        """Of all that comes, until the host hangs up."""
        while data := self._socket.recv(1 << 16):
            for frame in self._reader.feed(data):
                tensors = read_tensors(frame) if "tensors" in frame.header else {}
                yield {**frame.header, **({"tensors": sorted(tensors)} if tensors else {})}

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def lm() -> CountingLm:
    return CountingLm()


@pytest.fixture
def path(tmp_path: Path, lm: CountingLm) -> Iterator[Path]:
    host = ModelHost(tmp_path / PATH, {"tensorrt_llm": lm, "token2wav": EchoWave()})
    yield tmp_path / PATH
    host.close()


@pytest.fixture
def caller(path: Path) -> Iterator[RawCaller]:
    caller = RawCaller(path)
    yield caller
    caller.close()


def wave(**changes: Any) -> bytes:
    return request_frame("token2wav", "", TOKEN2WAV.encode(**WAVE | changes))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (LENGTHS.pack(8, 1 << 31), "a frame's content: 2147483648 bytes are not accepted"),
        (LENGTHS.pack(8, 0) + b"nonsense", "a frame's header is no JSON"),
        (LENGTHS.pack(8, 0) + b"[1, 2]  ", "a frame's header: list is not accepted; an object is expected"),
    ],
)
def test_bad_frame_ends_that_connection_alone_and_says_why(path, caller, data, message):
    other = RawCaller(path)
    caller.send(wave() + data)
    [*answers, refusal] = caller.headers()
    assert len(answers) <= 1
    assert refusal["status"] == "INVALID_ARGUMENT"
    assert message in refusal["message"]
    other.send(wave())
    assert next(other.headers())["tensors"] == ["waveform"]
    other.close()


@pytest.mark.parametrize(
    ("header", "status", "message"),
    [
        ({"model": "piano"}, "NOT_FOUND", "model: 'piano' is unknown; tensorrt_llm, token2wav answer here"),
        ({"model": ["a"]}, "NOT_FOUND", "model: ['a'] is unknown"),
        ({"model": "token2wav", "id": 3, "tensors": []}, "INVALID_ARGUMENT", "id: 3 is not accepted; a text"),
        ({"model": "token2wav", "tensors": [["x", "<f4", [2], 8]]}, "INVALID_ARGUMENT",
         "x: 8 is not accepted; 0 bytes are left of the content"),
    ],
)  # fmt: skip
def test_bad_request_ends_alone_and_the_connection_goes_on(caller, header, status, message):
    answers = caller.headers()
    caller.send(write_frame(header))
    refusal = next(answers)
    assert (refusal["status"], message in refusal["message"], refusal["last"]) == (status, True, True)
    caller.send(wave())
    assert next(answers)["tensors"] == ["waveform"]


def test_request_before_the_answer_to_the_last_is_no_frame(caller, lm):
    first = request_frame("tensorrt_llm", "a", TENSORRT_LLM.encode(**LM, text_open=True))
    caller.send(first + wave())
    assert "a frame after a request that has not been answered" in [*caller.headers()][-1]["message"]
    assert lm.replies[0].cancelled


def test_caller_that_leaves_in_the_middle_of_a_frame_leaves_nothing_behind(path, caller):
    caller.send(wave()[:50])
    caller.close()
    other = RawCaller(path)
    other.send(wave())
    assert next(other.headers())["tensors"] == ["waveform"]
    other.close()


class Flood:
    """Answers with a mebibyte again and again, until nobody is there.

    Attributes:
        sent: how often.
        ended: set when nobody was.
    """

    def __init__(self, most: int) -> None:
        self.sent = 0
        self.ended = threading.Event()
        self._most = most

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            threading.Thread(target=self._flood, args=(Reply(request, "flood"),)).start()

    def _flood(self, reply: Reply) -> None:
        with reply:
            while self.sent < self._most and not reply.cancelled:
                reply.send(waveform=np.zeros((1, 1 << 18), np.float32))
                self.sent += 1
                threading.Event().wait(0.001)
        self.ended.set()


@contextmanager
def flooding(path: Path, most: int) -> Iterator[Flood]:
    flood = Flood(most)
    host = ModelHost(path, {"token2wav": flood})
    yield flood
    host.close()


def test_reader_that_stands_still_is_taken_for_gone_before_memory_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(model_host, "MOST_UNREAD", 8 << 20)
    with flooding(tmp_path / PATH, 10_000) as flood:
        caller = RawCaller(tmp_path / PATH)
        caller.send(wave())
        assert flood.ended.wait(PATIENCE_S)
        caller.close()
    assert 8 <= flood.sent < 1000


def test_answers_that_nobody_asks_for_wait_in_the_socket(tmp_path):
    """And all of them come as soon as somebody does."""
    count = 100

    async def use(flood: Flood) -> tuple[int, int]:
        call = HostClient(tmp_path / PATH).call("token2wav")
        await call.begin(wave())
        await call.next()
        await asyncio.to_thread(flood.ended.wait, PATIENCE_S)
        await asyncio.sleep(0.1)
        held = len(call._connection._frames)
        found = 1
        while await call.next() is not None:
            found += 1
        return held, found

    with flooding(tmp_path / PATH, count) as flood:
        held, found = asyncio.run(asyncio.wait_for(use(flood), PATIENCE_S))
    assert found == count
    assert held <= host_client.MOST_UNREAD_FRAMES + 1


class Sizes:
    """Answers with the references that it gets."""

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            with Reply(request, "token2wav") as reply:
                reply.send(waveform=Inputs(request).required("prompt_speech_feat")[None])


def test_tensors_of_many_mebibytes_come_back(tmp_path):
    host = ModelHost(tmp_path / PATH, {"token2wav": Sizes()})
    prompt = np.random.default_rng(1).standard_normal((100_000, 80)).astype(np.float32)

    async def use() -> Any:
        calls = HostedCalls(tmp_path / PATH)
        outputs = await calls.infer(TOKEN2WAV, WAVE | {"prompt_speech_feat": prompt})
        calls.close()
        return outputs["waveform"]

    try:
        found = asyncio.run(use())
    finally:
        host.close()
    np.testing.assert_array_equal(found.reshape(-1, 80), prompt)


def test_calls_one_after_another_share_a_connection(path, monkeypatch):
    made: list[Path] = []
    connect = host_client._connected
    monkeypatch.setattr(host_client, "_connected", lambda path: made.append(path) or connect(path))

    async def use() -> int:
        calls = HostedCalls(path)
        for _ in range(5):
            await calls.infer(TOKEN2WAV, WAVE)
        one = len(made)
        with pytest.raises(StageError):
            await calls.infer(TOKEN2WAV, WAVE | {"speech_tokens": []})
        await asyncio.gather(*(calls.infer(TOKEN2WAV, WAVE) for _ in range(4)))
        calls.close()
        return one

    assert asyncio.run(asyncio.wait_for(use(), PATIENCE_S)) == 1
    assert len(made) == 4


def test_proxy_waits_for_a_host_that_many_want_and_not_for_one_that_is_away(path, tmp_path, monkeypatch):
    connect, tries = host_client._connected, []

    def crowded(path: Path) -> socket.socket:
        tries.append(path)
        if len(tries) < 3:
            raise BlockingIOError(11, "the queue is full")
        return connect(path)

    async def use() -> bool:
        monkeypatch.setattr(host_client, "_connected", crowded)
        client = HostClient(path)
        (await client.connect()).hang_up()
        with pytest.raises(FileNotFoundError):
            await HostClient(tmp_path / "nobody").connect()
        return len(tries) == 4

    assert asyncio.run(asyncio.wait_for(use(), PATIENCE_S))


def test_cancelled_call_takes_its_connection_along(path, lm):
    async def use() -> bool:
        calls = HostedCalls(path)
        responses = calls.stream(TENSORRT_LLM, LM | {"text_open": True}, "a")
        reading = asyncio.ensure_future(anext(responses))
        assert await asyncio.to_thread(lm.began.acquire, timeout=PATIENCE_S)
        reading.cancel()
        await asyncio.wait([reading])
        outputs = await calls.infer(TOKEN2WAV, WAVE)
        while not lm.replies[0].cancelled:
            await asyncio.sleep(0.01)
        calls.close()
        return "waveform" in outputs

    assert asyncio.run(asyncio.wait_for(use(), PATIENCE_S))

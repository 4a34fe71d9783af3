"""Models of one process, called on their socket as a server would be, and through a proxy."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hosted_calls import HostedCalls
from triton_python_backend_utils import InferenceRequest

from cosyvoice_runtime.errors import InvalidInput, NotFoundError, StageError
from cosyvoice_runtime.process.event_loop import LoopCalls
from cosyvoice_runtime.serving.hosted.hosted_request import Answers, ModelAnswer
from cosyvoice_runtime.serving.hosted.model_host import ModelHost
from cosyvoice_runtime.serving.proxies import ProxyModel
from cosyvoice_runtime.serving.triton.request import Inputs, Reply, answer
from cosyvoice_runtime.serving.triton.schema import TENSORRT_LLM, TOKEN2WAV
from eventually import eventually

PATIENCE_S = 30.0
LM = {"input_ids": [1, 2], "input_lengths": 2, "request_output_len": 5}
WAVE = {
    "utterance_id": "u",
    "speech_tokens": [1, 2, 3],
    "position": 0,
    "last": False,
    "voice_key": "v",
    "noise_seed": 0,
    "speed": 1.0,
}


class CountingLm:
    """Answers with as many ids as are asked for, one by one, from a thread of its own.

    Attributes:
        replies: of the requests that nobody has answered yet.
        texts: ids of all further text, in the order it came.
    """

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.texts: list[int] = []
        self.began = threading.Semaphore(0)

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            inputs, reply = Inputs(request), Reply(request, "tensorrt_llm")
            if (more := inputs.array("more_text")) is not None:
                self.texts += more.tolist()
                reply.finish()
            elif inputs.scalar("text_open", default=False):
                self.replies.append(reply)
            else:
                threading.Thread(target=self._count, args=(inputs, reply)).start()
            self.began.release()

    def _count(self, inputs: Inputs, reply: Reply) -> None:
        with reply:
            if inputs.array("input_ids")[0] == 13:
                raise InvalidInput("input_ids", 13, "a lucky number is expected")
            for number in range(inputs.scalar("request_output_len")):
                send_id(reply, number)


def send_id(reply: Reply, number: int) -> None:
    reply.send(output_ids=np.array([[[number]]], np.int32), finish_reason=np.array([[b""]], np.object_))


class EchoWave:
    """The tokens as a waveform."""

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            tokens = Inputs(request).required("speech_tokens")
            unknown = NotFoundError("voice_key", "v", "send it")
            waveform = {"waveform": tokens.astype(np.float32)[None]}
            answer(request, "token2wav", waveform if len(tokens) else unknown)


@pytest.fixture
def lm() -> CountingLm:
    return CountingLm()


@pytest.fixture
def socket(tmp_path: Path, lm: CountingLm):
    host = ModelHost(tmp_path / "networks", {"tensorrt_llm": lm, "token2wav": EchoWave()})
    yield tmp_path / "networks"
    host.close()


def run(socket: Path, use: Callable[[HostedCalls], Any]) -> Any:
    async def inner() -> Any:
        calls = HostedCalls(socket)
        try:
            return await asyncio.wait_for(use(calls), PATIENCE_S)
        finally:
            calls.close()

    return asyncio.run(inner())


async def ids(calls: HostedCalls, inputs: Mapping[str, Any] = LM) -> list[int]:
    stream = calls.stream(TENSORRT_LLM, inputs, "id")
    return [outputs["output_ids"].item() async for outputs in stream]


def test_stream_brings_every_response_of_the_model(socket):
    assert run(socket, ids) == [0, 1, 2, 3, 4]


def test_many_calls_at_a_time_get_their_own_answers(socket):
    async def use(calls: HostedCalls) -> list[list[int]]:
        return await asyncio.gather(*(ids(calls, LM | {"request_output_len": n}) for n in range(1, 40)))

    assert run(socket, use) == [list(range(n)) for n in range(1, 40)]


def test_call_that_answers_once(socket):
    outputs = run(socket, lambda calls: calls.infer(TOKEN2WAV, WAVE))
    assert outputs["waveform"].tolist() == [[1.0, 2.0, 3.0]]


def test_errors_of_models_keep_their_status_and_text(socket):
    bad = LM | {"input_ids": [13, 2]}
    for use, status, text in (
        (lambda calls: ids(calls, bad), "INVALID_ARGUMENT", "input_ids: 13 is not accepted"),
        (
            lambda calls: calls.infer(TOKEN2WAV, WAVE | {"speech_tokens": []}),
            "NOT_FOUND",
            "voice_key: 'v' is unk",
        ),
    ):
        with pytest.raises(StageError, match=text) as caught:
            run(socket, use)
        assert caught.value.status == status


def test_model_sees_that_its_caller_has_left(socket, lm):
    async def use(calls: HostedCalls) -> bool:
        stream = calls.stream(TENSORRT_LLM, LM | {"text_open": True}, "id")
        waiting = asyncio.ensure_future(anext(stream))
        assert await asyncio.to_thread(lm.began.acquire, timeout=PATIENCE_S)
        before = lm.replies[0].cancelled
        waiting.cancel()
        await asyncio.wait([waiting])
        await stream.aclose()
        while not lm.replies[0].cancelled:
            await asyncio.sleep(0.01)
        return before

    assert run(socket, use) is False


def test_host_takes_the_place_of_a_dead_one(tmp_path):
    path = tmp_path / "networks"
    path.touch()
    host = ModelHost(path, {"token2wav": EchoWave()})
    try:
        outputs = run(path, lambda calls: calls.infer(TOKEN2WAV, WAVE))
    finally:
        host.close()
    assert outputs["waveform"].tolist() == [[1.0, 2.0, 3.0]]


class ProxyRequests:
    """Requests that wait for their last response."""

    def __init__(self, socket: Path) -> None:
        self.proxy = ProxyModel("tensorrt_llm", socket)

    def ask(self, request_id: str = "", **inputs: Any) -> InferenceRequest:
        request = InferenceRequest(TENSORRT_LLM.encode(**inputs), request_id)
        request.sender = FinalSender()
        self.proxy.execute([request])
        return request


class FinalSender:
    def __init__(self) -> None:
        self.responses: list[Any] = []
        self.final = threading.Event()
        self.gone = False

    def is_cancelled(self) -> bool:
        return self.gone

    def send(self, response: Any = None, flags: int = 0) -> None:
        if response is not None:
            self.responses.append(response)
        if flags:
            self.final.set()


@pytest.fixture
def proxy(socket):
    proxy = ProxyRequests(socket)
    yield proxy
    proxy.proxy.finalize()


def test_proxy_passes_on_what_the_model_answers(proxy):
    request = proxy.ask(**LM)
    assert request.sender.final.wait(PATIENCE_S)
    found = [
        {each.name(): each.as_numpy() for each in one.output_tensors()} for one in request.sender.responses
    ]
    assert [outputs["output_ids"].item() for outputs in found] == [0, 1, 2, 3, 4]


def test_proxy_passes_errors_on_with_their_status(proxy):
    request = proxy.ask(**LM | {"input_ids": [13, 2]})
    assert request.sender.final.wait(PATIENCE_S)
    [response] = request.sender.responses
    assert response.error().message().startswith("INVALID_ARGUMENT: input_ids: 13 is not accepted")


def test_proxy_keeps_the_order_of_requests_with_one_id(proxy, lm):
    proxy.ask("id", **LM, text_open=True)
    for number in range(30):
        proxy.ask("id", more_text=[number])
    for _ in range(31):
        assert lm.began.acquire(timeout=PATIENCE_S)
    assert lm.texts == list(range(30))
    lm.replies[0].finish()


def test_proxy_lets_go_of_a_request_whose_client_has_left(proxy, lm):
    request = proxy.ask("id", **LM, text_open=True)
    assert lm.began.acquire(timeout=PATIENCE_S)
    request.sender.gone = True
    assert request.sender.final.wait(PATIENCE_S)
    eventually(lambda: lm.replies[0].cancelled)


def test_proxy_without_a_process_behind_it_says_so(tmp_path):
    proxy = ProxyRequests(tmp_path / "nobody")
    request = proxy.ask(**LM)
    assert request.sender.final.wait(PATIENCE_S)
    proxy.proxy.finalize()
    [response] = request.sender.responses
    assert response.error().message().startswith("UNAVAILABLE: tensorrt_llm: its process is away")


def test_calls_that_come_together_wake_the_loop_once_and_keep_their_order(monkeypatch):
    async def use() -> tuple[list[int], int]:
        loop, found, wakes = asyncio.get_running_loop(), [], []
        wake = loop.call_soon_threadsafe
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda call: wakes.append(call) or wake(call))
        calls = LoopCalls()
        for number in range(20):
            calls.add(partial(found.append, number))
        assert found == []
        await asyncio.sleep(0)
        calls.add(partial(found.append, 20))
        await asyncio.sleep(0)
        return found, len(wakes)

    assert asyncio.run(use()) == ([*range(21)], 2)


def test_calls_of_many_threads_are_all_made():
    async def use() -> list[tuple[int, int]]:
        calls, found, done = LoopCalls(), [], asyncio.Event()

        def add(thread: int) -> None:
            for number in range(500):
                calls.add(partial(found.append, (thread, number)))

        await asyncio.gather(*(asyncio.to_thread(add, thread) for thread in range(4)))
        calls.add(done.set)
        await asyncio.wait_for(done.wait(), PATIENCE_S)
        return found

    found = asyncio.run(use())
    assert [[number for by, number in found if by == thread] for thread in range(4)] == [[*range(500)]] * 4


def test_call_that_fails_leaves_those_behind_it():
    async def use() -> list[int]:
        calls, found = LoopCalls(), []
        for function in (partial(found.append, 1), partial(int, "x"), partial(found.append, 2)):
            calls.add(function)
        await asyncio.sleep(0)
        return found

    assert asyncio.run(use()) == [1, 2]


def test_answer_after_the_last_one_reaches_nobody():
    async def use() -> list[tuple[ModelAnswer | None, bool]]:
        sent = []
        answers = Answers(LoopCalls(), lambda *answer: sent.append(answer))
        answers.put(None, last=True)
        answers.put(ModelAnswer("m", {}), last=False)
        await asyncio.sleep(0)
        return sent

    assert asyncio.run(use()) == [(None, True)]


def test_calls_into_a_loop_that_has_ended_do_nothing():
    async def use() -> LoopCalls:
        return LoopCalls()

    calls, found = asyncio.run(use()), []
    calls.add(partial(found.append, 1))
    calls.add(partial(found.append, 2))
    assert found == []


LARGE = {
    "google.protobuf", "grpc", "onnxruntime", "prometheus_client", "pydantic", "torch", "transformers",
    "tritonclient",
}  # fmt: skip


@pytest.mark.parametrize(
    ("module", "needed"),
    [
        ("serving.proxies", set()),
        ("serving.hosted.model_host", {"pydantic"}),
        ("serving.speech.model", {"pydantic"}),
        ("serving.hosted.host_model", {"pydantic"}),
    ],
)
def test_processes_of_a_cpu_server_import_nothing_large_that_they_do_not_need(module, needed):
    program = (
        f"import sys, cosyvoice_runtime.{module}\n"
        f"found = ({LARGE} - {needed or set()}) & set(sys.modules)\n"
        "sys.exit(f'{found} is imported' if found else 0)"
    )
    path = os.pathsep.join(sys.path)
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": path})

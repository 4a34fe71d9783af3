"""Calls between models, against servers that fail or never answer."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import grpc
import numpy as np
import pytest

pytest.importorskip("tritonclient.grpc", reason="needs the environment of scripts/environment.py")

from stuck_server import FakeTriton, serving
from tritonclient.grpc import service_pb2

from cosyvoice_runtime.checkpoint.merged_vocabulary import MergedVocabulary
from cosyvoice_runtime.errors import StageError, StageLostError, StageSilentError, with_status
from cosyvoice_runtime.lm import FinishReason, Prompt, SamplingOptions
from cosyvoice_runtime.pipeline.stages import WaveSettings
from cosyvoice_runtime.pipeline.text_segment import TextPieces
from cosyvoice_runtime.serving.triton import stage_client
from cosyvoice_runtime.serving.triton.grpc_calls import GrpcCalls
from cosyvoice_runtime.serving.triton.schema import AUDIO_TOKENIZER, TENSORRT_LLM, TOKEN2WAV
from cosyvoice_runtime.serving.triton.stage_calls import StageCalls
from cosyvoice_runtime.serving.triton.stage_client import StageClient
from cosyvoice_runtime.voice.voice import Voice

WAV = {"reference_wav": [0.0] * 5, "reference_wav_len": 5}
LM = {"input_ids": [1, 2], "input_lengths": 2, "request_output_len": 5}
PATIENCE_S = 30.0


def open_calls(url: str, timeout_s: float, find: Callable[[str], int | None]) -> StageCalls:
    stages = (TENSORRT_LLM, TOKEN2WAV, AUDIO_TOKENIZER)
    return StageCalls(dict.fromkeys((each.name for each in stages), GrpcCalls(url)), timeout_s, find)


async def whole_stream(calls: StageCalls) -> list[object]:
    return [outputs async for outputs in calls.stream(TENSORRT_LLM, LM, "id")]


def run(fake: FakeTriton, timeout_s: float, use, find=lambda model: None) -> object:
    """What ``use(calls)`` gives, within a time that no test reaches unless something hangs."""

    async def inner(url: str) -> object:
        calls = open_calls(url, timeout_s, find)
        try:
            return await asyncio.wait_for(use(calls), PATIENCE_S)
        finally:
            await calls.close()

    with serving(fake) as url:
        return asyncio.run(inner(url))


def test_stream_that_is_never_answered_ends_with_its_timeout_and_is_cancelled():
    fake = FakeTriton()
    fake.stream = fake.hang
    with pytest.raises(StageSilentError, match=r"tensorrt_llm sent nothing for 5 s"):
        run(fake, 5.0, whole_stream)
    assert fake.cancelled.wait(PATIENCE_S)


def test_call_that_is_never_answered_ends_with_its_timeout():
    fake = FakeTriton()
    fake.infer = fake.hang
    with pytest.raises(StageSilentError, match=r"audio_tokenizer sent nothing for 0\.2 s"):
        run(fake, 0.2, lambda calls: calls.call(AUDIO_TOKENIZER, WAV))


def test_nobody_listens():
    async def use() -> None:
        calls = open_calls("127.0.0.1:9", PATIENCE_S, lambda model: None)
        try:
            await calls.call(AUDIO_TOKENIZER, WAV)
        finally:
            await calls.close()

    with pytest.raises(StageError) as caught:
        asyncio.run(use())
    assert caught.value.status == "UNAVAILABLE"


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        (with_status("UNAVAILABLE", "full"), "UNAVAILABLE", "full"),
        (with_status("NOT_FOUND", "no voice"), "NOT_FOUND", "no voice"),
        ("target_text: 'x is unknown; Exceeds maximum queue size' try again later", "INTERNAL", None),
        ("Exceeds maximum queue size", "INTERNAL", None),
        (with_status("INVALID_ARGUMENT", "UNAVAILABLE: said a client"), "INVALID_ARGUMENT",
         "UNAVAILABLE: said a client"),
    ],
)  # fmt: skip
def test_status_of_a_streamed_error_is_the_word_at_its_beginning(text, status, message):
    fake = FakeTriton()
    fake.stream = lambda request, context: iter([service_pb2.ModelStreamInferResponse(error_message=text)])
    with pytest.raises(StageError) as caught:
        run(fake, PATIENCE_S, whole_stream)
    assert (caught.value.status, str(caught.value)) == (status, message or text)


def test_status_of_a_call_is_that_of_grpc():
    fake = FakeTriton()
    fake.infer = lambda request, context: context.abort(grpc.StatusCode.NOT_FOUND, "UNAVAILABLE: x")
    with pytest.raises(StageError) as caught:
        run(fake, PATIENCE_S, lambda calls: calls.call(AUDIO_TOKENIZER, WAV))
    assert caught.value.status == "NOT_FOUND"


def test_many_streams_need_a_handful_of_threads():
    fake = FakeTriton()
    fake.stream = fake.hang
    found: list[int] = []

    async def use(calls: StageCalls) -> None:
        streams = [asyncio.create_task(whole_stream(calls)) for _ in range(64)]
        while len(fake.requests) < 64:
            await asyncio.sleep(0.01)
        found.append(sum(not thread.name.startswith("ThreadPool") for thread in threading.enumerate()))
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)

    before = threading.active_count()
    run(fake, PATIENCE_S, use)
    assert found[0] - before < 10


@pytest.fixture
def stopped_once(monkeypatch):
    """Who leaves says so once, however long the answer takes."""
    monkeypatch.setattr(stage_client, "STOP_AGAIN_S", PATIENCE_S)


@pytest.mark.usefixtures("stopped_once")
def test_left_stream_is_stopped_in_band_and_read_to_its_end():
    """The speech LM ends it: a stream that is cancelled just as it ends can abort Triton 2.51."""
    fake, stopped = FakeTriton(), threading.Event()
    response = service_pb2.ModelStreamInferResponse()
    for name, datatype, content in (
        ("output_ids", "INT32", b"\0" * 4),
        ("finish_reason", "BYTES", b"\0" * 4),
    ):
        tensor = response.infer_response.outputs.add(name=name, datatype=datatype, shape=[1, 1, 1])
        tensor.shape[:] = [1, 1, 1] if datatype == "INT32" else [1, 1]
        response.infer_response.raw_output_contents.append(content)

    def stream(request, context):
        if any(tensor.name == "stop" for tensor in request.inputs):
            stopped.set()
            return
        yield response
        stopped.wait(PATIENCE_S)
        yield response

    fake.stream = stream

    async def use(calls: StageCalls) -> None:
        stages = StageClient(calls, MergedVocabulary(100, 6564))
        groups = stages.generate(Prompt([1]), SamplingOptions(), "id", 1)
        await anext(groups)
        await groups.aclose()
        await stages.close()

    run(fake, PATIENCE_S, use)
    assert stopped.is_set()
    assert not fake.cancelled.is_set()
    assert [request.id for request in fake.requests] == ["id", "id"]


def token_response(token: int, reason: bytes = b"") -> service_pb2.ModelStreamInferResponse:
    response = service_pb2.ModelStreamInferResponse()
    for name, datatype, shape, content in (
        ("output_ids", "INT32", [1, 1, 1], token.to_bytes(4, "little")),
        ("finish_reason", "BYTES", [1, 1], len(reason).to_bytes(4, "little") + reason),
    ):
        response.infer_response.outputs.add(name=name, datatype=datatype, shape=shape)
        response.infer_response.raw_output_contents.append(content)
    return response


def said(request) -> str:
    """What a request to the speech LM is about."""
    names = {tensor.name for tensor in request.inputs}
    return next(name for name in ("text_open", "more_text", "end_text", "stop") if name in names)


def answer_pieces(request, context) -> Iterator[service_pb2.ModelStreamInferResponse]:
    """A token for each piece, and a reason at the end."""
    if said(request) == "more_text":
        yield token_response(len(request.raw_input_contents[0]) // 4)
    if said(request) == "end_text":
        yield token_response(0, b"stop")


VOCABULARY = MergedVocabulary(100, 6564)


def test_text_in_pieces_follows_its_request_in_the_same_stream_and_in_order():
    fake = FakeTriton()
    fake.stream = answer_pieces

    async def use(calls: StageCalls) -> list[tuple[list[int], FinishReason | None]]:
        stages, pieces = StageClient(calls, VOCABULARY), TextPieces()
        groups = stages.generate_from_pieces(Prompt(()), pieces, SamplingOptions(ceiling=500), "id", 1)
        found = []
        pieces.put([1, 2, 3])
        found.append(await anext(groups))
        pieces.put([4])
        found.append(await anext(groups))
        pieces.end()
        found += [group async for group in groups]
        await stages.close()
        return [(list(group.tokens), group.finish_reason) for group in found]

    offset = VOCABULARY.speech_offset
    assert run(fake, PATIENCE_S, use) == [
        ([3 - offset], None), ([1 - offset], None), ([-offset], FinishReason.STOP)
    ]  # fmt: skip
    assert [said(request) for request in fake.requests] == ["text_open", "more_text", "more_text", "end_text"]
    assert {request.id for request in fake.requests} == {"id"}
    assert not fake.cancelled.is_set()


@pytest.mark.parametrize("in_pieces", [False, True], ids=["whole text", "text in pieces"])
def test_only_the_start_of_a_long_silence_is_passed_on(in_pieces):
    fake, offset, said_codes = FakeTriton(), VOCABULARY.speech_offset, [7, *[1, 2] * 4, 7, 2]

    def stream(request, context) -> Iterator[service_pb2.ModelStreamInferResponse]:
        for code in said_codes:
            yield token_response(offset + code)
        yield token_response(offset + 1, b"stop")

    fake.stream = stream

    async def use(calls: StageCalls) -> list[int]:
        stages = StageClient(calls, VOCABULARY, silent_tokens={1, 2})
        if in_pieces:
            pieces = TextPieces()
            pieces.end()
            groups = stages.generate_from_pieces(Prompt(()), pieces, SamplingOptions(ceiling=500), "id", 1)
        else:
            groups = stages.generate(Prompt([1]), SamplingOptions(), "id", 1)
        found = [group async for group in groups]
        await stages.close()
        assert found[-1].finish_reason is FinishReason.STOP
        return [token for group in found for token in group.tokens]

    assert run(fake, PATIENCE_S, use) == [7, 1, 2, 1, 2, 1, 7, 2, 1]


@pytest.mark.parametrize(
    ("in_pieces", "most", "wanted"), [(False, 60, [13, 25]), (False, 9, [9, 9]), (True, 60, [13, 25])]
)
def test_speech_lm_is_told_in_which_groups_tokens_can_be_used(in_pieces, most, wanted):
    fake = FakeTriton()
    fake.stream = answer_pieces if in_pieces else lambda *_: iter([token_response(0, b"stop")])

    async def use(calls: StageCalls) -> None:
        stages = StageClient(calls, VOCABULARY, group_tokens=25)
        if in_pieces:
            pieces = TextPieces()
            pieces.end()
            groups = stages.generate_from_pieces(Prompt(()), pieces, SamplingOptions(ceiling=most), "id", 13)
        else:
            groups = stages.generate(Prompt([1]), SamplingOptions(max_tokens=most), "id", 13)
        assert [group async for group in groups]
        await stages.close()

    run(fake, PATIENCE_S, use)
    given = dict(
        zip(
            [tensor.name for tensor in fake.requests[0].inputs],
            fake.requests[0].raw_input_contents,
            strict=True,
        )
    )
    assert [int.from_bytes(given[name], "little") for name in ("first_tokens", "group_tokens")] == wanted


def test_instruction_and_transcript_reach_the_speech_lm_before_the_text():
    fake = FakeTriton()
    fake.stream = lambda request, context: iter([token_response(VOCABULARY.speech_offset, b"stop")])

    async def use(calls: StageCalls) -> None:
        stages = StageClient(calls, VOCABULARY)
        prompt = Prompt([5], prompt_text=[4], prompt_speech=[0], lead_text=[2, 3])
        assert [group async for group in stages.generate(prompt, SamplingOptions(), "id", 1)]
        await stages.close()

    run(fake, PATIENCE_S, use)
    [request] = fake.requests
    place = [tensor.name for tensor in request.inputs].index("input_ids")
    ids = np.frombuffer(request.raw_input_contents[place], np.int32).tolist()
    assert ids == [VOCABULARY.sos_id, 2, 3, 4, 5, VOCABULARY.task_id, VOCABULARY.speech_offset]


@pytest.mark.usefixtures("stopped_once")
def test_left_text_in_pieces_is_stopped_in_band_and_its_stream_ends():
    fake = FakeTriton()
    fake.stream = answer_pieces

    async def use(calls: StageCalls) -> None:
        stages, pieces = StageClient(calls, VOCABULARY), TextPieces()
        groups = stages.generate_from_pieces(Prompt(()), pieces, SamplingOptions(ceiling=500), "id", 1)
        pieces.put([1])
        await anext(groups)
        await groups.aclose()
        await stages.close()

    run(fake, PATIENCE_S, use)
    assert sorted(map(said, fake.requests)) == ["more_text", "stop", "text_open"]
    assert not fake.cancelled.is_set()


def test_stage_that_ends_while_nothing_is_asked_of_it_is_told(stage):
    async def use(calls: StageCalls) -> None:
        waiting = asyncio.ensure_future(StageClient(calls, VOCABULARY).lost())
        for name in (TENSORRT_LLM.name, TOKEN2WAV.name):
            assert await calls.stages.life(name) is not None
        stage.kill()
        await waiting

    with pytest.raises(StageLostError, match=LOST_TEXT):
        run(FakeTriton(), PATIENCE_S, use, stage.find)


def test_stuck_speech_lm_holds_nobody_who_leaves(monkeypatch):
    monkeypatch.setattr("cosyvoice_runtime.serving.triton.stage_client.CLEANUP_TIMEOUT_S", 0.2)
    fake = FakeTriton()
    fake.stream = fake.hang

    async def use(calls: StageCalls) -> None:
        stages = StageClient(calls, MergedVocabulary(100, 6564))
        groups = stages.generate(Prompt([1]), SamplingOptions(), "id", 1)
        reading = asyncio.create_task(anext(groups))
        while not fake.requests:
            await asyncio.sleep(0.01)
        reading.cancel()
        await asyncio.wait([reading])
        await stages.close()

    run(fake, PATIENCE_S, use)
    assert fake.cancelled.wait(PATIENCE_S)


def test_calls_need_no_torch():
    module = "cosyvoice_runtime.serving.triton.grpc_calls"
    code = f"import sys, {module}; print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"


class StageProcess:
    """The process of every model, for those who look for it."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(["sleep", "1000"])

    def find(self, model: str) -> int | None:
        return self._process.pid if self._process.poll() is None else None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def stage() -> Iterator[StageProcess]:
    process = StageProcess()
    yield process
    process.kill()


def not_away(calls: StageCalls) -> bool:
    try:
        calls.stages.require(TENSORRT_LLM.name)
    except StageLostError:
        return False
    return True


LOST_TEXT = "is being started again; try again later"


@pytest.mark.parametrize("kind", ["stream", "call"])
def test_calls_in_flight_end_at_once_when_the_process_of_the_model_ends(stage, kind):
    fake = FakeTriton()
    asked = threading.Event()

    def hang(request, context):
        asked.set()
        return fake.hang(request, context)

    fake.stream = fake.infer = hang
    calls_of = {"stream": whole_stream, "call": lambda calls: calls.call(AUDIO_TOKENIZER, WAV)}

    async def use(calls: StageCalls) -> None:
        calling = asyncio.ensure_future(calls_of[kind](calls))
        while not asked.is_set():
            await asyncio.sleep(0.01)
        stage.kill()
        await calling

    with pytest.raises(StageLostError, match=LOST_TEXT):
        run(fake, 10 * PATIENCE_S, use, stage.find)


def test_model_that_ended_is_not_called_until_it_is_back_and_loaded(stage):
    fake = FakeTriton()
    fake.stream = lambda request, context: iter(())
    called: list[int] = []

    async def use(calls: StageCalls) -> None:
        assert await whole_stream(calls) == []
        fake.ready = False
        stage.kill()
        while not_away(calls):
            await asyncio.sleep(0.01)
        with pytest.raises(StageLostError):
            await whole_stream(calls)
        called.append(len(fake.requests))
        stage.start()
        with pytest.raises(StageLostError):
            await calls.stages.back(0.5)  # its process is there, but not loaded
        fake.ready = True
        await calls.stages.back(PATIENCE_S)
        assert await whole_stream(calls) == []

    run(fake, PATIENCE_S, use, stage.find)
    assert called == [1]
    assert len(fake.requests) == 2


@pytest.mark.parametrize("ready", [True, False])
def test_error_of_the_server_about_a_model_that_is_not_loaded_says_try_again(ready):
    fake, text = FakeTriton(), "Request for unknown model: 'tensorrt_llm' has no available versions"
    fake.ready = ready
    fake.stream = lambda request, context: iter([service_pb2.ModelStreamInferResponse(error_message=text)])
    with pytest.raises(StageError) as caught:
        run(fake, PATIENCE_S, whole_stream)
    found = (caught.value.status, str(caught.value))
    assert found == (("INTERNAL", text) if ready else ("UNAVAILABLE", f"tensorrt_llm {LOST_TEXT}"))


def test_utterance_that_a_chunk_opened_after_its_cancel_is_cancelled_again(stage):
    fake, cancels, sent = FakeTriton(), [], {}
    cancelled = threading.Event()

    def infer(request, context):
        if any(tensor.name == "cancel" for tensor in request.inputs):
            cancels.append(request)
            cancelled.set()
        else:
            names = (tensor.name for tensor in request.inputs)
            sent.update(zip(names, request.raw_input_contents, strict=True))
            cancelled.wait(PATIENCE_S)  # the chunk is slower than the cancel
        response = service_pb2.ModelInferResponse()
        response.outputs.add(name="waveform", datatype="FP32", shape=[1, 1])
        response.raw_output_contents.append(b"\0" * 4)
        return response

    fake.infer = infer
    voice = Voice(
        "0" * 64, "x", np.zeros(1, np.int32), np.zeros((2, 80), np.float32), np.zeros(192, np.float32), "c"
    )

    async def use(calls: StageCalls) -> None:
        stages = StageClient(calls, MergedVocabulary(100, 6564))
        settings = WaveSettings(voice, 1, continues=True)
        waving = asyncio.create_task(stages.wave("id", [1], 0, False, settings, 0.0))
        await asyncio.sleep(0)
        waving.cancel()
        await asyncio.wait([waving])
        stages.drop("id")
        await stages.close()

    run(fake, PATIENCE_S, use)
    assert len(cancels) == 2
    assert sent["continues"] == b"\1"


def test_where_processes_can_not_be_watched_calls_go_on(stage, monkeypatch, caplog):
    def refuse(pid: int) -> int:
        raise PermissionError("not here")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    fake = FakeTriton()
    fake.stream = lambda request, context: iter(())
    assert run(fake, PATIENCE_S, whole_stream, stage.find) == []
    assert "can't be watched: not here" in caplog.text

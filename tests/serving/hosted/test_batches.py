"""A model that answers whole batches, called on the socket of a process and through a proxy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hosted_calls import HostedCalls
from test_model_host import PATIENCE_S, FinalSender
from triton_python_backend_utils import InferenceRequest

from cosyvoice_runtime.errors import StageError
from cosyvoice_runtime.serving.hosted.extractors import Batches
from cosyvoice_runtime.serving.hosted.model_host import ModelHost
from cosyvoice_runtime.serving.proxies import ProxyModel
from cosyvoice_runtime.serving.triton.request import Inputs, respond
from cosyvoice_runtime.serving.triton.schema import AUDIO_TOKENIZER
from cosyvoice_runtime.settings import AudioTokenizerSettings

REFERENCE = {"reference_wav": np.arange(3, dtype=np.float32)}


class Lengths:
    """Answers whole batches with the lengths of their references, when it is let; one of length 13 breaks it,
    and one of length 17 it forgets.

    Attributes:
        batches: sizes of those that it got.
    """

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.began, self.may_answer = threading.Semaphore(0), threading.Semaphore(0)

    def execute(self, requests: list[Any]) -> list[Any]:
        self.batches.append(len(requests))
        self.began.release()
        assert self.may_answer.acquire(timeout=PATIENCE_S)
        lengths = [Inputs(request).required("reference_wav").size for request in requests]
        if 13 in lengths:
            raise RuntimeError("broken")
        outputs = [{"prompt_speech_tokens": np.array([[length]], np.int32)} for length in lengths]
        return [respond("audio_tokenizer", each) for each in outputs if 17 not in lengths]

    def finalize(self) -> None:
        self.batches.append(0)


@pytest.fixture
def lengths() -> Lengths:
    return Lengths()


@pytest.fixture
def batched(tmp_path: Path, lengths: Lengths):
    """Where the model answers: two at a time, and two may wait."""
    settings = AudioTokenizerSettings(max_batch=2, max_queue_size=2)
    batches = Batches(lengths, settings)
    host = ModelHost(tmp_path / "networks", {"audio_tokenizer": batches})
    yield tmp_path / "networks"
    for _ in range(9):
        lengths.may_answer.release()
    batches.finalize()
    assert lengths.batches[-1] == 0
    host.close()


@asynccontextmanager
async def extracting(socket: Path) -> AsyncIterator[Callable[[int], asyncio.Future[Any]]]:
    """A function that sends a reference of a length."""
    calls = HostedCalls(socket)
    try:
        yield lambda length: asyncio.ensure_future(
            calls.infer(AUDIO_TOKENIZER, {"reference_wav": np.zeros(length, np.float32)})
        )
    finally:
        calls.close()


def test_what_waits_for_a_batch_model_shares_batches_and_one_too_many_is_refused(batched, lengths):
    async def use() -> list[Any]:
        async with extracting(batched) as send:
            first = send(1)
            assert await asyncio.to_thread(lengths.began.acquire, timeout=PATIENCE_S)
            later = [send(length) for length in (2, 3, 4)]
            refused, others = await asyncio.wait(later, return_when=asyncio.FIRST_COMPLETED)
            for _ in range(2):
                lengths.may_answer.release()
            found = await asyncio.gather(first, *others)
            return [
                [each.exception() for each in refused],
                [len(one["prompt_speech_tokens"]) for one in found],
            ]

    refusals, answers = asyncio.run(asyncio.wait_for(use(), PATIENCE_S))
    assert len(answers) == 3
    assert answers[0] == 1
    [refusal] = refusals
    assert refusal.status == "UNAVAILABLE"
    assert "max_queue_size: 2 requests wait" in str(refusal)
    assert lengths.batches == [1, 2]


@pytest.mark.parametrize("length", [13, 17])
def test_batch_that_fails_is_answered_and_the_next_one_computed(batched, lengths, length):
    async def use() -> Any:
        async with extracting(batched) as send:
            for _ in range(2):
                lengths.may_answer.release()
            with pytest.raises(StageError, match="internal error"):
                await send(length)
            return await send(5)

    outputs = asyncio.run(asyncio.wait_for(use(), PATIENCE_S))
    assert outputs["prompt_speech_tokens"].tolist() == [[5]]


def test_proxy_of_a_model_that_answers_once_answers_once(batched, lengths):
    proxy = ProxyModel("audio_tokenizer", batched, streamed=False)
    request = InferenceRequest(AUDIO_TOKENIZER.encode(**REFERENCE))
    request.sender = FinalSender()
    lengths.may_answer.release()
    assert proxy.execute([request]) == [None]
    assert request.sender.final.wait(PATIENCE_S)
    proxy.finalize()
    [response] = request.sender.responses
    assert response.error() is None
    assert response.output_tensors()[0].as_numpy().tolist() == [[3]]

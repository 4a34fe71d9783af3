"""A real server with one place: for whom it is, and what the others are told."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http
from speaking import TEXT, client
from tritonclient.utils import InferenceServerException

from cosyvoice_client import AsyncSpeechClient, AudioChunk, SpeechRequest, UnavailableError
from cosyvoice_runtime.metrics.metrics import DIRECTORY_VARIABLE
from cosyvoice_runtime.process import processes
from cosyvoice_runtime.process.headers import PROBE_KEY_VARIABLE
from cosyvoice_runtime.serving.speech.admission import FIRST_WAIT_S, LONGEST_WAIT_S, VALID_S
from cosyvoice_runtime.supervisor import Server
from cosyvoice_runtime.supervisor.calls import Probe

LONG = SpeechRequest("A sentence that takes a moment to say. " * 40, seed=3)
HEADER = "x-client-id"
TRIES = 10
PROBE = Path(__file__).parents[2] / "model_repo" / "cosyvoice2" / "probe.json"


@pytest.fixture(scope="module")
def server(serve_all, tmp_path_factory) -> Iterator[Server]:
    texts = {
        "cosyvoice2.max_inflight_utterances": 1,
        "cosyvoice2.voices_dir": tmp_path_factory.mktemp("voices"),
    }
    with serve_all(**texts) as server:
        yield server


@pytest.fixture
def full(server: Server) -> Iterator[Server]:
    """The server while an utterance of the streaming model has its place."""
    with closing(speaking(server)):
        yield server


def speaking(server: Server) -> Generator[AudioChunk, None, None]:
    """An utterance that has begun, after those who were refused by the test before have lost their turn."""
    while True:
        chunks = client(server).speak(LONG)
        try:
            next(chunks)
        except UnavailableError as error:
            time.sleep(error.retry_after_s)
        else:
            return chunks


def streamed(server: Server, name: str | None) -> UnavailableError:
    """The refusal of an utterance of the streaming model."""

    async def speak() -> None:
        async with AsyncSpeechClient(server.grpc_url, name=name) as one:
            async for _ in one.speak(SpeechRequest(TEXT)):
                pass

    with pytest.raises(UnavailableError) as caught:
        asyncio.run(speak())
    return caught.value


def text_input(module):
    tensor = module.InferInput("target_text", [1, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[TEXT.encode()]], np.object_))
    return [tensor]


def whole(server: Server, module, **options) -> str:
    """The refusal of an utterance of the model that answers at once."""
    url = server.grpc_url if module is grpc else server.http_url
    with (
        module.InferenceServerClient(url) as one,
        pytest.raises(InferenceServerException) as caught,
    ):
        one.infer("cosyvoice2_offline", text_input(module), **options)
    return str(caught.value)


def test_probe_takes_no_place_and_its_key_opens_none_to_clients(full: Server, metric) -> None:
    def ended(how: str) -> float:
        return metric(full, "cosyvoice_requests_total", model="cosyvoice2", ending=how)

    known = environment_of(full, "cosyvoice2")
    probe = Probe.read(PROBE, known[PROBE_KEY_VARIABLE])
    refused, completed = ended("refused"), ended("completed")
    probe(f"unix:{Path(known[DIRECTORY_VARIABLE]).parent}/grpc:1", 120.0)
    assert (ended("refused"), ended("completed")) == (refused, completed + 1)
    probe(full.grpc_url, 120.0)  # answered: a refusal is an answer
    assert (ended("refused"), ended("completed")) == (refused + 1, completed + 1)


def test_both_entry_models_share_the_place_and_say_when_to_come_back(full):
    assert streamed(full, None).retry_after_s > 0
    for module in (grpc, http):
        assert "try again in " in whole(full, module)


def test_client_is_known_by_its_name_however_it_asks(full):
    """Three wait; the first of them asks again in other ways, and the fourth still has three before it.

    Whoever does not come back in time is forgotten: where asking takes longer, all ask once more.
    """
    for _ in range(TRIES):
        begin = time.monotonic()
        first, second, third = (streamed(full, name).retry_after_s for name in ("first", "second", "third"))
        whole(full, grpc, headers={HEADER: "first"})
        whole(full, http, headers={"X-Client-Id": "first"})
        fourth = streamed(full, "fourth").retry_after_s
        if time.monotonic() - begin < first + VALID_S:
            break
        time.sleep(fourth + VALID_S)
    else:
        pytest.skip(f"this machine can't ask six times within {first + VALID_S:.1f} s")
    if fourth > LONGEST_WAIT_S:
        pytest.skip("this machine speaks so slowly that all are told the longest time")
    assert fourth - third == pytest.approx(third - second, abs=0.25)


def test_refusal_needs_nothing_of_the_models(full, metric):
    """They are stopped meanwhile: the gateways refuse, count, and know whose turn it is."""
    labels = {"model": "cosyvoice2", "ending": "refused"}
    before = metric(full, "cosyvoice_requests_total", **labels)
    with stopped(full, "cosyvoice2", "cosyvoice2_offline"):
        first, second, asked = next_two(full)
        assert first < second
        for module in (grpc, http):
            assert "1 utterances are in progress, the limit; try again in " in whole(full, module)
        for path in ("cosyvoice2/generate_stream", "cosyvoice2_offline/generate_stream"):
            assert generated(full, path) == 503
        assert metric(full, "cosyvoice_requests_total", **labels) == before + asked + 1
    full_again = streamed(full, "one")  # the models are the same and as full as before
    assert full_again.retry_after_s > 0


def next_two(server: Server) -> tuple[float, float, int]:
    """What the next in turn is told and who comes after it, and how often somebody asked for that.

    The next in turn asks until those are forgotten who were refused before and don't come back; both ask once
    more where asking takes so long that the first of them is forgotten itself.
    """
    asked = 0
    for _ in range(TRIES):
        begin, first = time.monotonic(), streamed(server, "one").retry_after_s
        asked += 1
        if first > FIRST_WAIT_S:
            time.sleep(first)
            continue
        second = streamed(server, "other").retry_after_s
        asked += 1
        if time.monotonic() - begin < first + VALID_S:
            return first, second, asked
    assert first <= FIRST_WAIT_S, "it never was the next in turn"
    pytest.skip(f"this machine can't ask twice within {first + VALID_S:.1f} s")


@contextmanager
def stopped(server: Server, *models: str) -> Iterator[None]:
    pids = [each.pid for each in processes.session_members(server.session) if each.model in models]
    assert len(pids) == len(models)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def generated(server: Server, path: str) -> int:
    """The status of an answer to ``generate_stream``."""
    body = json.dumps({"target_text": TEXT}).encode()
    with closing(HTTPConnection(server.http_url, timeout=60.0)) as connection:
        connection.request("POST", f"/v2/models/{path}", body)
        return connection.getresponse().status


def environment_of(server: Server, model: str) -> dict[str, str]:
    """The variables of a model's process."""
    [member] = [each for each in processes.session_members(server.session) if each.model == model]
    variables = Path(f"/proc/{member.pid}/environ").read_bytes().decode().split("\0")
    return dict(variable.split("=", 1) for variable in variables if variable)

"""Servers of ``cosyvoice2`` that are full, lose one stage after the other, or stop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from speaking import TEXT, assert_same_audio, client, outcome, reference

from cosyvoice_client import ClientError, SpeechRequest, UnavailableError
from cosyvoice_runtime.process import processes
from cosyvoice_runtime.supervisor import Server


@pytest.fixture(scope="module")
def server(serve_all, tmp_path_factory) -> Iterator[Server]:
    """One that loses its stages, each a process, and has brought all of them back before the next test."""
    voices = tmp_path_factory.mktemp("voices")
    texts = {"cosyvoice2.voices_dir": voices, "cosyvoice2.child_timeout_s": 20}
    with serve_all(**texts) as server:
        yield server


def test_utterance_over_the_limit_is_unavailable_and_the_others_finish(serve_all, tmp_path):
    with serve_all(**{"cosyvoice2.max_inflight_utterances": 2, "cosyvoice2.voices_dir": tmp_path}) as server:
        with ThreadPoolExecutor(8) as pool:
            request = SpeechRequest("A sentence that takes a moment to say. " * 6, seed=3)
            outcomes = list(pool.map(lambda _: outcome(server, request), range(8)))
        audios = [each for each in outcomes if isinstance(each, np.ndarray)]
        refusals = [each for each in outcomes if isinstance(each, UnavailableError)]
        assert len(audios) + len(refusals) == 8
        assert audios
        assert refusals
        assert any("2 utterances are in progress" in str(refusal) for refusal in refusals)


def test_engine_killed_during_an_utterance_ends_it_with_one_error_and_the_server_recovers(server, eventually):
    request = SpeechRequest(TEXT, reference(), seed=1)
    before = spoken_again(server, request, eventually)
    chunks = client(server).speak(SpeechRequest(f"{TEXT} " * 60, seed=1))
    next(chunks)
    os.kill(stub_of(server, "token2wav"), signal.SIGKILL)
    with pytest.raises(ClientError) as caught:
        list(chunks)
    assert_tells(caught.value, "token2wav")
    after = spoken_again(server, request, eventually)
    assert_same_audio(after, before)


def test_engine_killed_spoils_no_voice(server, eventually):
    """A new voice right after the kill is an error or, when the engine is back by then, its own audio."""
    request = SpeechRequest(TEXT, reference(190), seed=1)
    os.kill(stub_of(server, "token2wav"), signal.SIGKILL)
    first = outcome(server, request)
    after = spoken_again(server, request, eventually)
    if isinstance(first, ClientError):
        assert_tells(first, "token2wav")
    else:
        assert_same_audio(first, after)


def assert_tells(error: ClientError, model: str) -> None:
    """The failure of a stage, named, and nothing of the server's inside."""
    assert model in str(error)
    assert error.kind in ("internal", "unavailable", "not_found")
    assert "Traceback" not in str(error)


def spoken_again(server: Server, request: SpeechRequest, eventually) -> np.ndarray:
    """The audio as soon as the server speaks."""
    outcomes: list[np.ndarray | ClientError] = []

    def speaks() -> bool:
        outcomes.append(outcome(server, request))
        return isinstance(outcomes[-1], np.ndarray)

    eventually(speaks, timeout_s=300)
    return outcomes[-1]


def stub_of(server: Server, model: str) -> int:
    """Process of a model's stub."""
    return next(each.pid for each in processes.session_members(server.session) if each.model == model)


def test_stopping_under_load_loses_no_started_utterance(serve_all, tmp_path):
    with serve_all(**{"cosyvoice2.voices_dir": tmp_path}) as server:
        request = SpeechRequest("A sentence that takes a moment to say. " * 3, seed=3)
        started = threading.Barrier(5, timeout=300)
        complete: list[bool] = []

        def listen() -> None:
            chunks = client(server).speak(request)
            reasons = [next(chunks).finish_reason]
            started.wait()
            reasons += [chunk.finish_reason for chunk in chunks]
            complete.append(reasons[-1] != "")

        threads = [threading.Thread(target=listen) for _ in range(4)]
        for thread in threads:
            thread.start()
        started.wait()
    for thread in threads:
        thread.join()
    assert complete == [True] * 4
    assert server.drained

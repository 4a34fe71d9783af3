"""Servers of ``cosyvoice2`` that are full, lose a stage, or stop: each with one of its own."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from speaking import TEXT, client, outcome, reference

from cosyvoice_client import ClientError, SpeechRequest, UnavailableError
from cosyvoice_runtime.supervisor import Server, processes


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
        assert "2 utterances are in progress" in str(refusals[0])


@pytest.mark.parametrize("model", ["tensorrt_llm", "token2wav", "audio_tokenizer"])
def test_killed_stage_is_one_clear_error_and_the_server_recovers(serve_all, tmp_path, eventually, model):
    def speaks() -> bool:
        return isinstance(outcome(server, SpeechRequest(TEXT, reference(), seed=1)), np.ndarray)

    texts = {"cosyvoice2.voices_dir": tmp_path, "cosyvoice2.child_timeout_s": 5}
    with serve_all(**texts) as server:
        eventually(speaks)
        os.kill(stub_of(server, model), signal.SIGKILL)
        result = outcome(server, SpeechRequest(TEXT, reference(190), seed=1))
        assert isinstance(result, np.ndarray | ClientError)
        if isinstance(result, ClientError):
            assert "Traceback" not in str(result)
        eventually(speaks, timeout_s=300)


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

"""A server of ``cosyvoice2`` that is stopped while it speaks."""

from __future__ import annotations

import threading

from speaking import client

from cosyvoice_client import SpeechRequest


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

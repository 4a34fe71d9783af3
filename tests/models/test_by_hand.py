"""``cosyvoice2`` in a server that is started by hand: its models have no folder of a supervisor's run."""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from speaking import assert_same_audio, client, spoken

from cosyvoice_client import RefusedError, SpeechRequest
from cosyvoice_client.http_client import HttpSpeechClient

REQUEST = SpeechRequest("Hello world. How are you?", seed=5)
CLIENTS = 32


def folders() -> set[Path]:
    """Where engines of such servers answer."""
    return set(Path(tempfile.gettempdir()).glob(f"cosyvoice-{os.getuid()}-*"))


def test_one_client_and_many_are_served_and_nothing_is_left(serve_all, tmp_path, monkeypatch):
    monkeypatch.setattr("cosyvoice_runtime.supervisor.process.DIRECTORY_VARIABLE", "NOBODY_READS_THIS")
    before = folders()
    texts = {"cosyvoice2.voices_dir": tmp_path / "voices", "cosyvoice2.silence_timeout_s": 600}
    with serve_all(**texts) as server:
        [folder] = folders() - before
        assert folder.stat().st_mode & 0o077 == 0
        whole = HttpSpeechClient(server.http_url).synthesize(REQUEST).samples
        assert_same_audio(spoken(server, REQUEST), whole)
        with pytest.raises(RefusedError, match="target_text"):
            list(client(server).speak(SpeechRequest("  ")))
        with ThreadPoolExecutor(CLIENTS) as pool:
            for samples in pool.map(lambda _: spoken(server, REQUEST), range(CLIENTS)):
                assert len(samples) == len(whole)
    assert folders() == before

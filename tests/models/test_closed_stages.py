"""All models behind their doors, with default settings: who is answered, and what hostile requests leave."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

import numpy as np
import pytest
from speaking import client, recording, spoken

import fuzz
from cosyvoice_client import ClientError, Reference, SpeechRequest
from cosyvoice_client.http_client import HttpSpeechClient
from cosyvoice_runtime.audio.audio import MAX_RATE, MAX_SECONDS
from cosyvoice_runtime.serving.triton.schema import SCHEMAS
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor import Server
from cosyvoice_runtime.supervisor.preflight import SHARED_MEMORY

MIB = 2**20
FUZZED = "300"


@pytest.fixture(scope="module")
def server(render_models, tmp_path_factory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("closed")
    texts = {"cosyvoice2.voices_dir": folder / "voices", "cosyvoice2.silence_timeout_s": 600}
    settings = ServerSettings(
        http_port=0,
        grpc_port=0,
        metrics_port=0,
        model_metrics_port=0,
        log_file=folder / "tritonserver.log",
        start_timeout_s=1200.0,
        probe_interval_s=0.0,
    )
    with Server(render_models(SCHEMAS, **texts), settings) as server:
        yield server
        assert not server.reloads


def regions() -> list[os.stat_result]:
    return [path.stat() for path in SHARED_MEMORY.glob(f"cosyvoice_{os.getpid()}_*")]


def test_longest_reference_at_the_highest_rate_is_spoken_with(server):
    samples = recording(150, MAX_SECONDS, MAX_RATE)
    request = SpeechRequest("Hi.", Reference(samples, text="a tone", rate=MAX_RATE), seed=1, max_tokens=10)
    assert len(spoken(server, request))


def test_sixteenth_of_a_gigabyte_is_refused_and_takes_nothing(server):
    before = sum(region.st_blocks for region in regions())
    samples = np.zeros(16 * MIB, np.float32)
    for _ in range(3):
        with pytest.raises(ClientError):
            list(client(server).speak(SpeechRequest("Hi.", Reference(samples, text="a"))))
    assert sum(region.st_blocks for region in regions()) * 512 < before * 512 + MIB


def test_memory_shared_with_the_server_is_closed_to_other_users(server):
    assert {stat.S_IMODE(region.st_mode) for region in regions()} == {0o600}
    assert len(regions()) >= len(SCHEMAS)
    assert HttpSpeechClient(server.http_url).synthesize(SpeechRequest("Hi.", max_tokens=10)).samples.size


def test_requests_that_are_valid_but_for_one_thing_find_no_fault(server):
    addresses = ["--url", server.grpc_url, "--http-url", server.http_url]
    assert fuzz.main([*addresses, "--requests", FUZZED, "--clients", "2", "--timeout", "300"]) == 0

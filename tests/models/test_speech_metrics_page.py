"""The metrics of ``cosyvoice2`` on a real server: each way a request can end moves its own."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from cosyvoice_client import RefusedError, SpeechClient, SpeechRequest, UnavailableError
from cosyvoice_client.reference import Reference
from cosyvoice_runtime.supervisor import Probe, Server

ROOT = Path(__file__).parents[2]
ENDINGS = ("completed", "invalid", "refused", "cancelled", "failed")
PAGES = 64
TEXT = "Hello world."
LONG_TEXT = "This is a rather long sentence, so that there is time. " * 85
ELSEWHERE = re.compile("nv_gpu_|cosyvoice_trtllm_")
"""Metrics of GPUs and of an engine that needs one."""


@pytest.fixture(scope="module")
def server(serve_all, tmp_path_factory) -> Iterator[Server]:
    texts = {
        "cosyvoice2.voices_dir": tmp_path_factory.mktemp("voices"),
        "cosyvoice2.max_inflight_utterances": 1,
        "token2wav.device": "cpu,cpu",
        "token2wav.max_flow_pages": PAGES,
    }
    with serve_all(**texts) as server:
        yield server


@pytest.fixture
def change(server, metric) -> Callable[..., float]:
    """``change(name, **labels)``: how much a metric of the streaming model has grown during the test."""
    before: dict[str, float] = {}

    def read(name: str, **labels: str) -> float:
        return metric(server, f"cosyvoice_{name}", model="cosyvoice2", **labels)

    names = [(name, {}) for name in ("first_audio_seconds_count", "first_audio_seconds_sum")]
    names += [(name, {}) for name in ("real_time_factor_count", "audio_seconds_total", "underruns_total")]
    names += [("requests_total", {"ending": ending}) for ending in ENDINGS]
    names += [("voice_lookups_total", {"result": result}) for result in ("hit", "miss")]
    for name, labels in names:
        before[str((name, labels))] = read(name, **labels)
    return lambda name, **labels: read(name, **labels) - before[str((name, labels))]


def reference() -> Reference:
    seconds = np.arange(22_400) / 16_000
    tone = sum(np.sin(2 * np.pi * 150 * k * seconds) / k for k in range(1, 9))
    return Reference((0.2 * tone).astype(np.float32), text="a short reference")


def speak(server: Server, request: SpeechRequest) -> float:
    """Seconds of audio."""
    return sum(len(chunk.samples) for chunk in SpeechClient(server.grpc_url).speak(request)) / 24_000


def test_completed_requests_are_timed_and_their_voice_is_found_again(server, change):
    started = time.monotonic()
    seconds = [speak(server, SpeechRequest(TEXT, reference(), seed=1)) for _ in range(2)]
    elapsed_s = time.monotonic() - started
    assert change("requests_total", ending="completed") == 2
    assert change("first_audio_seconds_count") == change("real_time_factor_count") == 2
    assert 0 < change("first_audio_seconds_sum") <= elapsed_s
    assert change("audio_seconds_total") == pytest.approx(sum(seconds))
    assert (change("voice_lookups_total", result="miss"), change("voice_lookups_total", result="hit")) == (
        1,
        1,
    )


def test_bad_request_is_invalid(server, change):
    with pytest.raises(RefusedError):
        speak(server, SpeechRequest(TEXT, speed=9.0))
    assert change("requests_total", ending="invalid") == 1
    assert change("first_audio_seconds_count") == 0


def test_busy_server_refuses_and_is_healthy_and_a_listener_who_leaves_is_cancelled(
    server, change, metric, eventually
):
    with closing(SpeechClient(server.grpc_url).speak(SpeechRequest(LONG_TEXT, seed=1))) as chunks:
        next(chunks)
        assert metric(server, "cosyvoice_inflight_utterances") == 1
        eventually(lambda: change("audio_seconds_total") > 0)  # before the end
        assert change("first_audio_seconds_count") == 1
        with pytest.raises(UnavailableError, match="try again in"):
            speak(server, SpeechRequest(TEXT))
        Probe.read(ROOT / "model_repo" / "cosyvoice2" / "probe.json")(server.grpc_url, 120.0)
    eventually(lambda: change("requests_total", ending="cancelled") == 1)
    assert change("requests_total", ending="refused") == 2
    assert change("requests_total", ending="failed") == change("real_time_factor_count") == 0
    assert metric(server, "cosyvoice_inflight_utterances") == 0


def test_both_devices_have_pages_and_none_is_left_in_use(server, metric, eventually):
    assert metric(server, "cosyvoice_token2wav_pages") == 2 * PAGES
    eventually(lambda: metric(server, "cosyvoice_token2wav_utterances") == 0)
    eventually(
        lambda: (
            metric(server, "cosyvoice_token2wav_pages_in_use")
            == metric(server, "cosyvoice_token2wav_voice_pages")
        )
    )


def test_page_has_every_metric_of_the_dashboard(server, metrics_page):
    dashboard = (ROOT / "deploy/grafana/dashboards/cosyvoice2.json").read_text("utf-8")
    panels = json.loads(dashboard)["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    wanted = {name for query in queries for name in re.findall(r"\b(?:cosyvoice|nv)_\w+", query)}
    found = set(re.findall(r"^(\w+)(?:\{| )", metrics_page(server), re.MULTILINE))
    assert len(wanted) > 10
    assert {name for name in wanted if not ELSEWHERE.match(name)} <= found

"""``cosyvoice2`` in a server that nobody told its own address, as one that is started by hand."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest
from speaking import assert_same_audio, client, spoken

from cosyvoice_client import RefusedError, SpeechRequest
from cosyvoice_client.http_client import HttpSpeechClient
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor import Server

REQUEST = SpeechRequest("Hello world. How are you?", seed=5)
CLIENTS = 32
PORTS = 19_100, 19_200
"""Below those of other servers, and those that Linux gives to connections: both come and go before the server
takes its own."""


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_one_client_and_many_are_served_through_the_address_of_the_settings(
    render_models, metric, eventually, tmp_path, monkeypatch
):
    monkeypatch.setattr("cosyvoice_runtime.supervisor.server.GRPC_URL_VARIABLE", "NOBODY_READS_THIS")
    http, grpc, metrics, model_metrics = islice(filter(is_free, range(*PORTS)), 4)
    models = ("cosyvoice2", "cosyvoice2_offline", "tensorrt_llm", "token2wav", "audio_tokenizer",
              "speaker_embedding")  # fmt: skip
    texts = {
        "cosyvoice2.voices_dir": tmp_path / "voices",
        "cosyvoice2.grpc_url": f"127.0.0.1:{grpc}",
        "cosyvoice2.child_timeout_s": 600,
    }
    settings = ServerSettings(
        http_port=http,
        grpc_port=grpc,
        metrics_port=metrics,
        model_metrics_port=model_metrics,
        open_models=("*",),
        log_file=tmp_path / "tritonserver.log",
        start_timeout_s=1200.0,
        probe_interval_s=0.0,
    )
    with Server(render_models(models, **texts), settings) as server:
        whole = HttpSpeechClient(server.http_url).synthesize(REQUEST).samples
        assert_same_audio(spoken(server, REQUEST), whole)
        with pytest.raises(RefusedError, match="target_text"):
            list(client(server).speak(SpeechRequest("  ")))
        with ThreadPoolExecutor(CLIENTS) as pool:
            for samples in pool.map(lambda _: spoken(server, REQUEST), range(CLIENTS)):
                assert len(samples) == len(whole)
        for gauge in ("cosyvoice_lm_active_slots", "cosyvoice_token2wav_utterances"):
            eventually(lambda gauge=gauge: metric(server, gauge) == 0)

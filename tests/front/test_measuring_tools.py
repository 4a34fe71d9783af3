"""Requests exactly as the field's load generators send them: samples or a file come back.

Each body is what the tool of that name puts together: ``tts_bench`` (nari-labs/benchmarks,
tts_bench/targets.py), ``vllm bench serve --omni`` (vllm-omni, benchmarks/patch/patch.py), ``genai-bench``
0.0.5 (user/openai_user.py), and sglang-omni's ``benchmark_tts`` (benchmarks/tasks/tts.py).
"""

from __future__ import annotations

import base64
import json
from io import BytesIO

import numpy as np
import pytest
import soundfile

from cosyvoice_client import SAMPLE_RATE
from decoded import decode
from fake_upstream import tone
from raw_http import send

TEXT = "The boat sailed across the lake at night."


def recording():
    file = BytesIO()
    soundfile.write(file, tone(1.5), SAMPLE_RATE, format="WAV")
    return f"data:audio/wav;base64,{base64.b64encode(file.getvalue()).decode()}"


TTS_BENCH = {
    "model": "tts-1",
    "input": TEXT,
    "voice": "default",
    "language": "English",
    "stream": True,
    "non_streaming_mode": False,
    "response_format": "pcm",
}
VLLM_BENCH = {"model": "tts-1", "input": TEXT, "stream": True, "response_format": "pcm"}
SEED_TTS_ROW = {
    "ref_audio": recording(),
    "ref_text": "Some words.",
    "task_type": "Base",
    "max_new_tokens": 2048,
}
GENAI_BENCH = {"model": "tts-1", "input": TEXT, "voice": "alloy"}
SGLANG = {
    "model": "tts-1",
    "input": TEXT,
    "response_format": "pcm",
    "voice": "default",
    "task_type": "CustomVoice",
    "max_new_tokens": 2048,
    "temperature": 0.8,
    "stream": True,
}
BODIES = {
    "tts_bench --target vllm-omni": {**TTS_BENCH, "stream_format": "audio"},
    "tts_bench --target nari, voxserve, sglang-omni": TTS_BENCH,
    "tts_bench --language Auto": {**TTS_BENCH, "language": "Auto"},
    "vllm bench serve --omni": {**VLLM_BENCH, "stream_format": "audio"},
    "vllm bench serve --omni, earlier": VLLM_BENCH,
    "vllm bench serve --omni --extra-body": {
        **VLLM_BENCH,
        "voice": "default",
        "task_type": "CustomVoice",
        "language": "English",
        "ignore_eos": False,
    },
    "vllm bench serve --omni --dataset-name seed-tts": {**VLLM_BENCH, **SEED_TTS_ROW, "language": "Chinese"},
    "genai-bench": {**GENAI_BENCH, "response_format": "pcm", "ignore_eos": True},
    "sglang-omni's benchmark_tts": {**SGLANG, "language": "Auto"},
}


def post(front, body, **headers):
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **headers}
    return send(front, body=json.dumps(body).encode(), **headers)


@pytest.mark.parametrize("tool", BODIES)
def test_request_of_a_tool_is_answered_with_samples(front, upstream, tool):
    answer = post(front, BODIES[tool], Authorization="Bearer EMPTY")
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"].partition(";")[0] == "audio/pcm"
    assert answer.headers["transfer-encoding"] == "chunked"
    samples = np.frombuffer(answer.body, "<i2")
    assert np.abs(samples / 32768 - upstream.samples).max() < 1e-4
    [request] = upstream.requests
    assert request.text == TEXT
    language = {"English": "en", "Chinese": "zh", "Auto": "auto", None: None}
    assert request.language == language[BODIES[tool].get("language")]
    assert (request.reference is None) == ("ref_audio" not in BODIES[tool])


def test_rate_is_told_as_sglang_omni_tells_it(front):
    """tts_bench refuses answers without this header with ``--target sglang-omni``."""
    assert post(front, TTS_BENCH).headers["x-sample-rate"] == str(SAMPLE_RATE)
    other = post(front, {**TTS_BENCH, "sample_rate": 48_000})
    assert other.headers["x-sample-rate"] == "48000"


def test_target_mstar_of_tts_bench_gets_a_wav_of_open_length(front, upstream):
    answer = post(front, {**TTS_BENCH, "response_format": "wav"})
    assert answer.headers["content-type"] == "audio/wav"
    assert b"data\xff\xff\xff\xff" in answer.body
    assert len(decode(answer.body, "wav")) == len(upstream.samples)


def test_genai_bench_without_a_format_gets_its_default(front):
    assert post(front, GENAI_BENCH).headers["content-type"] == "audio/mpeg"


def test_health_path_of_tts_bench_answers(front):
    """It asks for ``/health`` unless ``--health-path`` names another, and takes every 2xx."""
    assert send(front, "GET", "/health").status == 200
    assert send(front, "GET", "/health/ready").status == 200

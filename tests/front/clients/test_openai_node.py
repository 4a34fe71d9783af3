"""openai's package for Node, unmodified, before the front."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from known_key import KEY

from decoded import FRAME_SAMPLES, audio_of, decode, events

ROOT = Path(__file__).parents[3]
REASON = "python3 scripts/environment.py --clients installs it, with npm"
MODULES = ROOT / "requirements" / "node" / "node_modules"
CREATE = {"model": "gpt-4o-mini-tts", "voice": "alloy", "input": "Hello there."}
ENVIRONMENT = os.environ | {"NODE_PATH": str(MODULES)}
TIMEOUT_S = 120.0

pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
    pytest.mark.skipif(not (MODULES / "openai").exists(), reason=REASON),
]


def command(front, key=KEY, retries=0, do="speak", **fields):
    asked = {"baseURL": f"{front.url}/v1", "apiKey": key, "maxRetries": retries, "do": do}
    return ["node", Path(__file__).with_name("speech.cjs"), json.dumps({**asked, "create": CREATE | fields})]


def ask(front, **asked):
    """What the script prints."""
    line = command(front, **asked)
    done = subprocess.run(line, env=ENVIRONMENT, capture_output=True, timeout=TIMEOUT_S, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("format", ["mp3", "opus", "aac", "flac", "wav", "pcm"])
def test_speech_arrives_whole(front, upstream, format):
    heard = decode(base64.b64decode(ask(front, response_format=format)["bytes"]), format)
    assert 0 <= len(heard) - len(upstream.samples) < FRAME_SAMPLES[format]


def test_events_arrive_whole(front, upstream):
    found = events(base64.b64decode(ask(front, stream_format="sse")["bytes"]))
    assert 0 <= len(decode(audio_of(found), "mp3")) - len(upstream.samples) < FRAME_SAMPLES["mp3"]
    assert found[-1]["type"] == "speech.audio.done"


def test_cancel_cancels(front, upstream):
    upstream.gates = asyncio.Semaphore(0)
    line = command(front, do="cancel")
    pipe = subprocess.PIPE
    with subprocess.Popen(line, env=ENVIRONMENT, stdin=pipe, stdout=pipe) as process:
        assert json.loads(process.stdout.readline()) == {"aborted": True}
        front.wait_until(lambda: upstream.cancelled == 1 and front.streams == 0)
        assert process.poll() is None


def test_unknown_key(front):
    answer = ask(front, key="sk-carl")
    assert (answer["error"], answer["code"]) == ("AuthenticationError", "invalid_api_key")


def test_unknown_voice(front, without_voice):
    answer = ask(front)
    assert (answer["error"], answer["code"], answer["param"]) == ("NotFoundError", "voice_not_found", "voice")


def test_bad_field_is_named(front):
    answer = ask(front, speed=4)
    assert (answer["error"], answer["param"]) == ("BadRequestError", "speed")


def test_full_server_is_asked_again_and_then_told(front, crowded):
    answer = ask(front, retries=2)
    assert (answer["error"], answer["status"]) == ("InternalServerError", 503)
    assert len(crowded.requests) == 3


def test_key_beyond_its_limit_is_asked_to_come_back(start_front):
    front = start_front(requests_per_minute=1)
    assert "bytes" in ask(front)
    assert ask(front)["error"] == "RateLimitError"

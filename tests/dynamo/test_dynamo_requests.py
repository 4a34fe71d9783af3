"""Requests as Dynamo's frontend hands them to a worker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the environment of scripts/environment.py --test")

from cosyvoice_dynamo.request import read_request
from cosyvoice_front.errors import ApiError
from cosyvoice_runtime.settings import FrontSettings

ROOT = Path(__file__).parents[2]
WITHOUT_DYNAMO = """
import runpy, sys
sys.modules["dynamo"] = None
runpy.run_module("cosyvoice_dynamo", run_name="__main__")
"""
SETTINGS = FrontSettings(max_text_characters=20)
FROM_DYNAMO = {"nvext": {"frontend_accepts_audio_chunks": True}, "max_new_tokens": 5, "task_type": None}
"""Fields of which the front knows nothing."""


def passed_on(**fields: object) -> dict[str, object]:
    """Fields that Dynamo doesn't know itself, where its frontend puts them."""
    return {"extra_args": {"media_passthrough": fields}}


def test_fields_that_dynamo_knows_and_those_that_it_passes_on_are_the_front_s():
    asked = {"model": "tts-1", "input": "Hello.", "voice": "anna", "speed": 1.5, **FROM_DYNAMO}
    body = read_request({**asked, **passed_on(seed=7, lexicon={"Hello": "Hi"}, sample_rate=16_000)}, SETTINGS)
    assert (body.model, body.input, body.voice_name, body.speed) == ("tts-1", "Hello.", "anna", 1.5)
    assert (body.seed, body.lexicon, body.sample_rate) == (7, {"Hello": "Hi"}, 16_000)
    assert body.response_format == "mp3"


def test_a_field_of_dynamo_s_own_wins_over_one_that_is_passed_on():
    assert read_request({"input": "Hello.", **passed_on(input="Bye.")}, SETTINGS).input == "Hello."


def test_a_request_may_name_no_model():
    assert read_request({"input": "Hello."}, SETTINGS).model == SETTINGS.models[0]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": "word " * 5}, "input"),
        ({"input": "Hello.", "response_format": "midi"}, "response_format"),
        ({"input": "Hello.", "speed": 4.0}, "speed"),
        ({"input": "Hello.", "data_source": "url"}, "data_source"),
        ({"input": "Hello.", **passed_on(stream_format="sse")}, "stream_format"),
        ({"input": "Hello.", **passed_on(seed="seven")}, "seed"),
    ],
)
def test_a_wrong_request_names_its_field(fields, param):
    with pytest.raises(ApiError, match=rf"^{param}: ") as refused:
        read_request(fields, SETTINGS)
    assert (refused.value.status, refused.value.param) == (400, param)


def test_audio_may_be_asked_for_by_the_name_that_dynamo_has_for_it():
    assert read_request({"input": "Hello.", "data_source": "b64_json"}, SETTINGS).input == "Hello."


def test_a_worker_without_dynamo_names_what_is_to_be_installed():
    command = [sys.executable, "-c", WITHOUT_DYNAMO]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "requirements/dynamo.txt" in done.stderr

"""Turns of several speakers through the front and all models, with the tiny checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
from speaking import FEW_STEPS, assert_same_audio, client, spoken

pytest.importorskip("fastapi", reason="needs the environment of scripts/environment.py --test")
pytest.importorskip("av", reason="needs the environment of scripts/environment.py --test")

from cosyvoice_client import SpeechRequest
from cosyvoice_client.http_client import HttpSpeechClient
from cosyvoice_runtime.local import Synthesizer
from cosyvoice_runtime.supervisor import Server
from cosyvoice_runtime.voice import VoiceStore
from decoded import decode, events
from front_server import RunningFront, running_front
from raw_http import Answer, ask, begin

TURNS = [
    {"voice": "default", "text": "Hello world."},
    {"voice": "ben", "text": "How are you? **Fine**."},
    {"voice": "anna", "text": "<speak>Good.<break time='200ms'/>Bye.</speak>", "instructions": "Softly."},
]


@pytest.fixture(scope="module")
def server(serve_all, tiny_checkpoint, tmp_path_factory) -> Iterator[Server]:
    voices = tmp_path_factory.mktemp("voices")
    own = next(iter(Synthesizer.from_checkpoint(tiny_checkpoint, ode_steps=FEW_STEPS).speakers.values()))
    store = VoiceStore(voices, own.checkpoint_id)
    for number, name in enumerate(("anna", "ben"), 1):
        rolled = np.roll(own.speaker_embedding, number)
        store.register(name, dataclasses.replace(own, key=f"{number:064x}", speaker_embedding=rolled))
    with serve_all(**{"cosyvoice2.voices_dir": voices, "cosyvoice2.silence_timeout_s": 600}) as server:
        yield server


@pytest.fixture(scope="module")
def front(server) -> Iterator[RunningFront]:
    with running_front(grpc_url=server.grpc_url, silence_timeout_s=600) as front:
        yield front


def say(front: RunningFront, *turns: dict[str, str], **fields: object) -> Answer:
    given = {"input": None, "voice": None, "turns": turns, "response_format": "pcm", "seed": 7}
    return ask(front, **{**given, **fields})


def test_turns_through_the_front_are_those_of_the_server_streamed_and_whole(server, front):
    """The same seed repeats them, whichever way they take."""
    turns = [{**TURNS[0], "voice": ""}, *TURNS[1:]]
    request = SpeechRequest(turns=turns, turn_pause_s=0.25, seed=7)
    whole = HttpSpeechClient(server.http_url).synthesize(request).samples
    assert_same_audio(spoken(server, request), whole)
    heard = decode(say(front, *TURNS, turn_pause_s=0.25).body, "pcm")
    assert_same_audio(heard, whole)
    again = decode(say(front, *TURNS, turn_pause_s=0.25).body, "pcm")
    assert_same_audio(again, heard)


def test_turns_end_where_the_last_event_says(front):
    found = events(say(front, *TURNS, turn_pause_s=0.5, stream_format="sse").body)
    audio = decode(say(front, *TURNS, turn_pause_s=0.5).body, "pcm")
    ends = [round(24_000 * turn["end_s"]) for turn in found[-1]["turns"]]
    assert [turn["voice"] for turn in found[-1]["turns"]] == ["default", "ben", "anna"]
    assert abs(ends[-1] - len(audio)) < 24
    for end in ends[:-1]:
        assert audio[end - 2_400 : end - 24].any()
        assert not audio[end + 24 : end + 12_000 - 24].any()
        assert audio[end + 12_000 + 24 :][:2_400].any()


def test_every_word_is_told_with_its_speaker_and_within_its_turn(front):
    found = events(say(front, *TURNS, stream_format="sse", word_timestamps=True).body)
    words = [word for event in found for word in event.get("words", ())]
    speakers = [("Hello", "default"), ("world.", "default"), ("How", "ben"), ("are", "ben"), ("you?", "ben")]
    speakers += [("**Fine**.", "ben"), ("Good.", "anna"), ("Bye.", "anna")]
    assert [(word["word"], word["voice"]) for word in words] == speakers
    ends = {turn["voice"]: turn["end_s"] for turn in found[-1]["turns"]}
    begins = {"default": 0.0, "ben": ends["default"], "anna": ends["ben"]}
    for word in words:
        assert begins[word["voice"]] <= word["start_s"] <= word["end_s"] <= ends[word["voice"]] + 0.01


def test_a_turn_that_the_server_can_not_speak_is_named(front):
    for turn, status, param in (
        ({"voice": "nobody", "text": "Hi."}, 404, "turns[1].voice"),
        ({"voice": "anna", "text": "<speak>Hi."}, 400, "turns[1].text"),
        ({"voice": "anna", "text": "?!"}, 400, "turns[1].text"),
    ):
        answer = say(front, TURNS[0], turn)
        assert (answer.status, answer.error["param"]) == (status, param)


def test_who_leaves_in_the_first_turn_ends_all_of_them(server, front, metric, eventually):
    gauges = ("cosyvoice_inflight_utterances", "cosyvoice_lm_active_slots", "cosyvoice_token2wav_utterances")
    long = [{"voice": turn["voice"], "text": turn["text"] * 20} for turn in TURNS[:2]]
    with begin(front, input=None, voice=None, turns=long, response_format="pcm") as connection:
        assert b"200 OK" in connection.recv(4096)
    eventually(lambda: not any(metric(server, gauge) for gauge in gauges))
    assert len(list(client(server).speak(SpeechRequest("Hello world.", seed=7))))

"""Requests whose turns are spoken by several voices: what is accepted, what is refused, and by which name."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from coded_listener import VOICE, Ear, groups
from open_utterance import run
from triton_python_backend_utils import InferenceRequest

from coded_stages import TOKEN_SAMPLES
from cosyvoice_runtime.errors import ClientGoneError, InvalidInput
from cosyvoice_runtime.serving.speech.service import SpeechService
from cosyvoice_runtime.serving.triton.request import Inputs
from cosyvoice_runtime.voice import VoiceStore
from fake_voices import make_voice

TALK = [{"voice": "anna", "text": "Hello."}, {"voice": "", "text": "Hi."}, {"voice": "anna", "text": "Bye."}]


@pytest.fixture
def anna(tmp_path):
    """A voice that the service has beside its default one."""
    voice = make_voice(1, checkpoint_id="checkpoint")
    VoiceStore(tmp_path / "voices", "checkpoint").register("anna", voice)
    return voice


def asked(turns: object = TALK, **options: Any) -> Inputs:
    written = {} if turns is None else {"turns": json.dumps(turns)}
    given = {"target_text": "", "seed": 1} | written | options
    dtypes = {"seed": np.int64, "turn_pause_s": np.float32}
    tensors = {
        name: np.array([[value.encode() if isinstance(value, str) else value]], dtypes.get(name, np.object_))
        for name, value in given.items()
    }
    return Inputs(InferenceRequest(tensors))


async def answered(service: SpeechService, inputs: Inputs, ear: Ear | None = None) -> Ear:
    ear = ear or Ear()
    await service.answer(inputs, ear)
    return ear


def test_turns_are_one_answer_in_their_voices(open_service, anna):
    async def work(stages, service):
        stages.groups = groups(60)
        return await answered(service, asked(turn_pause_s=0.5)), stages

    ear, stages = run(open_service, work)
    assert ear.errors == [None]
    spoken = np.concatenate([chunk.samples for chunk in ear.chunks if not chunk.is_pause])
    assert spoken[::TOKEN_SAMPLES].tolist() == [*range(60)] * 3
    keys = [sound.voice_key for sound in stages.sounds]
    changes = [key for number, key in enumerate(keys) if not number or keys[number - 1] != key]
    assert changes == [anna.prompt_key, VOICE.prompt_key, anna.prompt_key]
    assert [chunk.seconds for chunk in ear.chunks if chunk.is_pause] == [0.5, 0.5]
    ends = [chunk.spoken_characters for chunk in ear.chunks if chunk.finish_reason]
    assert ends == [6, 9, 13]


def test_voices_of_turns_are_those_that_the_request_may_name(open_service, anna):
    names = {"voice of mine": "anna", "usual": ""}
    turns = [{"voice": name, "text": "Hi."} for name in names]

    async def work(stages, service):
        stages.groups = groups(3)
        good = await answered(service, asked(turns, text_voices=json.dumps(names)))
        return good, await answered(service, asked(TALK, text_voices=json.dumps(names))), stages.voices

    good, bad, voices = run(open_service, work)
    assert good.errors == [None]
    assert {voice.prompt_key for voice in voices} == {anna.prompt_key, VOICE.prompt_key}
    [error] = bad.errors
    assert error.field == "turns[0].voice"
    assert "'anna'" in str(error)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"target_text": "Hi."}, "target_text"),
        ({"voice": "anna"}, "voice"),
        ({"turns": [{"voice": "nobody", "text": "Hi."}]}, "turns[0].voice"),
        ({"turns": [*TALK, {"voice": "anna", "text": "?!"}]}, "turns[3].text"),
        ({"turns": []}, "turns"),
        ({"turns": [{"voice": "anna", "text": "a" * 151}] * 2}, "turns"),
        ({"turn_pause_s": 4.0}, "turn_pause_s"),
        ({"target_text": "Hi.", "turns": None, "turn_pause_s": 1.0}, "turn_pause_s"),
        ({"utterance_id": "0123456789abcdef", "text_event": "open"}, "turns"),
    ],
)
def test_turns_that_can_not_be_spoken_are_refused_before_anything_is(open_service, anna, options, field):
    async def work(stages, service):
        stages.groups = groups(3)
        return await answered(service, asked(**options)), stages

    ear, stages = run(open_service, work)
    [error] = ear.errors
    assert isinstance(error, InvalidInput)
    assert error.field == field
    assert ear.chunks == [] or all(not len(chunk.samples) for chunk in ear.chunks)
    assert stages.prompts == []


def test_a_recording_beside_turns_is_refused(open_service, anna):
    tensors = {
        "target_text": np.array([[b""]], np.object_),
        "turns": np.array([[json.dumps(TALK).encode()]], np.object_),
        "reference_wav": np.zeros((1, 16_000), np.float32),
    }

    async def work(_stages, service):
        return await answered(service, Inputs(InferenceRequest(tensors)))

    [error] = run(open_service, work).errors
    assert error.field == "reference_wav"


def test_a_client_that_leaves_in_a_turn_ends_all_of_them(open_service, anna):
    async def work(stages, service):
        stages.groups = groups(60)

        class Leaver(Ear):
            def send(self, chunk) -> None:
                super().send(chunk)
                if self.chunks[-1].segment == 1:
                    stages.hold.clear()
                    self.gone = True

        ear = await answered(service, asked(), Leaver())
        stages.hold.set()
        return ear, stages

    ear, stages = run(open_service, work)
    assert isinstance(ear.errors[0], ClientGoneError)
    assert len(stages.prompts) == 2
    assert len(stages.stopped) == 1

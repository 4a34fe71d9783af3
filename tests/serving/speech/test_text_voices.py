"""Voices that a text changes to: many of them, those that are gone, and clients that leave between two."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import numpy as np
import pytest
from coded_listener import VOICE, Ear, groups
from open_utterance import Utterance, run
from triton_python_backend_utils import InferenceRequest

from coded_stages import CodedStages
from cosyvoice_runtime.errors import ClientGoneError, InvalidInput, status_of
from cosyvoice_runtime.serving.speech.service import SpeechService
from cosyvoice_runtime.serving.triton.request import Inputs
from cosyvoice_runtime.voice import VoiceStore
from fake_voices import make_voice

LONG_BREAK = "Hello.<break time='10s'/> How are you?"


@pytest.fixture
def voices(tmp_path) -> VoiceStore:
    """The voices of the service, to which others of the machine add and from which they delete."""
    return VoiceStore(tmp_path / "voices", "checkpoint")


def in_voices(names: Iterable[str]) -> str:
    changed = "".join(f"<voice name='{name}'>Hi.</voice>" for name in names)
    return f"<speak>{changed}</speak>"


def asked(text: str) -> Inputs:
    tensors = {"target_text": np.array([[text.encode()]], np.object_), "seed": np.array([[1]], np.int64)}
    return Inputs(InferenceRequest(tensors))


async def answered(service: SpeechService, text: str) -> Ear:
    ear = Ear()
    await service.answer(asked(text), ear)
    return ear


def heard_voices(stages: CodedStages) -> list[str]:
    """Keys of the voices in the order in which they spoke."""
    keys = [sound.voice_key for sound in stages.sounds]
    return [key for number, key in enumerate(keys) if not number or keys[number - 1] != key]


def say_words(stages: CodedStages, words: int = 60) -> None:
    stages.groups = groups(words)


def test_a_text_speaks_in_as_many_voices_as_it_may(open_service, voices):
    made = {f"v{number}": make_voice(number, checkpoint_id="checkpoint") for number in range(100)}
    for name, voice in made.items():
        voices.register(name, voice)

    async def work(stages, service):
        say_words(stages, 3)
        return await answered(service, in_voices(made)), heard_voices(stages)

    ear, keys = run(open_service, work, max_characters=5000)
    assert ear.errors == [None]
    assert keys == [voice.prompt_key for voice in made.values()]
    assert ear.tokens == [0, 1, 2] * 100


@pytest.mark.parametrize(
    ("names", "field", "named"),
    [
        ([f"v{number}" for number in range(101)], "target_text", "at most 100 in a text"),
        (["one", "nobody", "nobody else"], "voice", "'nobody'"),
    ],
)
def test_voices_that_a_text_can_not_have_are_told_to_its_client_alone(open_service, names, field, named):
    async def work(stages, service):
        say_words(stages)
        good, bad = await asyncio.gather(answered(service, "Hi."), answered(service, in_voices(names)))
        return good, bad, await answered(service, "Hi.")

    good, bad, later = run(open_service, work, max_characters=5000)
    [error] = bad.errors
    assert isinstance(error, InvalidInput)
    assert error.field == field
    assert named in str(error)
    assert bad.chunks == []
    assert good.errors == later.errors == [None]
    assert good.tokens == later.tokens == [*range(60)]


def test_a_voice_that_is_deleted_while_its_text_is_spoken_speaks_to_the_end(open_service, voices):
    anna = make_voice(1, checkpoint_id="checkpoint")
    voices.register("anna", anna)

    async def work(stages, service):
        say_words(stages)
        stages.hold.clear()
        ear = Ear()
        text = "<speak>Hello.<voice name='anna'>Hi.</voice></speak>"
        speaking = asyncio.create_task(service.answer(asked(text), ear))
        while not stages.prompts:
            await asyncio.sleep(0.01)
        voices.delete("anna")
        stages.hold.set()
        await speaking
        return ear, heard_voices(stages), await answered(service, text)

    ear, keys, later = run(open_service, work)
    assert ear.errors == [None]
    assert keys[:2] == [VOICE.prompt_key, anna.prompt_key]
    assert ear.tokens == [*range(60)] * 2
    assert "voice: 'anna'" in str(later.errors[0])


def test_a_voice_that_is_deleted_before_its_piece_comes_ends_that_text_with_its_name(open_service, voices):
    for number, name in enumerate(("anna", "ben")):
        voices.register(name, make_voice(number, checkpoint_id="checkpoint"))

    async def work(stages, service):
        first = Utterance(service, "<speak><voice name='anna'>Hello there.</voice>")
        other = Utterance(service, "Hello there.", "another-utterance")
        await first.answer_of("flush")
        await first.until(lambda: first.ends)
        voices.delete("ben")
        voices.delete("anna")
        assert await first.answer_of("push", "<voice name='anna'>And again.</voice>") is None
        await first.answer_of("flush")
        await first.until(lambda: len(first.ends) == 2)
        await first.answer_of("push", "<voice name='ben'>Hi.</voice></speak>")
        await first.speaking
        gone = await first.answer_of("push", "x")
        assert await other.answer_of("end") is None
        await other.speaking
        return first, gone, other

    first, gone, other = run(open_service, work)
    [error] = first.ear.errors
    assert "voice: 'ben'" in str(error)
    assert status_of(error) == "INVALID_ARGUMENT"
    assert status_of(gone) == "NOT_FOUND"
    assert other.ear.errors == [None]


@pytest.mark.parametrize(
    ("text", "heard"),
    [
        (LONG_BREAK, lambda ear: ear.chunks[-1].is_pause),
        (in_voices(["one", "two"]), lambda ear: ear.chunks[-1].finish_reason),
    ],
    ids=["break", "voices"],
)
def test_a_client_that_leaves_between_two_segments_leaves_nothing_behind(open_service, voices, text, heard):
    voices.register("two", make_voice(2, checkpoint_id="checkpoint"))

    async def work(stages, service):
        say_words(stages)

        class Leaver(Ear):
            def send(self, chunk) -> None:
                super().send(chunk)
                if heard(self):
                    stages.hold.clear()
                    self.gone = True

        ear = Leaver()
        await service.answer(asked(text), ear)
        stages.hold.set()
        begun = len(stages.prompts)
        return ear, stages.stopped, begun, await answered(service, text)

    ear, stopped, begun, later = run(open_service, work)
    [error] = ear.errors
    assert isinstance(error, ClientGoneError)
    assert begun == 2
    assert len(stopped) == 1
    assert later.errors == [None]
    assert later.tokens[:60] == later.tokens[-60:] == [*range(60)]

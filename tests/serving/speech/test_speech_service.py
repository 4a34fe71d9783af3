"""The service that answers cosyvoice2's requests: places, endings, and clients that leave."""

from __future__ import annotations

import asyncio
import itertools
import json
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from coded_listener import TEXT, VOICE, Ear, groups
from triton_python_backend_utils import InferenceRequest

from coded_stages import CodedStages
from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.engine.utterance.utterance import TokenGroup
from cosyvoice_runtime.errors import ClientGoneError, CosyVoiceError, InvalidInput, StageLostError, status_of
from cosyvoice_runtime.families import COSYVOICE2, COSYVOICE3, Family
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.metrics import Metrics, trace
from cosyvoice_runtime.process.headers import PROBE_HEADER, PROBE_KEY_VARIABLE
from cosyvoice_runtime.serving.speech.admission import Admission
from cosyvoice_runtime.serving.speech.service import SpeechService
from cosyvoice_runtime.serving.speech.speech_inputs import SpeechInputs
from cosyvoice_runtime.serving.speech.speech_metrics import SpeechMetrics
from cosyvoice_runtime.serving.speech.voice_book import VoiceBook
from cosyvoice_runtime.serving.triton.request import Inputs
from cosyvoice_runtime.text import TextFrontEnd
from cosyvoice_runtime.voice import Voice, VoiceStore


@pytest.fixture
def make(tokenizer, tmp_path: Path):
    """Makes a service over coded stages with ``places`` places; only chunks advance its clock."""

    def service(
        groups,
        places: int = 4,
        chunk_s: float = 0.0,
        family: Family = COSYVOICE2,
        speakers: Mapping[str, Voice] = MappingProxyType({"one": VOICE}),
    ) -> tuple[CodedStages, SpeechService]:
        stages = CodedStages(groups)
        metrics = Metrics("cosyvoice2", tmp_path)
        speech_metrics = SpeechMetrics(metrics, lambda: chunk_s * len(stages.calls))
        voices = VoiceBook(
            VoiceStore(tmp_path / "voices", "checkpoint"), speakers, "one", stages, "checkpoint",
            neutral=Voice.of_nobody(80, 192, "checkpoint"),
        )  # fmt: skip
        hop = HopPolicy(25, 3, 10, 25, 100, 25)
        return stages, SpeechService(
            stages, voices, TextFrontEnd(tokenizer, family=family), tokenizer, hop, 24_000, speech_metrics,
            Admission(places, now=itertools.count(100).__next__),
            sampling=SamplingOptions(), max_characters=100, speech_tokens=100,
        )  # fmt: skip

    return service


def asked(**inputs) -> Inputs:
    return Inputs(InferenceRequest(TEXT | inputs))


def test_answer_ends_once_and_holds_every_token(make):
    async def run() -> Ear:
        _, service = make(groups(60))
        ear = Ear()
        await service.answer(asked(), ear)
        return ear

    ear = asyncio.run(run())
    assert ear.tokens == list(range(60))
    assert ear.errors == [None]


def test_bad_input_ends_that_answer_alone(make):
    async def run() -> tuple[Ear, Ear]:
        _, service = make(groups(60))
        good, bad = Ear(), Ear()
        too_long = np.array([[b"x" * 101]], np.object_)
        await asyncio.gather(service.answer(asked(), good), service.answer(asked(target_text=too_long), bad))
        return good, bad

    good, bad = asyncio.run(run())
    assert good.tokens == list(range(60))
    assert [str(error) for error in bad.errors] == [
        "target_text: '101 characters' is not accepted; at most 100"
    ]


def test_one_more_than_the_limit_is_refused_and_its_place_is_free_afterwards(make):
    async def run() -> tuple[Ear, Ear, Ear]:
        stages, service = make(groups(60), places=1)
        stages.hold.clear()
        first, refused, later = Ear(), Ear(), Ear()
        speaking = asyncio.create_task(service.answer(asked(), first))
        await asyncio.sleep(0)
        await service.answer(asked(), refused)
        stages.hold.set()
        await speaking
        await service.answer(asked(), later)
        return first, refused, later

    first, refused, later = asyncio.run(run())
    assert "1 utterances are in progress" in str(refused.errors[0])
    assert first.tokens == later.tokens == list(range(60))


def test_place_of_a_whole_answer_is_free_before_it_leaves(make):
    """A client that hears everything at once may ask again at once."""
    taken = []

    async def run() -> None:
        _, service = make(groups(60), places=1)

        class WholeEar(Ear):
            def complete(self) -> None:
                taken.append(service._admission.count)

        await service.answer(asked(), WholeEar())

    asyncio.run(run())
    assert taken == [0]


@pytest.mark.parametrize(("said", "answered"), [("secret", True), ("guess", False)])
def test_probe_with_the_runs_key_takes_no_place(make, monkeypatch, said, answered):
    monkeypatch.setenv(PROBE_KEY_VARIABLE, "secret")

    async def run() -> tuple[Ear, Ear]:
        stages, service = make(groups(60), places=1)
        stages.hold.clear()
        first, probe = Ear(), Ear()
        speaking = asyncio.create_task(service.answer(asked(), first))
        await asyncio.sleep(0)
        request = InferenceRequest(TEXT, parameters=json.dumps({PROBE_HEADER: said}))
        probing = asyncio.create_task(service.answer(Inputs(request), probe))
        await asyncio.sleep(0)
        stages.hold.set()
        await asyncio.gather(speaking, probing)
        return first, probe

    first, probe = asyncio.run(run())
    assert first.tokens == list(range(60))
    assert (probe.errors == [None]) == answered
    assert bool(probe.chunks) == answered


def test_a_checkpoint_without_voices_answers_probes_and_is_measured(make, monkeypatch):
    """A client has to bring a reference."""
    monkeypatch.setenv(PROBE_KEY_VARIABLE, "secret")

    async def run() -> tuple[Ear, Ear, float]:
        _, service = make(groups(60), speakers={})
        client, probe = Ear(), Ear()
        request = InferenceRequest(TEXT, parameters=json.dumps({PROBE_HEADER: "secret"}))
        await service.answer(Inputs(request), probe)
        await service.answer(asked(), client)
        return client, probe, await service.speed()

    client, probe, speed = asyncio.run(run())
    assert probe.tokens == list(range(60))
    assert [str(error).split(":")[0] for error in client.errors] == ["voice"]
    assert speed > 0


def test_client_that_leaves_frees_its_place_and_all_stages(make):
    async def run() -> tuple[CodedStages, Ear, Ear]:
        stages, service = make([TokenGroup(list(range(40))), *groups(10)], places=1)
        stages.hold.clear()
        ear, next_one = Ear(), Ear()
        speaking = asyncio.create_task(service.answer(asked(), ear))
        await ear.heard.wait()
        ear.gone = True
        await speaking
        stopped = list(stages.stopped)
        stages.hold.set()
        stages.groups = groups(20)
        await service.answer(asked(), next_one)
        return stopped, stages, ear, next_one

    stopped, stages, ear, next_one = asyncio.run(run())
    assert len(ear.errors) == 1
    assert len(stopped) == len(stages.dropped) == 1
    assert next_one.tokens == list(range(20))


def test_word_that_a_client_has_left_ends_what_came_by_its_call_at_once(make):
    async def run() -> tuple[list[str], list[Ear]]:
        stages, service = make([TokenGroup(list(range(40))), *groups(10)])
        stages.hold.clear()
        ears = [Ear("one"), Ear("one"), Ear("other"), Ear()]
        speaking = [asyncio.create_task(service.answer(asked(), ear)) for ear in ears]
        for ear in ears:
            await ear.heard.wait()
        service.leave("nobody's")
        service.leave("one")
        await asyncio.gather(*speaking[:2])
        stopped = list(stages.stopped)
        stages.hold.set()
        await asyncio.gather(*speaking)
        return stopped, ears

    stopped, ears = asyncio.run(run())
    assert len(stopped) == 2
    assert [len(ear.tokens) == 50 for ear in ears] == [False, False, True, True]
    assert [type(ear.errors[0]) for ear in ears] == [ClientGoneError] * 2 + [type(None)] * 2


def test_failure_of_a_stage_is_the_answer(make):
    async def run() -> Ear:
        _, service = make([TokenGroup([1]), CosyVoiceError("no memory")])
        ear = Ear()
        await service.answer(asked(), ear)
        return ear

    assert [str(error) for error in asyncio.run(run()).errors] == ["no memory"]


def test_speed_is_that_of_an_utterance_that_follows_another(make):
    async def run() -> tuple[CodedStages, float]:
        stages, service = make(groups(60), chunk_s=0.25)
        return stages, await service.speed()

    stages, speed = asyncio.run(run())
    chunks = len(stages.calls) // 2
    assert speed == pytest.approx(60 / 25 / (0.25 * chunks))
    assert [sampling.max_tokens for _, sampling in stages.prompts] == [100, 100]


def test_speed_of_several_is_of_all_that_they_say(make):
    async def run() -> tuple[CodedStages, float]:
        stages, service = make(groups(60), chunk_s=0.25)
        return stages, await service.speed(at_once=3)

    stages, speed = asyncio.run(run())
    assert len(stages.prompts) == 1 + 3
    assert speed == pytest.approx(3 * 60 / 25 / (0.25 * len(stages.calls) * 3 / 4))


def test_speed_is_known_where_words_need_an_instruction(make):
    async def run() -> float:
        _, service = make(groups(60), chunk_s=0.25, family=COSYVOICE3)
        return await service.speed()

    assert asyncio.run(run()) > 0


def test_speed_that_a_stage_fails_to_make_is_its_error(make):
    async def run() -> None:
        _, service = make([CosyVoiceError("no memory")])
        await service.speed()

    with pytest.raises(CosyVoiceError, match="no memory"):
        asyncio.run(run())


LOST = StageLostError("token2wav")


def answered(make, ear: Ear, first: list, second: list | None = None, **attributes) -> CodedStages:
    """Answer one request; the stages say ``second`` once somebody has waited for them to be back."""

    async def run() -> CodedStages:
        stages, service = make(first)
        for name, value in attributes.items():
            setattr(stages, name, value)
        stages.after_return = second
        await service.answer(asked(), ear)
        return stages

    return asyncio.run(run())


def test_utterance_that_was_not_heard_yet_starts_anew_when_the_stage_is_back(make):
    ear = Ear()
    stages = answered(make, ear, [TokenGroup([1, 2]), LOST], groups(60))
    assert ear.tokens == list(range(60))
    assert ear.errors == [None]
    assert len({str(prompt) for prompt in stages.prompts}) == 1


def test_utterance_that_was_heard_ends_when_a_stage_is_lost(make):
    ear = Ear()
    answered(make, ear, [TokenGroup(list(range(40))), LOST], groups(60))
    assert ear.tokens
    assert ear.errors == [LOST]


def test_whoever_waits_for_all_hears_nothing_twice(make):
    ear = Ear()
    ear.waits_for_all = True
    answered(make, ear, [TokenGroup(list(range(40))), LOST], groups(60))
    assert ear.tokens == list(range(60))
    assert ear.errors == [None]


def test_utterance_starts_anew_once_only(make):
    ear = Ear()
    stages = answered(make, ear, [LOST], [TokenGroup([1]), LOST])
    assert ear.errors == [LOST]
    assert len(stages.prompts) == 2


def test_request_is_refused_at_once_while_a_stage_is_away(make):
    ear = Ear()
    stages = answered(make, ear, groups(60), away=LOST)
    assert ear.errors == [LOST]
    assert status_of(LOST) == "UNAVAILABLE"
    assert str(LOST) == "token2wav is being started again; try again later"
    assert stages.prompts == []


@pytest.mark.parametrize(
    "voices", ["[" * 100_000, "1", '{"a": 1}', '{"a": {"b": "c"}}', '{"a"', "null", "\0"]
)
def test_voices_of_a_text_are_names_by_names(voices):
    with pytest.raises(InvalidInput, match=r"text_voices: .* a JSON object of names"):
        SpeechInputs.read(
            asked(text_voices=np.array([[voices.encode()]], object)), SamplingOptions(), 100, 100
        )


def test_too_many_spoken_tokens_are_refused_before_they_are_unpacked():
    spoken = np.ones((1, 1 << 20), np.int32)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match="spoken_tokens: '1048576 numbers' is not accepted"):
            SpeechInputs.read(asked(spoken_tokens=spoken), SamplingOptions(), 100, 100)
        assert tracemalloc.get_traced_memory()[1] < spoken.nbytes
    finally:
        tracemalloc.stop()


def test_a_voice_is_told_to_spans_once_it_is_found(make, monkeypatch):
    told: list[dict[str, object]] = []
    monkeypatch.setattr(trace, "tell", lambda **said: told.append(said))

    async def run() -> None:
        _, service = make(groups(60))
        for voice in (b"Words that nobody else should read.", b"one"):
            await service.answer(asked(voice=np.array([[voice]], np.object_)), Ear())

    asyncio.run(run())
    assert [said["voice"] for said in told if "voice" in said] == ["one"]

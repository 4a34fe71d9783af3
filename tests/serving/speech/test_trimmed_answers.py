"""Silence that a request, or the deployment, has left out of an answer, and what is counted of it."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from coded_listener import TEXT, Ear
from open_utterance import Utterance
from triton_python_backend_utils import InferenceRequest

from coded_stages import TOKEN_SAMPLES, sounding
from cosyvoice_runtime.engine.utterance.utterance import TokenGroup
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.metrics.page import read_samples
from cosyvoice_runtime.serving.triton.request import Inputs

TOKENS = [0] * 25 + [1] * 50 + [0] * 25
WHOLE, EDGE = len(TOKENS) * TOKEN_SAMPLES, 24_000 - 720
"""Samples of the answer, and of the silence that is left out at one end: 30 ms stay, of which a window that
speech reaches into has 10."""
LENGTHS = {"off": WHOLE, "start": WHOLE - EDGE, "both": WHOLE - 2 * EDGE}


@pytest.fixture
def answer(open_service):
    """``answer(asked, deployed)`` is what a client hears that asks for this, None for nothing."""

    def answer(asked: str | None, deployed: str = "off", streams: bool = True) -> Ear:
        async def run() -> Ear:
            stages, service, _ = open_service(trim_silence=deployed)
            stages.groups = [*(TokenGroup([token]) for token in TOKENS), TokenGroup([], FinishReason.STOP)]
            stages.samples_of = sounding
            ear, inputs = Ear(streams=streams), dict(TEXT)
            if asked is not None:
                inputs["trim_silence"] = np.array([[asked.encode()]], np.object_)
            await service.answer(Inputs(InferenceRequest(inputs)), ear)
            return ear

        return asyncio.run(run())

    return answer


def length(ear: Ear) -> int:
    assert ear.errors == [None]
    return sum(len(chunk.samples) for chunk in ear.chunks)


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("asked", LENGTHS)
@pytest.mark.parametrize("deployed", LENGTHS)
def test_request_says_what_is_left_out(answer, asked, deployed, streams):
    ear = answer(asked, deployed, streams)
    assert length(ear) == LENGTHS[asked]
    assert [chunk.finish_reason for chunk in ear.chunks if chunk.finish_reason] == [FinishReason.STOP]
    assert not any(chunk.only_counts for chunk in ear.chunks)


@pytest.mark.parametrize("deployed", LENGTHS)
def test_deployment_says_it_where_the_request_does_not(answer, deployed):
    assert length(answer(None, deployed)) == LENGTHS[deployed]


@pytest.mark.parametrize("asked", ["", "end", "yes"])
def test_another_value_is_refused(answer, asked):
    ear = answer(asked)
    assert [str(error) for error in ear.errors] == [
        f"trim_silence: '{asked}' is not accepted; one of off, start, both"
    ]
    assert ear.chunks == []


def counted(directory) -> dict[str, float]:
    names = {"cosyvoice_trimmed_seconds_total", "cosyvoice_first_audible_seconds_count"}
    return {
        sample.name + sample.labels.get("end", ""): sample.value
        for sample in read_samples(directory)
        if sample.name in names
    }


def test_seconds_left_out_are_counted_by_end(answer, metrics_dir):
    answer("off")
    before = counted(metrics_dir)
    answer("both")
    after = counted(metrics_dir)
    growth = {name: value - before[name] for name, value in after.items()}
    assert growth == {
        "cosyvoice_trimmed_seconds_totalstart": pytest.approx(EDGE / 24_000),
        "cosyvoice_trimmed_seconds_totalend": pytest.approx(EDGE / 24_000),
        "cosyvoice_first_audible_seconds_count": 1,
    }


def test_text_in_pieces_is_one_answer(open_service):
    async def run() -> Utterance:
        stages, service, _ = open_service(trim_silence="both", blocks=None)
        stages.groups = [*(TokenGroup([token]) for token in TOKENS), TokenGroup([], FinishReason.STOP)]
        stages.samples_of = sounding
        utterance = Utterance(service, "Hello there. How are you?")
        await utterance.say("end")
        await utterance.speaking
        return utterance

    ear = asyncio.run(run()).ear
    segments = len([chunk for chunk in ear.chunks if chunk.finish_reason])
    assert segments > 1
    assert length(ear) == segments * WHOLE - 2 * EDGE
    assert [chunk.spoken_characters for chunk in ear.chunks if chunk.finish_reason][-1] == 25

"""Answers whose words a request has checked, in streams and as a whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence

import numpy as np
import pytest
from coded_listener import TEXT, Ear
from triton_python_backend_utils import InferenceRequest

from coded_stages import sounding
from cosyvoice_runtime.checkpoint.alignment_heads import AlignmentHeads
from cosyvoice_runtime.engine.frames import Frame, FrameReader
from cosyvoice_runtime.engine.messages import (
    ORDER,
    Order,
    begin_frame,
    chunk_frame,
    order_frame,
    read_chunk,
    read_order,
    take_text,
)
from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.engine.utterance.request import AudioChunk, Utterance
from cosyvoice_runtime.engine.utterance.utterance import TokenGroup
from cosyvoice_runtime.engine.utterance.verdict import Misspoken, Verification
from cosyvoice_runtime.engine.utterance.verification import Checks, SegmentCheck
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm import FinishReason, SamplingOptions
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.text_segment import CheckedText, SegmentQueue, SentWord, Sound
from cosyvoice_runtime.serving.speech.admission import AdmittedUtterance
from cosyvoice_runtime.serving.speech.speech_inputs import outputs
from cosyvoice_runtime.serving.triton.request import Inputs

HEADS = AlignmentHeads(((0, 0),), 0.0, 0.0, 1.0, "")
EACH = 8
SENT = "The old train to seven at the old train."
Looks = Callable[[int], Sequence[int]]
"""Text tokens that speech looks at, one after another, of so many."""


def all_once(tokens: int) -> Sequence[int]:
    return range(tokens)


def without_some(tokens: int) -> Sequence[int]:
    return [*range(3), *range(tokens - 5, tokens)]


def back_at_once(tokens: int) -> Sequence[int]:
    return [1, 0, 1, 0, 1, 0, *range(1, tokens)]


def for_ever(tokens: int) -> Sequence[int]:
    return [*range(4), *[2, 3] * 20]


class Looking:
    """A speech LM whose attempts look at its text as they are told."""

    def __init__(self, *attempts: Looks) -> None:
        self._attempts = list(attempts)
        self.seeds: list[int] = []

    async def generate(self, prompt, sampling, _id, _first, _pieces, with_rows) -> AsyncGenerator[TokenGroup]:
        assert with_rows
        looks = self._attempts[len(self.seeds)](len(prompt.text))
        self.seeds.append(sampling.seed)
        rows = np.eye(len(prompt.text), dtype=np.float32)[np.repeat(looks, EACH)]
        for start in range(0, len(rows), 10):
            part = rows[start : start + 10]
            yield TokenGroup([1] * len(part), rows=part, are_spoken=[True] * len(part))
            await asyncio.sleep(0)
        yield TokenGroup([], FinishReason.STOP)


@pytest.fixture
def answer(open_service):
    """``answer(speech_lm, streams, verify)`` is what a client hears."""

    def answer(speech_lm: Looking, streams: bool, verify: str, heads: AlignmentHeads | None = HEADS) -> Ear:
        async def run() -> Ear:
            stages, service, _ = open_service(heads=heads)
            stages.generate, stages.samples_of = speech_lm.generate, sounding
            ear = Ear(streams=streams)
            asked = {"target_text": SENT, "verify": verify}
            inputs = {name: np.array([[text.encode()]], np.object_) for name, text in asked.items()}
            await service.answer(Inputs(InferenceRequest({**TEXT, **inputs})), ear)
            return ear

        return asyncio.run(run())

    return answer


def last(ear: Ear) -> AudioChunk:
    assert ear.errors == [None]
    return next(chunk for chunk in ear.chunks[::-1] if chunk.finish_reason is not None)


@pytest.mark.parametrize(
    ("streams", "attempts"), [(False, [without_some, all_once]), (True, [back_at_once, all_once])]
)
def test_speech_of_a_draw_that_is_not_heard_counts_as_the_machine_s(answer, monkeypatch, streams, attempts):
    """It was made as well: to draw again makes no machine slower."""
    counted: list[float] = []
    monkeypatch.setattr(AdmittedUtterance, "spoke", lambda _, seconds: counted.append(seconds))
    ear = answer(Looking(*attempts), streams, "retry")
    assert last(ear).verification.redraws == 1
    heard_s, unheard_s = sum(chunk.seconds for chunk in ear.chunks), last(ear).verification.unheard_s
    assert unheard_s > 0.3
    assert sum(counted) == pytest.approx(heard_s + unheard_s)


@pytest.mark.parametrize("streams", [True, False])
def test_report_tells_what_was_skipped(answer, streams):
    chunk = last(answer(Looking(without_some), streams, "report"))
    [found] = chunk.verification.findings
    assert found.kind == "skipped"
    assert SENT[found.start : found.end] == found.text
    assert found.text == "to seven"


def test_whole_answer_is_drawn_again_with_another_seed(answer):
    speech_lm = Looking(without_some, all_once)
    chunk = last(answer(speech_lm, False, "retry"))
    assert chunk.verification == Verification([], 1)
    assert len(set(speech_lm.seeds)) == 2


def test_stream_that_stalls_is_incomplete(answer):
    chunk = last(answer(Looking(for_ever), True, "retry"))
    assert chunk.finish_reason is FinishReason.INCOMPLETE
    assert 0 < chunk.spoken_characters < len(SENT)
    assert outputs(chunk, 25)["finish_reason"].item() == b"incomplete"


def test_what_can_not_be_checked_is_refused(answer):
    [error] = answer(Looking(), True, "report", heads=None).errors
    assert isinstance(error, InvalidInput)
    assert error.field == "verify"
    assert "alignment_heads.json" in error.limit
    [error] = answer(Looking(), True, "always").errors
    assert isinstance(error, InvalidInput)
    assert error.limit == "one of off, report, retry"


def test_nothing_is_checked_unasked(answer):
    with pytest.raises(AssertionError):
        last(answer(Looking(all_once), False, "off"))  # The speech LM asserts that rows are asked for.


def parsed(data: bytes) -> Frame:
    reader = FrameReader()
    [frame] = reader.feed(data)
    return frame


FOUND = Verification([Misspoken("skipped", "old train", 4, 13)], 1)


def test_output_is_json():
    chunk = AudioChunk(np.zeros(3, np.float32), 24_000, 0, FinishReason.STOP, verification=FOUND)
    finding = {"kind": "skipped", "text": "old train", "start": 4, "end": 13}
    told = json.loads(outputs(chunk, 25)["verification"].item())
    assert told == {"checked": True, "redraws": 1, "findings": [finding]}
    assert "verification" not in outputs(AudioChunk(np.zeros(3, np.float32), 24_000, 0), 25)


def test_checks_and_findings_go_to_the_engine_and_back():
    checked = CheckedText("old train", 1.5, [(0, 3), (3, 9)], [SentWord("old", 4, 7, 0, 3)], 4)
    hop = HopPolicy(25, 3, 10, 25, 100, 25)
    utterance = Utterance(Sound("voice", 15), 1, SamplingOptions(), True)
    order = Order(utterance, hop, 24_000, checks=Checks(1.2, 0.04, 2))
    read = read_order(parsed(order_frame(order)).header[ORDER])
    assert read.checks == order.checks
    queue = SegmentQueue()
    take_text(parsed(begin_frame(Prompt([1, 2]), False, None, checked)), queue)
    segment = asyncio.run(queue.next())
    assert json.dumps(segment.checked) == json.dumps(checked)
    assert SegmentCheck(read.checks, segment.checked).findings() == []
    assert read_order(parsed(order_frame(Order(utterance, hop, 24_000))).header[ORDER]).checks is None
    chunk = AudioChunk(
        np.zeros(3, np.float32), 24_000, 0, FinishReason.INCOMPLETE, spoken_characters=7, verification=FOUND
    )
    told = read_chunk(parsed(chunk_frame(chunk)), 24_000)
    assert (told.verification, told.spoken_characters) == (FOUND, 7)

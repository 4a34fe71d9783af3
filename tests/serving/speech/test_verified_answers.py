"""Answers whose words a request has checked, in streams and as a whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence

import numpy as np
import pytest
from coded_listener import TEXT, Ear
from open_utterance import Utterance as OpenUtterance
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


def heard(opened, tensors, speech_lm: Looking | None = None, streams: bool = True) -> Ear:
    """What a client hears of an opened service."""

    async def run() -> Ear:
        stages, service, _ = opened
        if speech_lm is not None:
            stages.generate, stages.samples_of = speech_lm.generate, sounding
        ear = Ear(streams=streams)
        await service.answer(Inputs(InferenceRequest(tensors)), ear)
        return ear

    return asyncio.run(run())


@pytest.fixture
def answer(open_service):
    """``answer(speech_lm, streams, verify)`` is what a client hears of `SENT`, or of other inputs."""

    def answer(
        speech_lm: Looking,
        streams: bool,
        verify: str,
        heads: AlignmentHeads | None = HEADS,
        **inputs: str,
    ) -> Ear:
        asked = {"target_text": SENT, "verify": verify, **inputs}
        tensors = {name: np.array([[text.encode()]], np.object_) for name, text in asked.items()}
        return heard(open_service(heads=heads), {**TEXT, **tensors}, speech_lm, streams)

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


@pytest.mark.parametrize("streams", [True, False])
def test_each_turn_is_judged_by_its_own_words(answer, streams):
    turns = json.dumps([{"voice": "", "text": "Hello there."}, {"voice": "", "text": SENT}])
    ear = answer(Looking(all_once, without_some), streams, "report", target_text="", turns=turns)
    first, second = (chunk.verification for chunk in ear.chunks if chunk.finish_reason is not None)
    assert first.findings == []
    [found] = second.findings
    begin = len("Hello there.")
    assert (found.kind, found.text, found.turn) == ("skipped", "to seven", 1)
    assert SENT[found.start - begin : found.end - begin] == "to seven"
    assert json.loads(outputs(last(ear), 25)["verification"].item())["findings"] == [found._asdict()]


def test_turn_that_stalls_ends_the_stream_at_its_place_in_all_texts(answer):
    turns = json.dumps([{"voice": "", "text": "Hello there."}, {"voice": "", "text": SENT}])
    ear = answer(Looking(all_once, for_ever), True, "retry", target_text="", turns=turns)
    assert last(ear).finish_reason is FinishReason.INCOMPLETE
    begin = len("Hello there.")
    assert begin < last(ear).spoken_characters < begin + len(SENT)


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


@pytest.mark.parametrize("default", ["off", "report"])
def test_default_is_that_of_whole_answers_alone(open_service, default):
    for streams in (True, False):
        for heads in (HEADS, None):
            opened = open_service(heads=heads, verify=default)
            opened[0].groups = [TokenGroup([1] * 20), TokenGroup([], FinishReason.STOP)]
            ear = heard(opened, TEXT, streams=streams)
            is_checked = default == "report" and not streams and heads is not None
            assert (last(ear).verification is not None) == is_checked


@pytest.mark.parametrize("heads", [HEADS, None])
def test_verifier_judges_whole_answers_that_ask_alone(open_service, heads):
    heard_texts = []

    async def judge(samples, rate, text):
        assert len(samples)
        heard_texts.append(text)
        return ["mumbled"] if len(heard_texts) == 1 else True

    def said(streams: bool, **inputs: str) -> AudioChunk:
        tensors = {name: np.array([[text.encode()]], np.object_) for name, text in inputs.items()}
        opened = open_service(heads=heads, judge=judge)
        opened[0].groups = [TokenGroup([1] * 20), TokenGroup([], FinishReason.STOP)]
        return last(heard(opened, {**TEXT, **tensors}, streams=streams))

    assert said(streams=False).verification is None
    assert said(streams=True, verify="off").verification is None
    assert heard_texts == []
    assert said(streams=False, verify="retry").verification == Verification([], 1)
    assert heard_texts == ["Hello there."] * 2
    if heads is not None:
        assert said(streams=True, verify="report").verification == Verification([], 0, checked=False)
        assert len(heard_texts) == 2


def test_error_of_the_verifier_is_that_of_its_request(open_service):
    async def judge(*_segment):
        raise RuntimeError("no model")

    opened = open_service(heads=HEADS, judge=judge)
    opened[0].groups = [TokenGroup([1] * 20), TokenGroup([], FinishReason.STOP)]
    asked = {"verify": np.array([[b"report"]], np.object_)}
    [error] = heard(opened, {**TEXT, **asked}, streams=False).errors
    assert str(error) == "no model"
    assert opened[2].count == 0


def pieces_of(
    open_service, speech_lm: Looking, verify: str, *pieces: str, **options: object
) -> OpenUtterance:
    """What is heard of a text in pieces."""

    async def run() -> OpenUtterance:
        stages, service, _ = open_service(**{"heads": HEADS, **options})
        stages.generate, stages.samples_of = speech_lm.generate, sounding
        utterance = OpenUtterance(service, verify=np.array([[verify.encode()]], np.object_))
        for piece in pieces:
            await utterance.say("push", piece)
        await utterance.say("end")
        await utterance.speaking
        return utterance

    return asyncio.run(run())


@pytest.mark.parametrize("blocks", [{}, {"blocks": None}], ids=["interleaved", "clauses"])
def test_text_in_pieces_is_judged_clause_by_clause(open_service, blocks):
    utterance = pieces_of(
        open_service, Looking(all_once, without_some), "report", "Hello <br/>the", "re. ", SENT, **blocks
    )
    assert utterance.ear.errors == [None]
    first, second = (chunk.verification for chunk in utterance.ear.chunks if chunk.finish_reason is not None)
    assert first == Verification([], 0)
    [found] = second.findings
    assert "to seven" in found.text
    assert ("Hello <br/>there. " + SENT)[found.start : found.end] == found.text


def test_clause_that_stalls_is_ended_and_the_next_one_spoken(open_service):
    utterance = pieces_of(open_service, Looking(for_ever, all_once), "retry", SENT, " Hello there.")
    assert utterance.ear.errors == [None]
    ends = [chunk for chunk in utterance.ear.chunks if chunk.finish_reason is not None]
    assert [chunk.finish_reason for chunk in ends] == [FinishReason.INCOMPLETE, FinishReason.STOP]
    assert utterance.ends == [len(SENT + " "), len(SENT + " Hello there.")]
    assert [bool(chunk.verification.findings) for chunk in ends] == [True, False]


def test_text_in_pieces_that_can_not_be_judged_is_refused(open_service):
    [error] = pieces_of(open_service, Looking(), "report", heads=None).ear.errors
    assert isinstance(error, InvalidInput)
    assert error.field == "verify"


def parsed(data: bytes) -> Frame:
    reader = FrameReader()
    [frame] = reader.feed(data)
    return frame


FOUND = Verification([Misspoken("skipped", "old train", 4, 13)], 1)
OF_TURN = Verification([Misspoken("skipped", "old train", 4, 13, 3)], 1)


def test_output_is_json():
    chunk = AudioChunk(np.zeros(3, np.float32), 24_000, 0, FinishReason.STOP, verification=FOUND)
    finding = {"kind": "skipped", "text": "old train", "start": 4, "end": 13}
    told = json.loads(outputs(chunk, 25)["verification"].item())
    assert told == {"checked": True, "redraws": 1, "findings": [finding]}
    assert "verification" not in outputs(AudioChunk(np.zeros(3, np.float32), 24_000, 0), 25)


def test_checks_and_findings_go_to_the_engine_and_back():
    checked = CheckedText("old train", 1.5, [(0, 3), (3, 9)], [SentWord("old", 4, 7, 0, 3)], 4, 2)
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
        np.zeros(3, np.float32), 24_000, 0, FinishReason.INCOMPLETE, spoken_characters=7, verification=OF_TURN
    )
    told = read_chunk(parsed(chunk_frame(chunk)), 24_000)
    assert (told.verification, told.spoken_characters) == (OF_TURN, 7)

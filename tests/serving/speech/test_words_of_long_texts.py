"""Words and verification of texts of many segments, from a later one on, and with silence between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from weakref import WeakSet

import numpy as np
import pytest
from coded_listener import TEXT, Ear, check, words
from triton_python_backend_utils import InferenceRequest

from coded_stages import sounding
from cosyvoice_runtime.alignment.words import TimedWord
from cosyvoice_runtime.checkpoint.alignment_heads import AlignmentHeads
from cosyvoice_runtime.engine.messages import order_frame
from cosyvoice_runtime.engine.utterance import word_clock
from cosyvoice_runtime.engine.utterance.gaps import KEPT_S
from cosyvoice_runtime.engine.utterance.utterance import TokenGroup
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.serving.triton.request import Inputs

HEADS = AlignmentHeads(((0, 0),), 0.0, 0.0, 1.0, "")
EACH = 8
"""Speech tokens of a text token."""
PARAGRAPHS = [f"Paragraph {number} has words – and costs ${number}." for number in range(1, 8)]
LONG = "\n\n".join(PARAGRAPHS)
SENT = LONG.split()
FOURTH = LONG.index(PARAGRAPHS[3])


class Reading:
    """A speech LM that looks at each text token in turn, and says it with so many speech tokens.

    Args:
        lead, tail: silent tokens before and behind each segment.
        misread: segments, of those that are spoken, in which it skips words or says some for ever.
        sees: whether it tells where it looks.
    """

    def __init__(
        self, lead: int = 0, misread: dict[int, str] | None = None, sees: bool = True, tail: int = 0
    ) -> None:
        self._lead, self._misread, self._sees, self._tail = lead, misread or {}, sees, tail
        self._count = 0

    async def generate(
        self, prompt, _sampling, _id, _first, _pieces, with_rows
    ) -> AsyncGenerator[TokenGroup]:
        text = len(prompt.text)
        ways = {
            "skips": [*range(3), *range(text - 5, text)],
            "stalls": [*range(4), *[2, 3] * 20],
        }
        looks: Sequence[int] = ways.get(self._misread.get(self._count, ""), range(text))
        self._count += 1
        said = np.repeat(looks, EACH).tolist()
        looks = [0] * self._lead + said + said[-1:] * self._tail
        tokens = [0] * self._lead + [1] * len(said) + [0] * self._tail
        for start in range(0, len(tokens), 10):
            part = slice(start, start + 10)
            rows = np.eye(text, dtype=np.float32)[looks[part]]
            seen = {"rows": rows, "are_spoken": [True] * len(rows)} if with_rows and self._sees else {}
            yield TokenGroup(tokens[part], **seen)
            await asyncio.sleep(0)
        yield TokenGroup([], FinishReason.STOP)


@pytest.fixture
def answer(open_service):
    """``answer(speech_lm, ...)`` is what a client hears of the long text."""

    def answer(
        speech_lm: Reading | None = None,
        heads: AlignmentHeads | None = HEADS,
        streams: bool = True,
        words: bool = True,
        verify: str = "off",
        start: int = 0,
        pause_s: float | None = None,
        trim: str = "off",
        text: str = LONG,
        paragraph_pause_s: float = 0.5,
    ) -> Ear:
        async def run() -> Ear:
            stages, service, _ = open_service(heads=heads)
            stages.generate, stages.samples_of = (speech_lm or Reading()).generate, sounding
            inputs = {
                "target_text": np.array([[text.encode()]], np.object_),
                "words": np.array([[words]]),
                "verify": np.array([[verify.encode()]], np.object_),
                "trim_silence": np.array([[trim.encode()]], np.object_),
                "start_character": np.array([[start]], np.int32),
                "paragraph_pause_s": np.array([[paragraph_pause_s]], np.float32),
            }
            if pause_s is not None:
                inputs["sentence_pause_s"] = np.array([[pause_s]], np.float32)
            ear = Ear(streams=streams)
            await service.answer(Inputs(InferenceRequest({**TEXT, **inputs})), ear)
            assert ear.errors == [None]
            return ear

        return asyncio.run(run())

    return answer


def begins_s(ear: Ear) -> list[float]:
    """Seconds of the answer at which the speech of each segment begins: none of it has silence within."""
    samples = np.concatenate([chunk.samples for chunk in ear.chunks])
    loud = np.flatnonzero(samples)
    first = loud[np.flatnonzero(np.diff(loud, prepend=-10_000) > 2_000)]
    return (first / 24_000).tolist()


HOW = pytest.mark.parametrize(
    "how", [{}, {"heads": None}, {"speech_lm": Reading(sees=False)}], ids=["attention", "no heads", "blind"]
)


@HOW
@pytest.mark.parametrize("streams", [True, False])
def test_all_words_of_a_long_text_are_told(answer, how, streams):
    check(answer(streams=streams, **how), SENT)


@HOW
@pytest.mark.parametrize("start", [FOURTH, FOURTH + 20])
def test_words_from_a_later_character_on_are_those_of_the_whole_from_there(answer, how, start):
    rest, whole = answer(start=start, **how), answer(**how)
    sent = LONG[FOURTH:].split()
    check(rest, sent)
    if "heads" in how or "speech_lm" in how:
        return  # An estimate has learned no pace where the answer begins.
    before_s = sum(chunk.seconds for chunk in whole.chunks if chunk.segment < 3)
    later = [TimedWord(text, start_s + before_s, end_s + before_s) for text, start_s, end_s in words(rest)]
    for word, same in zip(later, words(whole)[-len(sent) :], strict=True):
        np.testing.assert_allclose(word[1:], same[1:], atol=1e-3)


@pytest.mark.parametrize("heads", [HEADS, None], ids=["attention", "estimate"])
@pytest.mark.parametrize("trim", ["off", "both"])
@pytest.mark.parametrize("start", [0, FOURTH])
def test_words_lie_in_speech_that_has_silence_between_its_segments(answer, heads, trim, start):
    ear = answer(Reading(lead=20), heads, start=start, pause_s=0.7, trim=trim)
    check(ear, LONG[start:].split())
    begins = begins_s(ear)
    assert len(begins) == LONG[start:].count("\n\n") + 1
    first = [word for word in words(ear) if word.text == "Paragraph"]
    for word, begin_s, next_s in zip(first, begins, [*begins[1:], 1e9], strict=True):
        assert begin_s - 0.03 <= word.start_s < begin_s + 0.1
        assert word.end_s < next_s - 0.7 + KEPT_S


@pytest.mark.parametrize("paragraph_s", [0.0, 0.5])
@pytest.mark.parametrize("pause_s", [None, 0.0, 0.7])
@pytest.mark.parametrize("trim", ["start", "both"])
def test_words_of_trimmed_speech_are_told_where_it_is(answer, trim, pause_s, paragraph_s):
    """Without the silence at the ends of the answer, all words are as much earlier as its first one is."""
    speech = {"pause_s": pause_s, "paragraph_pause_s": paragraph_s}
    whole, ear = (answer(Reading(20, tail=14), trim=how, **speech) for how in ("off", trim))
    check(ear, SENT)
    cut_s = begins_s(whole)[0] - begins_s(ear)[0]
    assert cut_s > 0.7
    for word, same in zip(words(ear)[1:], words(whole)[1:], strict=True):
        np.testing.assert_allclose(np.add(word[1:], cut_s), same[1:], atol=0.011)


@HOW
@pytest.mark.parametrize("trim", ["off", "start", "both"])
@pytest.mark.parametrize("pause_s", [None, 0.0, 0.7])
def test_marks_between_paragraphs_are_told_once_and_change_no_method(answer, how, trim, pause_s):
    """A mark takes no time, so that it may be over before anything of its segment is heard."""
    text = "\n\n".join(f"– Paragraph {number} costs ${number}. 🙂" for number in range(1, 5))
    speech_lm = Reading(20, tail=14, sees="speech_lm" not in how)
    ear = answer(**{**how, "speech_lm": speech_lm}, trim=trim, pause_s=pause_s, text=text)
    check(ear, text.split())
    method = "estimate" if how else "attention"
    assert {chunk.words_by for chunk in ear.chunks if chunk.words} == {method}


@pytest.mark.parametrize(("start", "spoken"), [(0, 5), (FOURTH, 2)])
def test_what_is_wrong_is_told_by_the_characters_of_the_whole_text(answer, start, spoken):
    ear = answer(Reading(misread={spoken: "skips"}), words=False, verify="report", start=start)
    verified = [chunk.verification for chunk in ear.chunks if chunk.finish_reason is not None]
    skipped = [[found for found in each.findings if found.kind == "skipped"] for each in verified]
    assert [number for number, each in enumerate(skipped) if each] == [spoken]
    begin = LONG.index(PARAGRAPHS[5])
    for found in skipped[spoken]:
        assert LONG[found.start : found.end] == found.text
        assert begin <= found.start < found.end <= begin + len(PARAGRAPHS[5])


@pytest.mark.parametrize("pause_s", [None, 0.7])
@pytest.mark.parametrize("told", [True, False], ids=["words", "no words"])
def test_answer_that_stalls_amid_a_long_text_ends_there(answer, pause_s, told):
    ear = answer(Reading(misread={5: "stalls"}), words=told, verify="retry", pause_s=pause_s)
    ends = [chunk for chunk in ear.chunks if chunk.finish_reason is not None]
    assert [chunk.finish_reason.value for chunk in ends] == ["stop"] * 5 + ["incomplete"]
    begin = LONG.index(PARAGRAPHS[5])
    assert [chunk.spoken_characters for chunk in ends[:5]] == [
        len("\n\n".join(PARAGRAPHS[:count])) for count in range(1, 6)
    ]
    assert begin <= ends[-1].spoken_characters < begin + len(PARAGRAPHS[5])
    assert ends[-1].verification.findings
    check(ear, LONG[: ends[-1].spoken_characters].split() if told else [])


@HOW
def test_what_is_kept_of_a_text_s_segments_does_not_grow_with_it(answer, how, monkeypatch):
    """What is told of the segments, and what times them, is made while those before them are spoken."""
    alive = WeakSet()
    most = 0

    class Counted(word_clock.SegmentTimes):
        def __init__(self, *parts) -> None:
            nonlocal most
            super().__init__(*parts)
            alive.add(self)
            most = max(most, len(alive))

    sounded_s = 0.0

    class Sounding(word_clock.AudibleFrames):
        def add(self, samples: np.ndarray) -> None:
            nonlocal sounded_s
            super().add(samples)
            sounded_s = max(sounded_s, self.seconds)

    monkeypatch.setattr(word_clock, "SegmentTimes", Counted)
    monkeypatch.setattr(word_clock, "AudibleFrames", Sounding)
    ear = answer(**how)
    check(ear, SENT)
    assert most == (0 if how else 2)  # The next one is made before the last one goes.
    assert sounded_s < sum(chunk.seconds for chunk in ear.chunks) / len(PARAGRAPHS) + 1


def test_order_does_not_grow_with_the_text_that_is_checked(open_service):
    text = "今天天气很好，我们去公园玩吧。" * 1_300
    sizes = []

    async def run() -> Ear:
        stages, service, _ = open_service(heads=HEADS, max_characters=len(text))
        stages.generate, stages.samples_of = Reading().generate, sounding
        call = stages.call
        stages.call = lambda order, *rest: sizes.append(len(order_frame(order))) or call(order, *rest)
        inputs = {
            name: np.array([[said.encode()]], np.object_)
            for name, said in {"target_text": text, "verify": "report"}.items()
        }
        ear = Ear()
        await service.answer(Inputs(InferenceRequest({**TEXT, **inputs})), ear)
        return ear

    ear = asyncio.run(run())
    assert ear.errors == [None]
    assert max(sizes) < 2_000
    assert sum(chunk.verification is not None for chunk in ear.chunks) > 100

"""Words that a request asks for, in streams, whole answers, turns and texts in pieces."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from unittest.mock import Mock

import numpy as np
import pytest
from coded_listener import TEXT, Ear, check, words
from open_utterance import Utterance
from triton_python_backend_utils import InferenceRequest

from coded_stages import CodedStages, sounding
from cosyvoice_runtime.alignment.sound import PAUSE_S
from cosyvoice_runtime.alignment.words import TimedWord
from cosyvoice_runtime.checkpoint.alignment_heads import AlignmentHeads
from cosyvoice_runtime.engine.utterance.request import AudioChunk
from cosyvoice_runtime.engine.utterance.utterance import TokenGroup
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.serving.speech.speech_inputs import WholeListener, outputs
from cosyvoice_runtime.serving.triton.request import Inputs

HEADS = AlignmentHeads(((0, 0),), 0.0, 0.0, 1.5, "")
EACH = 8
"""Speech tokens of a text token."""
SENT = 'Pay $25 to Dr. Li – now.<break time="300ms"/> The train <speed ratio="1.5"/>leaves at 7:45.'
WORD = TimedWord("Hello.", 0.0, 0.1)
WORDS = ["Pay", "$25", "to", "Dr.", "Li", "–", "now.", "The", "train", "leaves", "at", "7:45."]


class Following:
    """A speech LM that says each text token with so many speech tokens, and looks at it meanwhile.

    Args:
        sizes: of its groups, again and again.
        sees: whether it tells where it looks.
    """

    def __init__(self, sizes: Sequence[int] = (16, 25), sees: bool = True) -> None:
        self._sizes, self._sees = sizes, sees
        self.asked: list[bool] = []

    async def generate(self, prompt, _sampling, _id, _first, pieces, with_rows) -> AsyncGenerator[TokenGroup]:
        self.asked.append(with_rows)
        text = len(prompt.text)
        if pieces is not None:
            while (ids := await pieces.get()) is not None:
                text += len(ids)
        rows = np.repeat(np.eye(text, dtype=np.float32), EACH, axis=0)
        start = size = 0
        while start < len(rows):
            part = rows[start : start + self._sizes[size % len(self._sizes)]]
            seen = {"rows": part, "are_spoken": [True] * len(part)} if with_rows and self._sees else {}
            yield TokenGroup([1] * len(part), **seen)
            await asyncio.sleep(0)
            start, size = start + len(part), size + 1
        yield TokenGroup([], FinishReason.STOP)


def prepared(stages: CodedStages, speech_lm: Following) -> None:
    stages.generate = speech_lm.generate
    stages.samples_of = sounding


def given_text(text: str | Sequence[str], **inputs: object) -> dict[str, np.ndarray]:
    """Inputs of a text, or of turns."""
    if not isinstance(text, str):
        turns = [{"voice": "one", "text": each} for each in text]
        inputs["turns"], text = np.array([[json.dumps(turns).encode()]], np.object_), ""
    return {**TEXT, "target_text": np.array([[text.encode()]], np.object_), **inputs}


@pytest.fixture
def answer(open_service) -> Callable[..., Ear]:
    """``answer(text)`` is what a client hears that asks for words."""

    def answer(
        text: str | Sequence[str],
        speech_lm: Following | None = None,
        heads: AlignmentHeads | None = HEADS,
        streams: bool = True,
        **inputs: object,
    ) -> Ear:
        async def run() -> Ear:
            stages, service, _ = open_service(heads=heads)
            prepared(stages, speech_lm or Following())
            ear, asked = Ear(streams=streams), {"words": np.array([[True]])} | inputs
            await service.answer(Inputs(InferenceRequest(given_text(text, **asked))), ear)
            assert ear.errors == [None]
            return ear

        return asyncio.run(run())

    return answer


def methods(ear: Ear) -> set[str | None]:
    return {chunk.words_by for chunk in ear.chunks if not chunk.is_pause}


@pytest.mark.parametrize("trim", ["off", "start", "both"])
@pytest.mark.parametrize("streams", [True, False])
def test_words_are_timed_by_attention_where_it_is_told(answer, streams, trim):
    ear = answer(SENT, streams=streams, trim_silence=np.array([[trim.encode()]], np.object_))
    check(ear, WORDS)
    assert methods(ear) == {"attention"}
    gaps = [after.start_s - before.end_s for before, after in pairwise(words(ear))]
    assert gaps[WORDS.index("now.")] >= 0.29


@pytest.mark.parametrize(
    "options", [{"heads": None}, {"speech_lm": Following(sees=False)}], ids=["no heads", "blind"]
)
def test_words_are_an_estimate_where_attention_is_not_told_and_say_so(answer, options):
    ear = answer(SENT, **options)
    check(ear, WORDS)
    assert methods(ear) == {"estimate"}


@pytest.mark.parametrize("streams", [True, False])
def test_method_is_said_before_any_word_is_over(answer, streams):
    """A first chunk without words says how the others will be timed."""
    for sees, method in ((True, "attention"), (False, "estimate")):
        ear = answer("Unquestionably extraordinary circumstances.", Following((13, 2), sees), streams=streams)
        assert methods(ear) == {method}


def test_whole_answer_says_the_least_exact_method():
    chunks = [
        AudioChunk(np.zeros(2, np.float32), 24_000, 0, FinishReason.STOP, words=words, words_by=by)
        for words, by in (([WORD], "attention"), ([], "estimate"), ([WORD], "attention"))
    ]
    for told, by in ((chunks, "attention"), ([*chunks, replace(chunks[1], words=[WORD])], "estimate")):
        reply = Mock()
        listener = WholeListener(reply, 25)
        for chunk in told:
            listener.send(chunk)
        listener.complete()
        assert json.loads(reply.send_only.call_args.kwargs["words"][0, 0])["by"] == by


def test_rows_are_asked_for_with_words_and_heads_alone(answer):
    for inputs, asked in (({}, True), ({"words": np.array([[False]])}, False), ({"heads": None}, False)):
        speech_lm = Following()
        ear = answer("Hello there.", speech_lm, **inputs)
        assert speech_lm.asked == [asked]
        assert (methods(ear) == {None}) == ("words" in inputs)


def test_turns_are_timed_each_by_its_text(answer):
    ear = answer(["Pay $25 now.", "No!", "Well,  well."])
    check(ear, ["Pay", "$25", "now.", "No!", "Well,", "well."])
    assert methods(ear) == {"attention"}


def test_segment_spoken_elsewhere_in_part_is_an_estimate(answer):
    """The other segments are not."""

    class Resumed(Following):
        async def generate(self, *given):
            with_rows = given[-1] and bool(self.asked)
            async for group in super().generate(*given[:-1], with_rows):
                yield group

    ear = answer("One two three. <break time='1s'/> Four five six.", Resumed())
    check(ear, ["One", "two", "three.", "Four", "five", "six."])
    assert [chunk.words_by for chunk in ear.chunks if chunk.finish_reason] == ["estimate", "attention"]


PARTS = ["word", "$3.20", "a", "über", "–", "你好", "7:45", "(b)", "end.", "C++", "3rd?"]


@pytest.mark.parametrize("seed", range(12))
def test_whole_answers_tell_what_streams_tell(answer, seed):
    """Of random texts, in groups of random sizes, with and without rows."""
    chance = random.Random(seed)
    text = " ".join(["Say", *chance.choices(PARTS, k=chance.randint(1, 20))])
    sizes, sees = [chance.randint(1, 60) for _ in range(3)], seed % 3 > 0
    streamed, whole = (answer(text, Following(sizes, sees), streams=streams) for streams in (True, False))
    expected = [word.text for word in words(streamed)]
    assert "".join(expected) == "".join(text.split())
    check(streamed, expected)
    check(whole, expected)
    if sees:
        for one, other in zip(words(streamed), words(whole), strict=True):
            np.testing.assert_allclose(one[1:], other[1:], atol=PAUSE_S + 0.01)


@pytest.mark.parametrize("clauses", [True, False], ids=["clauses", "interleaved"])
def test_text_in_pieces_is_timed_by_attention_where_each_clause_is_a_segment(open_service, clauses):
    async def run() -> tuple[Ear, Following]:
        options = {"blocks": None} if clauses else {}
        stages, service, _ = open_service(heads=HEADS, **options)
        speech_lm = Following()
        prepared(stages, speech_lm)
        utterance = Utterance(service, "Pay $25 now, ", words=np.array([[True]]))
        for piece in ("pl", "ease. The tr", "ain leaves at 7:45 🙂"):
            await utterance.say("push", piece)
        await utterance.say("end")
        await utterance.speaking
        return utterance.ear, speech_lm

    ear, speech_lm = asyncio.run(run())
    assert ear.errors == [None]
    check(ear, ["Pay", "$25", "now,", "please.", "The", "train", "leaves", "at", "7:45", "🙂"])
    assert methods(ear) - {None} == ({"attention"} if clauses else {"estimate"})
    assert set(speech_lm.asked) == {clauses}


def test_output_is_json_of_words_as_they_were_sent(answer):
    ear = answer("你好 “quoted”.")
    told = [json.loads(outputs(chunk, 25)["words"][0, 0]) for chunk in ear.chunks]
    assert [each["by"] for each in told] == ["attention"] * len(ear.chunks)
    found = [word for each in told for word in each["words"]]
    assert [word["text"] for word in found] == ["你", "好", "“quoted”."]
    assert all(word.keys() == {"text", "start_s", "end_s"} for word in found)
    silent = answer("Hello.", words=np.array([[False]]))
    assert "words" not in outputs(silent.chunks[0], 25)


def test_a_client_that_leaves_leaves_nothing_behind(open_service):
    async def run() -> tuple[CodedStages, Ear]:
        stages, service, admission = open_service(heads=HEADS)
        prepared(stages, Following())
        ear = Ear("call")
        asked = given_text(" ".join(["Say"] * 60), words=np.array([[True]]))
        speaking = asyncio.create_task(service.answer(Inputs(InferenceRequest(asked)), ear))
        await asyncio.wait_for(ear.heard.wait(), 30)
        service.leave("call")
        await speaking
        assert stages.dropped
        with admission.admit(None, False), admission.admit(None, False):
            pass
        return stages, ear

    _, ear = asyncio.run(run())
    assert [type(error).__name__ for error in ear.errors] == ["ClientGoneError"]

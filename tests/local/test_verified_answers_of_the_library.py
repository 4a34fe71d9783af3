"""Answers of the library that are compared with their texts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cosyvoice_client.delivery import found as found_lines
from cosyvoice_runtime.checkpoint import Layout
from cosyvoice_runtime.checkpoint.alignment_heads import AlignmentHeads, llm_sha256
from cosyvoice_runtime.engine.utterance.verification import MOST_REDRAWS
from cosyvoice_runtime.engine.utterance.verifier import load_verifier
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.local import SpeechRequest, Synthesizer, Turn
from making import make_checkpoint

TEXT = "Pay $25 to Dr. Li. The train leaves at 7:45."


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> Synthesizer:
    made = make_checkpoint(tmp_path_factory.mktemp("verify") / "made", "tiny", seed=0)
    (made / "SHA256SUMS").unlink()
    AlignmentHeads(((0, 1), (1, 0)), 1.25, 2.0, 1.5, llm_sha256(Layout(made))).write(made)
    return Synthesizer.from_checkpoint(made, ode_steps=2)


@pytest.fixture(scope="module")
def unseen(tiny_checkpoint) -> Synthesizer:
    return Synthesizer.from_checkpoint(tiny_checkpoint, ode_steps=2)


def asked(synthesizer: Synthesizer, **options) -> SpeechRequest:
    voice = next(iter(synthesizer.speakers.values()))
    sampling = SamplingOptions(min_tokens=40, max_tokens=60)
    return SpeechRequest(**{"text": TEXT, "voice": voice, "seed": 3, "sampling": sampling, **options})


def verifications(synthesizer: Synthesizer, request: SpeechRequest) -> list:
    chunks = list(synthesizer.synthesize(request))
    return [chunk.verification for chunk in chunks if chunk.finish_reason is not None]


@pytest.mark.parametrize("streaming", [True, False])
def test_report_finds_that_made_weights_say_nothing_and_changes_no_sample(seen, streaming):
    request = asked(seen, verify="report", streaming=streaming)
    [verification] = verifications(seen, request)
    assert verification.redraws == 0
    assert verification.findings
    for found in verification.findings:
        assert TEXT[found.start : found.end].split() == found.text.split()
    plain = [chunk.samples for chunk in seen.synthesize(dataclasses.replace(request, verify="off"))]
    assert all(map(np.array_equal, plain, [chunk.samples for chunk in seen.synthesize(request)]))


def test_retry_draws_again_with_seeds_of_its_own_and_is_repeatable(seen):
    request = asked(seen, verify="retry", streaming=False)
    [first], [again] = list(seen.synthesize(request)), list(seen.synthesize(request))
    assert first.verification.redraws == MOST_REDRAWS
    assert np.array_equal(first.samples, again.samples)
    assert len(first.verification.findings) <= len(
        verifications(seen, dataclasses.replace(request, verify="report"))[0].findings
    )


def test_default_reports_of_whole_answers_whose_attention_is_seen(seen, unseen):
    assert verifications(seen, asked(seen, streaming=False))[0] is not None
    assert verifications(seen, asked(seen)) == [None]
    assert verifications(unseen, asked(unseen, streaming=False)) == [None]


@pytest.mark.parametrize("options", [{"streaming": False}, {"verify": "report"}, {"verify": "retry"}])
def test_findings_of_turns_name_the_turn_and_its_words_in_the_whole_script(seen, options):
    texts = [TEXT, "Who pays Dr. Li?"]
    turns = [Turn("", text) for text in texts]
    request = asked(seen, text="", turns=turns, find_voice=lambda _: asked(seen).voice, **options)
    first, second = verifications(seen, request)
    assert first.findings
    assert second.findings
    for number, verification in enumerate((first, second)):
        begin = sum(map(len, texts[:number]))
        for found in verification.findings:
            assert found.turn == number
            assert begin <= found.start <= found.end <= begin + len(texts[number])
            assert "".join(texts)[found.start : found.end].split() == found.text.split()
    assert list(found_lines(second.told()))[-1].endswith("in turns[1]")


@pytest.mark.parametrize("interleaved", [None, True, False])
def test_text_in_pieces_is_judged_clause_by_clause(seen, interleaved):
    pieces = ["Pay $25 to", " Dr. Li. The train", " leaves at 7:45."]
    chunks = list(seen.synthesize_pieces(pieces, asked(seen, verify="report"), interleaved))
    ends = [chunk for chunk in chunks if chunk.finish_reason is not None]
    assert len(ends) == 2
    begin = 0
    for chunk in ends:
        assert chunk.verification.checked
        for found in chunk.verification.findings:
            assert begin <= found.start <= found.end <= chunk.spoken_characters
            assert TEXT[found.start : found.end].split() == found.text.split()
        begin = chunk.spoken_characters
    assert all(chunk.verification is None for chunk in seen.synthesize_pieces(pieces, asked(seen)))


def test_words_and_verification_come_together(seen):
    chunks = list(seen.synthesize(asked(seen, verify="report"), words=True))
    assert [word.text for chunk in chunks for word in chunk.words] == TEXT.split()
    assert chunks[-1].verification is not None


def test_what_can_not_be_verified_is_refused(seen, unseen):
    with pytest.raises(InvalidInput, match=r"verify.*report.*alignment_heads\.json"):
        unseen.synthesize(asked(unseen, verify="report"))
    with pytest.raises(InvalidInput, match=r"verify.*retry.*alignment_heads\.json"):
        unseen.synthesize_pieces([TEXT], asked(unseen, verify="retry"))


class Mumbled:
    """A verifier of whole answers."""

    def __call__(self, samples, rate, text) -> list[str]:
        return [f"{len(samples) / rate > 0.5} {text[:8]}"]


def test_verifier_judges_whole_answers_of_any_speech_lm(tiny_checkpoint):
    verifier = load_verifier(f"{Mumbled.__module__}:Mumbled")
    synthesizer = Synthesizer.from_checkpoint(tiny_checkpoint, ode_steps=2, verifier=verifier)
    [verification] = verifications(synthesizer, asked(synthesizer, streaming=False))
    assert [(found.kind, found.text) for found in verification.findings] == [("heard", "True Pay twen")]
    assert verifications(synthesizer, asked(synthesizer)) == [None]

"""Turns of several speakers: how they are read, laid out and spoken, and how their errors are named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import numpy as np
import pytest

from coded_stages import TOKEN_SAMPLES, CodedStages
from cosyvoice_runtime.engine.utterance.feed import SegmentFeed
from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.engine.utterance.layout import LaidSegment, laid_out
from cosyvoice_runtime.engine.utterance.request import AudioChunk, SpeechRequest, Utterance
from cosyvoice_runtime.engine.utterance.turn import MOST_TURNS, Turn, read_turns
from cosyvoice_runtime.engine.utterance.utterance import TokenGroup, speak
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families.cosyvoice3 import COSYVOICE3
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.lm.text_segment import SegmentQueue
from cosyvoice_runtime.text import TextFrontEnd, TextTokenizer
from fake_voices import make_voice

RATE = 24_000
HOP = HopPolicy(25, 3, 10, 25, 100, 25)
VOICES = {name: make_voice(number) for number, name in enumerate(("", "anna", "ben"))}
TALK = [Turn("anna", "Hello there."), Turn("ben", "Hi. How are you?"), Turn("anna", "Fine.")]


@pytest.fixture(scope="module")
def tokenizer(tiny_checkpoint) -> TextTokenizer:
    return TextTokenizer(tiny_checkpoint / "CosyVoice-BlankEN")


def find(name: str):
    if name not in VOICES:
        raise InvalidInput("voice", name, "a voice")
    return VOICES[name]


def request(turns: Sequence[Turn] = TALK, **options) -> SpeechRequest:
    return SpeechRequest(
        **({"text": "", "voice": VOICES[""], "seed": 1, "turns": turns, "find_voice": find} | options)
    )


def laid(tokenizer, turns: Sequence[Turn] = TALK, **options) -> list[LaidSegment]:
    asked = request(turns, **options)
    return list(laid_out(asked, TextFrontEnd(tokenizer), tokenizer, lambda voice: voice).segments())


def heard(tokenizer, turns: Sequence[Turn] = TALK, tokens: int = 60, **options):
    """The chunks of turns, each segment of which has so many tokens, and the stages that spoke them."""
    asked = request(turns, **options)
    layout = laid_out(asked, TextFrontEnd(tokenizer), tokenizer, HOP.flow_voice)
    groups = [TokenGroup([token]) for token in range(tokens)]

    async def listen() -> tuple[list[AudioChunk], CodedStages]:
        stages, queue = CodedStages([*groups, TokenGroup([], FinishReason.STOP)]), SegmentQueue()
        feed = SegmentFeed(layout.segments())
        feed.begin(queue)
        utterance = Utterance.of(asked, layout.sound)
        chunks = feed.chunks(speak(utterance, queue, stages, HOP, RATE, lambda: 0.0))
        return [chunk async for chunk in chunks], stages

    return asyncio.run(listen())


def test_each_turn_has_its_voice_and_a_silence_before_all_but_the_first(tokenizer):
    segments = laid(tokenizer)
    keys = [VOICES[turn.voice].prompt_key for turn in TALK]
    assert [segment.sound.voice_key for segment in segments] == keys
    assert [segment.pause_s for segment in segments] == [0, 0.3, 0.3]
    assert [segment.characters for segment in segments] == [12, 28, 33]


def test_silence_between_turns_is_as_asked_beside_what_their_texts_ask_for(tokenizer):
    turns = [Turn("anna", "One.<break time='2s'/>"), Turn("ben", "[pause:1s]Two. [pause:0.5s]Three.")]
    segments = laid(tokenizer, turns, turn_pause_s=0.75)
    pauses = [(segment.prompt is not None, segment.pause_s) for segment in segments]
    assert pauses == [(True, 0), (False, 2), (True, 1.75), (True, 0.5)]
    assert [segment.characters for segment in segments] == [22, None, None, 22 + 33]


def test_a_turn_is_spoken_as_it_would_be_alone(tokenizer):
    """A text of its own markup and language, with its own instructions, else the request's."""
    turns = [
        Turn("anna", "# Heading\n\n5 kg"),
        Turn("ben", "<speak>Hi <voice name='anna'>5 kg</voice></speak>", "Whisper."),
        Turn("ben", "我有2个"),
    ]
    for asked in (None, "Slowly."):
        alone = []
        for turn in turns:
            one = request(
                (), text=turn.text, voice=find(turn.voice), instruct_text=turn.instructions or asked
            )
            alone += laid_out(one, TextFrontEnd(tokenizer), tokenizer, lambda voice: voice).segments()
        together = laid(tokenizer, turns, instruct_text=asked)
        assert [str(segment.prompt) for segment in together] == [str(segment.prompt) for segment in alone]
    assert together[3].sound.voice_key == VOICES["anna"].prompt_key


@pytest.mark.parametrize(
    ("turn", "field"),
    [
        (Turn("nobody", "Hi."), "turns[1].voice"),
        (Turn("ben", "<speak><voice name='nobody'>Hi.</voice></speak>"), "turns[1].voice"),
        (Turn("ben", "..."), "turns[1].text"),
        (Turn("ben", ""), "turns[1].text"),
        (Turn("ben", "<speak>Hi."), "turns[1].text"),
        (Turn("ben", "<speak>Hi.<lang xml:lang='klingon'>Hi.</lang></speak>"), "turns[1].text"),
    ],
)
def test_what_is_wrong_of_a_turn_is_named_with_its_place(tokenizer, turn, field):
    with pytest.raises(InvalidInput) as caught:
        laid(tokenizer, [TALK[0], turn])
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")


def test_instructions_that_a_family_needs_are_those_of_the_turn(tokenizer):
    """The words of a voice lack them, which no request can change."""
    turns = [Turn("anna", "Hello.", "Whisper."), Turn("ben", "Hi.")]
    front_end = TextFrontEnd(tokenizer, family=COSYVOICE3)
    with pytest.raises(InvalidInput, match=r"^turns\[1\]\.instructions: .* needs an instruction") as caught:
        laid_out(request(turns), front_end, tokenizer, lambda voice: voice)
    assert repr(VOICES["ben"].transcript) not in str(caught.value)


def test_what_is_wrong_of_the_request_is_named_without_a_turn(tokenizer):
    with pytest.raises(InvalidInput, match=r"^language: "):
        laid(tokenizer, language="klingon")


def test_all_silences_of_texts_together_are_limited_and_those_between_turns_count_for_none(tokenizer):
    turns = [Turn("anna", f"Hi.{'[pause:10s]' * 2}") for _ in range(3)]
    assert len(laid(tokenizer, turns, turn_pause_s=3)) == 6
    with pytest.raises(InvalidInput, match=r"turns: .* at most 60 s in all texts"):
        laid(tokenizer, [*turns, Turn("anna", "[pause:1s] Hi.")])


@pytest.mark.parametrize("pause_s", [-0.1, 3.1, float("nan")])
def test_silence_between_turns_has_limits(pause_s):
    with pytest.raises(InvalidInput, match=r"^turn_pause_s: "):
        request(turn_pause_s=pause_s)


def test_instructions_of_a_turn_are_none_where_the_voices_sound_alone_counts():
    with pytest.raises(InvalidInput, match=r"^cross_lingual: .* instructions of turns"):
        request([TALK[0], Turn("ben", "Hi.", "Whisper.")], cross_lingual=True)


def test_a_text_beside_turns_is_refused():
    with pytest.raises(InvalidInput, match=r"^target_text: "):
        request(text="Hi.")


@pytest.mark.parametrize("streaming", [True, False])
def test_turns_are_one_answer_in_which_each_end_says_how_far_it_is(tokenizer, streaming):
    chunks, stages = heard(tokenizer, streaming=streaming)
    ends = [(chunk.segment, chunk.spoken_characters) for chunk in chunks if chunk.finish_reason]
    assert ends == [(0, 12), (1, 28), (2, 33)]
    pauses = [round(chunk.seconds, 6) for chunk in chunks if chunk.is_pause]
    assert pauses == [0.3, 0.3]
    spoken = np.concatenate([chunk.samples for chunk in chunks if not chunk.is_pause])[::TOKEN_SAMPLES]
    assert spoken.tolist() == [*range(60)] * 3
    assert len({settings.noise_seed for settings in stages.sounds}) == 3


def test_a_voice_is_made_ready_once_after_the_first_chunk_of_the_turn_before_it(tokenizer):
    _, stages = heard(tokenizer, [*TALK, Turn("ben", "Bye.")])
    chunks_of_a_turn = len(stages.calls) // 4
    assert chunks_of_a_turn > 2
    assert stages.prepared == [(VOICES["ben"].prompt_key, 1)]


def test_a_voice_within_a_text_is_made_ready_too(tokenizer):
    _, stages = heard(tokenizer, (), text="<speak>Hi.<voice name='ben'>Hi.</voice></speak>")
    assert stages.prepared == [(VOICES["ben"].prompt_key, 1)]


def test_the_request_s_own_voice_is_made_ready_where_another_one_begins(tokenizer):
    _, stages = heard(tokenizer, (), text="<speak><voice name='ben'>Hi.</voice>Hi.</speak>")
    assert stages.prepared == [(VOICES[""].prompt_key, 1)]


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("x", "turns: "),
        ("[" * 100_000, "turns: "),
        ('{"voice": "a"}', "turns: "),
        ("[]", "turns: '0 turns'"),
        (json.dumps([{}] * (MOST_TURNS + 1)), "turns: '201 turns'"),
        ('["Hi."]', "turns[0]: "),
        ('[{"voice": "a", "text": "Hi."}, {"text": "Hi."}]', "turns[1].voice: None"),
        ('[{"voice": 1, "text": "Hi."}]', "turns[0].voice: 1"),
        ('[{"voice": "a"}]', "turns[0].text: None"),
        ('[{"voice": "a", "text": "Hi.", "instructions": 1}]', "turns[0].instructions: 1"),
        ('[{"voice": "a", "text": "Hi.", "speed": 2}]', "turns[0]: 'speed'"),
        ('[{"voice": "a", "text": "Hi.", "%s": 2}]' % ("x" * 100_000), "turns[0]: 'xxx"),
    ],
)
def test_turns_that_are_none_are_named(written, named):
    with pytest.raises(InvalidInput) as caught:
        read_turns(written)
    assert str(caught.value).startswith(named)
    assert len(str(caught.value)) < 200


def test_turns_are_read_as_they_are_written():
    written = '[{"voice": "a", "text": "Hi."}, {"voice": "", "text": "Ho.", "instructions": "Sing."}]'
    assert read_turns(written) == [Turn("a", "Hi."), Turn("", "Ho.", "Sing.")]

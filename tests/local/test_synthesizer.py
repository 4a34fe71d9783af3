from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm import FinishReason, SamplingOptions
from cosyvoice_runtime.local import AudioChunk, SpeechRequest, Synthesizer, Turn

TEXT = "Hello world. How are you?"
STEPS = 2
"""Steps of the solver, whose number is of no interest here."""
SHORT = SamplingOptions(max_tokens=30)
"""A second of speech and more than one chunk, where its end is of no interest."""


@pytest.fixture(scope="module")
def synthesizer(tiny_checkpoint) -> Synthesizer:
    return Synthesizer.from_checkpoint(tiny_checkpoint, ode_steps=STEPS)


def recording(pitch_hz: float, seconds: float = 1.4) -> Audio:
    time = np.arange(int(16_000 * seconds)) / 16_000
    tone = sum(np.sin(2 * math.pi * pitch_hz * k * time) / k for k in range(1, 9))
    return Audio((0.2 * tone * (1 + np.sin(2 * math.pi * 4 * time))).astype(np.float32), 16_000)


@pytest.fixture(scope="module")
def voice(synthesizer):
    return synthesizer.voice(recording(150), "a short reference")


def speak(synthesizer: Synthesizer, request: SpeechRequest) -> tuple[Floats, list[AudioChunk]]:
    chunks = list(synthesizer.synthesize(request))
    return np.concatenate([chunk.samples for chunk in chunks]), chunks


def test_the_last_chunk_of_a_piece_says_why_it_ended(synthesizer, voice):
    _, chunks = speak(synthesizer, SpeechRequest(TEXT, voice, seed=1))
    assert [chunk.finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].finish_reason is FinishReason.STOP
    assert len(chunks) > 1


def test_length_limit_is_the_finish_reason(synthesizer, voice):
    sampling = SamplingOptions(max_tokens=12)
    audio, chunks = speak(synthesizer, SpeechRequest(TEXT, voice, seed=1, sampling=sampling))
    assert chunks[-1].finish_reason is FinishReason.LENGTH
    assert len(audio) == 12 * 960


def test_streamed_equals_offline(synthesizer, voice):
    streamed, chunks = speak(synthesizer, SpeechRequest(TEXT, voice, seed=5))
    offline, [chunk] = speak(synthesizer, SpeechRequest(TEXT, voice, seed=5, streaming=False))
    assert len(chunks) > 1
    assert chunk.finish_reason is FinishReason.STOP
    np.testing.assert_allclose(streamed, offline, atol=1e-3, rtol=0)


def test_same_seed_same_audio_other_seed_other_audio(synthesizer, voice):
    first, _ = speak(synthesizer, SpeechRequest(TEXT, voice, seed=5, sampling=SHORT))
    again, _ = speak(synthesizer, SpeechRequest(TEXT, voice, seed=5, sampling=SHORT))
    other, _ = speak(synthesizer, SpeechRequest(TEXT, voice, seed=6, sampling=SHORT))
    assert np.array_equal(first, again)
    assert not np.array_equal(first[:9600], other[:9600])


def test_global_random_state_is_neither_used_nor_changed(synthesizer, voice):
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    first, _ = speak(synthesizer, SpeechRequest(TEXT, voice, seed=5, sampling=SHORT))
    assert torch.equal(torch.rand(1), expected)
    torch.manual_seed(2)
    again, _ = speak(synthesizer, SpeechRequest(TEXT, voice, seed=5, sampling=SHORT))
    assert np.array_equal(first, again)


def test_long_text_is_spoken_piece_by_piece(synthesizer, voice):
    sampling = SamplingOptions(max_tokens=10, min_tokens=10)
    text = "This sentence is one of a good many that all look alike. " * 8
    _, chunks = speak(synthesizer, SpeechRequest(text, voice, seed=1, sampling=sampling))
    pieces = len(synthesizer.front_end.segments(text))
    assert pieces > 1
    assert [chunk.segment for chunk in chunks if chunk.finish_reason] == list(range(pieces))


@pytest.mark.parametrize("streaming", [True, False])
def test_pauses_are_exact_and_paces_and_voices_change_within_a_text(synthesizer, voice, streaming):
    sampling = SamplingOptions(max_tokens=12, min_tokens=12)
    other = synthesizer.voice(recording(230), "a short reference")
    text = (
        "<speak><break time='250ms'/>One.<break time='500ms'/><prosody rate='200%'>Two.</prosody>"
        "<voice name='other'>Three.</voice><break time='1s'/></speak>"
    )
    options = {"seed": 4, "sampling": sampling, "streaming": streaming}
    found = {"other": other}.__getitem__
    _, chunks = speak(synthesizer, SpeechRequest(text, voice, find_voice=found, **options))
    whole = np.concatenate([chunk.samples for chunk in chunks])
    one, two, three = 12 * 960, 12 * 480, 12 * 960
    assert len(whole) == 6_000 + one + 12_000 + two + three + 24_000
    assert not whole[:6_000].any()
    assert not whole[6_000 + one :][:12_000].any()
    assert whole[6_000 + one + 12_000 :][:two].any()
    assert not whole[-24_000:].any()
    alone, _ = speak(synthesizer, SpeechRequest("One.", voice, **options))
    np.testing.assert_allclose(whole[6_000:][: len(alone)], alone, atol=1e-3, rtol=0)


TAGGED = (
    "[pause:250ms]One cat sat.<break time='500ms'/> Two dogs ran.<break time='0.125s'/>And[pause:0.5s]",
    "<speak> <break time='250ms'/>One cat sat.<break time='500ms'/> Two dogs ran.<break time='0.125s'/>And"
    "<break/></speak>",
)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("text", TAGGED, ids=["chat", "ssml"])
def test_silences_of_a_text_in_pieces_are_in_their_places_wherever_it_is_cut(
    synthesizer, voice, interleaved, text
):
    request = SpeechRequest("", voice, seed=4, sampling=SamplingOptions(max_tokens=12, min_tokens=12))
    cuts = [text.index("250ms") - 2, text.index("sat.") + 4, text.index("500ms") + 1, len(text) - 3]
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    heard = []
    for given in ([text], pieces, text):
        chunks = list(synthesizer.synthesize_pieces(given, request, interleaved))
        heard.append(np.concatenate([chunk.samples for chunk in chunks]))
        pauses = [(chunk.segment, chunk.seconds) for chunk in chunks if chunk.is_pause]
        assert pauses == [(0, 0.25), (1, 0.5), (2, 0.125), (3, 0.5)]
        assert (chunks[0].is_pause, chunks[-1].is_pause) == (True, True)
        ends = [chunk.spoken_characters for chunk in chunks if chunk.finish_reason]
        # A tag may come when the words before it have been spoken.
        assert text.index("And") + 3 <= ends[-1] <= len(text)
    for other in heard[1:]:
        np.testing.assert_allclose(other, heard[0], atol=1e-6, rtol=0)
    spoken = 12 * 960
    assert len(heard[0]) == 3 * spoken + 6_000 + 12_000 + 3_000 + 12_000
    for start, length in ((0, 6_000), (6_000 + spoken, 12_000), (18_000 + 2 * spoken, 3_000)):
        assert not heard[0][start : start + length].any()
    assert heard[0][6_000:][:spoken].any()


@pytest.mark.parametrize("part", ["break", "voices"])
def test_a_listener_that_leaves_within_a_marked_text_frees_all_pages(synthesizer, voice, part):
    other = synthesizer.voice(recording(230), "a short reference")
    text = {
        "break": "<speak>One.<break time='10s'/>Two.</speak>",
        "voices": "<speak>One.<voice name='other'>Two.</voice></speak>",
    }[part]
    options = {"seed": 4, "sampling": SamplingOptions(max_tokens=12, min_tokens=12)}
    request = SpeechRequest(text, voice, find_voice={"other": other}.__getitem__, **options)
    pool = synthesizer.token2wav.flow.pool
    before, (expected, _) = pool.free_pages, speak(synthesizer, request)
    chunks = synthesizer.synthesize(request)
    for chunk in chunks:
        if chunk.is_pause or (part == "voices" and chunk.finish_reason):
            break
    chunks.close()
    assert pool.free_pages == before
    again, _ = speak(synthesizer, request)
    assert np.array_equal(again, expected)


def test_turns_are_spoken_as_one_text_that_changes_its_voice(synthesizer, voice):
    voices = {"one": voice, "two": synthesizer.voice(recording(220), "a short reference")}
    options = {"sampling": SHORT, "seed": 5, "find_voice": voices.__getitem__}
    turns = [Turn("one", "Hello world."), Turn("two", "How are you?"), Turn("one", "Fine.")]
    changed = "<break time='250ms'/>".join(
        f"<voice name='{turn.voice}'>{turn.text}</voice>" for turn in turns
    )
    asked = SpeechRequest("", voice, turns=turns, turn_pause_s=0.25, **options)
    together, _ = speak(synthesizer, asked)
    as_text, _ = speak(synthesizer, SpeechRequest(f"<speak>{changed}</speak>", voice, **options))
    np.testing.assert_array_equal(together, as_text)
    whole, chunks = speak(synthesizer, dataclasses.replace(asked, streaming=False))
    np.testing.assert_allclose(whole, together, atol=1e-3, rtol=0)
    assert [chunk.spoken_characters for chunk in chunks] == [12, 24, 29]
    softly = dataclasses.replace(asked, turns=[*turns[:2], dataclasses.replace(turns[2], instructions="Hm.")])
    changed_samples, _ = speak(synthesizer, softly)
    last = sum(len(chunk.samples) for chunk in chunks[:2])
    np.testing.assert_array_equal(changed_samples[:last], together[:last])
    assert not np.array_equal(changed_samples, together)


def test_another_checkpoint_s_voice_is_refused_for_a_turn_and_within_a_text(synthesizer, voice):
    other = dataclasses.replace(voice, checkpoint_id="another")
    options = {"find_voice": {"own": voice, "other": other}.__getitem__, "sampling": SHORT}
    turns = [Turn("own", "Hello."), Turn("other", "Hi.")]
    with pytest.raises(InvalidInput, match=r"^turns\[1\]\.voice: 'other' .* make it again"):
        synthesizer.synthesize(SpeechRequest("", voice, turns=turns, **options))
    text = "<speak>Hello.<voice name='other'>Hi.</voice></speak>"
    with pytest.raises(InvalidInput, match=r"^voice: 'other' .* make it again"):
        synthesizer.synthesize(SpeechRequest(text, voice, **options))
    with pytest.raises(InvalidInput, match=r"^voice: 'other' .* make it again"):
        list(synthesizer.synthesize_pieces([text], SpeechRequest("", voice, **options)))


def test_modes_differ(synthesizer, voice):
    other_voice = synthesizer.voice(recording(230), "a short reference")
    modes = [
        {"voice": voice},
        {"voice": voice, "cross_lingual": True},
        {"voice": voice, "instruct_text": "Speak slowly"},
        {"voice": other_voice},
    ]
    audios = [speak(synthesizer, SpeechRequest(TEXT, seed=3, sampling=SHORT, **mode))[0] for mode in modes]
    for index, one in enumerate(audios):
        for other in audios[:index]:
            assert one.shape != other.shape or not np.allclose(one, other, atol=1e-3)


def test_voice_without_transcript_is_used_cross_lingually(synthesizer):
    silent = synthesizer.voice(recording(150))
    spoken = synthesizer.voice(recording(150), "words")
    implicit, _ = speak(synthesizer, SpeechRequest(TEXT, silent, seed=3, sampling=SHORT))
    explicit, _ = speak(synthesizer, SpeechRequest(TEXT, spoken, seed=3, cross_lingual=True, sampling=SHORT))
    assert np.array_equal(implicit, explicit)


def test_voice_of_another_checkpoint_is_refused_before_anything_is_spoken(synthesizer, voice):
    foreign = dataclasses.replace(voice, checkpoint_id="of another")
    request = SpeechRequest(TEXT, foreign)
    ways = (
        lambda: synthesizer.synthesize(request),
        lambda: synthesizer.synthesize_pieces([TEXT], request),
        lambda: synthesizer.synthesize_tokens([1, 2, 3], request),
    )
    differs = f"'of another' made it, and those of this one are '{voice.checkpoint_id}'"
    for speak_with_it in ways:
        with pytest.raises(InvalidInput, match=differs) as refused:
            speak_with_it()
        assert (refused.value.field, refused.value.value) == ("voice", repr(voice.key))


def test_speed_changes_the_duration(synthesizer, voice):
    normal, _ = speak(synthesizer, SpeechRequest(TEXT, voice, seed=4, sampling=SHORT))
    fast, _ = speak(synthesizer, SpeechRequest(TEXT, voice, seed=4, speed=1.5, sampling=SHORT))
    assert len(fast) == pytest.approx(len(normal) / 1.5, abs=480)


def test_cut_prompt_speaks_after_the_chosen_number_of_tokens(tiny_checkpoint, voice):
    early = Synthesizer.from_checkpoint(tiny_checkpoint, ode_steps=STEPS, first_hop=10, lookahead_frames=0)
    chunk = next(iter(early.synthesize(SpeechRequest(TEXT, voice, seed=1))))
    assert len(chunk.samples) == 10 * 960


def test_abandoned_iteration_frees_the_utterance(synthesizer, voice):
    pool = synthesizer.token2wav.flow.pool
    before = pool.free_pages
    chunks = synthesizer.synthesize(SpeechRequest(TEXT, voice, seed=1))
    next(chunks)
    assert pool.free_pages < before
    chunks.close()
    assert pool.free_pages == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": " \n "}, "target_text"),
        ({"seed": -1}, "seed: -1"),
        ({"seed": 1.5}, "seed: 1.5"),
        ({"sampling": SamplingOptions(max_tokens=10**7)}, "max_tokens: 10000000 .* at most 32768"),
        ({"speed": 3.0}, "speed: 3.0"),
        ({"instruct_text": "x", "cross_lingual": True}, "cross_lingual"),
        ({"language": "not a language"}, "language"),
    ],
)
def test_bad_request_names_the_field(synthesizer, voice, options, message):
    with pytest.raises(InvalidInput, match=message):
        synthesizer.synthesize(SpeechRequest(**({"text": TEXT, "voice": voice} | options)))


def test_pieces_have_no_more_room_than_the_speech_lm_has_positions(synthesizer, voice, monkeypatch):
    rooms, open_batch = [], synthesizer._open_batch
    monkeypatch.setattr(
        synthesizer, "_open_batch", lambda room, heads: rooms.append(room) or open_batch(1000, heads)
    )
    request = SpeechRequest("", voice, seed=1, sampling=SamplingOptions(max_ratio=1000.0))
    chunks = synthesizer.synthesize_pieces([TEXT], request, interleaved=True)
    next(chunks)
    chunks.close()
    assert max(rooms) < 34_000
    with pytest.raises(InvalidInput, match="max_tokens: 10000000"):
        synthesizer.synthesize_pieces(
            [TEXT], SpeechRequest("", voice, sampling=SamplingOptions(max_tokens=10**7))
        )


@pytest.mark.parametrize("pieces", [[], ["  "], ["... ", "!"]])
def test_pieces_of_which_nothing_can_be_spoken_are_refused(synthesizer, voice, pieces):
    with pytest.raises(InvalidInput, match="it must hold more than punctuation") as caught:
        list(synthesizer.synthesize_pieces(pieces, SpeechRequest("", voice)))
    assert (caught.value.field, caught.value.value) == ("target_text", repr("".join(pieces)))


@pytest.mark.parametrize(("token", "limit"), [(3.5, "integers"), (-1, "0 to"), (10**6, "0 to")])
def test_speech_token_that_is_none_is_refused(synthesizer, voice, token, limit):
    with pytest.raises(InvalidInput, match=f"speech_tokens: {token} .* tokens are {limit}"):
        list(synthesizer.synthesize_tokens([1, 2, token], SpeechRequest("", voice)))


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros((16_000, 2), np.float32), r"the shape \(16000, 2\).* expected the shape \[n\]"),
        (np.zeros(16_000, np.int16), r"samples of int16.* expected floats"),
    ],
)
def test_audio_of_another_form_makes_no_voice(synthesizer, samples, message):
    with pytest.raises(InvalidInput, match=f"reference_wav: .*{message}"):
        synthesizer.voice(Audio(samples, 16_000), "words")


def test_onnx_runtime_speaks_as_torch_does(tiny_checkpoint, tmp_path, synthesizer, voice):
    on_onnx = Synthesizer.from_checkpoint(tiny_checkpoint, ode_steps=STEPS, runtime="onnx", exported=tmp_path)
    request = SpeechRequest(TEXT, voice, seed=3, sampling=SHORT)
    (expected, _), (spoken, _) = speak(synthesizer, request), speak(on_onnx, request)
    np.testing.assert_allclose(spoken, expected, atol=2e-3, rtol=0)


@pytest.mark.parametrize(
    ("options", "field"), [({"runtime": "jax"}, "runtime"), ({"runtime": "onnx", "device": "cuda"}, "device")]
)
def test_a_runtime_that_is_not_there_is_refused(tiny_checkpoint, options, field):
    with pytest.raises(InvalidInput) as caught:
        Synthesizer.from_checkpoint(tiny_checkpoint, **options)
    assert caught.value.field == field

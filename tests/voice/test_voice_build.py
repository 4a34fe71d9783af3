from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.arrays import Floats, Ids
from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.audio.mel import mel_spectrogram
from cosyvoice_runtime.audio.resample import resample
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.voice import Voice, build_voice, voice_key
from cosyvoice_runtime.voice.digest import content_hash, file_hash
from cosyvoice_runtime.voice.extractors import SpeakerEncoder, SpeechTokenizer
from fake_voices import CHECKPOINT, make_audio
from onnx_graphs import write_encoder, write_tokenizer


def tokens_of(count: int) -> Ids:
    return np.arange(count, dtype=np.int32)


def build(audio: Audio, transcript: str = "hello", num_tokens: int = 25) -> Voice:
    return build_voice(
        audio, transcript, lambda _: tokens_of(num_tokens), lambda _: np.ones(5, np.float32), CHECKPOINT
    )


def test_control_characters_of_a_transcript_are_not_kept() -> None:
    odd, plain = build(make_audio(0), "he\x00l\x1b[1mlo\n"), build(make_audio(0), "hello")
    assert (odd.transcript, odd.key) == ("hello", plain.key)


def test_voice_holds_what_the_extractors_say(tmp_path: Path) -> None:
    tokenizer = SpeechTokenizer(write_tokenizer(tmp_path / "t.onnx"))
    encoder = SpeakerEncoder(write_encoder(tmp_path / "e.onnx"))
    audio = make_audio(0, rate=24_000)
    voice = build_voice(audio, " hello ", tokenizer, encoder, CHECKPOINT)
    low_rate = resample(audio.samples, 24_000, 16_000)
    assert voice.transcript == "hello"
    assert np.array_equal(voice.speech_tokens, tokenizer(low_rate))
    assert np.array_equal(voice.speaker_embedding, encoder(low_rate))
    assert np.array_equal(voice.prompt_mel, mel_spectrogram(audio.samples))


@pytest.mark.parametrize("num_tokens", [10, 24, 25, 26, 40])
@pytest.mark.parametrize("seconds", [0.5, 0.99, 1.0, 1.01])
def test_tokens_and_mel_span_the_same_audio(num_tokens: int, seconds: float) -> None:
    audio = make_audio(0, seconds, 24_000)
    voice = build(audio, num_tokens=num_tokens)
    mel = mel_spectrogram(audio.samples)
    count = min(mel.shape[0] // 2, num_tokens)
    assert np.array_equal(voice.speech_tokens, tokens_of(count))
    assert np.array_equal(voice.prompt_mel, mel[: 2 * count])


def test_mel_is_made_at_the_audio_s_own_rate() -> None:
    """A tone that 16 kHz can't hold has to be gone from the extractors' input, but not from the mel."""
    time = np.arange(48_000, dtype=np.float32) / 48_000
    audio = Audio(0.3 * np.sin(2 * np.pi * 7800 * time), 48_000)
    expected = mel_spectrogram(resample(audio.samples, 48_000, 24_000))
    assert np.array_equal(build(audio).prompt_mel, expected[:50])


def test_extractor_error_reaches_the_caller() -> None:
    def broken(_: Floats) -> Floats:
        raise InvalidInput("reference_wav", "x", "y")

    with pytest.raises(InvalidInput):
        build_voice(make_audio(0), "hello", broken, lambda _: np.ones(5, np.float32), CHECKPOINT)


def test_unusable_audio_is_refused_before_any_extractor_runs() -> None:
    def never(_: Floats) -> Floats:
        raise AssertionError

    with pytest.raises(InvalidInput, match="silence"):
        build_voice(Audio(np.zeros(16_000, np.float32), 16_000), "hello", never, never, CHECKPOINT)


@given(st.integers(0, 1000), st.integers(0, 1000), st.text(max_size=20))
def test_two_speakers_of_one_transcript_never_share_a_voice(left: int, right: int, transcript: str) -> None:
    keys = [voice_key(make_audio(seed, 0.5), transcript, CHECKPOINT) for seed in (left, right)]
    assert (keys[0] == keys[1]) == (left == right)


@given(st.text(max_size=20), st.text(max_size=20))
def test_same_audio_and_text_have_one_key(left: str, right: str) -> None:
    audio = make_audio(0, 0.5)
    same = unicodedata.normalize("NFC", left.strip()) == unicodedata.normalize("NFC", right.strip())
    assert (voice_key(audio, left, CHECKPOINT) == voice_key(audio, right, CHECKPOINT)) == same


def test_key_depends_on_rate_checkpoint_and_every_sample() -> None:
    audio = make_audio(0)
    altered = audio.samples.copy()
    altered[-1] += 1e-6
    keys = {
        voice_key(audio, "hello", CHECKPOINT),
        voice_key(Audio(audio.samples, 24_000), "hello", CHECKPOINT),
        voice_key(Audio(altered, audio.rate), "hello", CHECKPOINT),
        voice_key(Audio(audio.samples[:-1], audio.rate), "hello", CHECKPOINT),
        voice_key(audio, "hello", "checkpoint-b"),
    }
    assert len(keys) == 5


def test_key_is_known_before_the_voice_is_built() -> None:
    audio = make_audio(0)
    assert build(audio, "cafe\u0301").key == voice_key(audio, "caf\u00e9", CHECKPOINT)


@given(st.lists(st.text(max_size=3), max_size=4), st.lists(st.text(max_size=3), max_size=4))
def test_parts_never_run_into_each_other(left: list[str], right: list[str]) -> None:
    assert (content_hash(*left) == content_hash(*right)) == (left == right)


def test_file_hash_tells_contents_and_their_split(tmp_path: Path) -> None:
    contents = {"a": b"12", "b": b"3", "c": b"1", "d": b"23", "copy": b"12"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    assert file_hash(tmp_path / "a", tmp_path / "b") != file_hash(tmp_path / "c", tmp_path / "d")
    assert file_hash(tmp_path / "a") == file_hash(tmp_path / "copy")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"key": "../../etc/passwd"}, "key"),
        ({"speech_tokens": np.zeros(3, np.float32)}, "speech_tokens"),
        ({"speech_tokens": np.zeros((1, 3), np.int32)}, "speech_tokens"),
        ({"prompt_mel": np.zeros((0, 80), np.float32)}, "prompt_mel"),
        ({"prompt_mel": np.full((6, 80), np.nan, np.float32)}, "prompt_mel"),
        ({"speaker_embedding": np.zeros((1, 16), np.float32)}, "speaker_embedding"),
    ],
)
def test_voice_of_another_shape_is_refused(changes: dict[str, object], field: str) -> None:
    parts: dict[str, object] = {
        "key": "0" * 64,
        "transcript": "",
        "speech_tokens": np.zeros(3, np.int32),
        "prompt_mel": np.zeros((6, 80), np.float32),
        "speaker_embedding": np.zeros(16, np.float32),
        "checkpoint_id": CHECKPOINT,
    }
    Voice(**parts)
    with pytest.raises(InvalidInput) as caught:
        Voice(**{**parts, **changes})
    assert caught.value.field == field

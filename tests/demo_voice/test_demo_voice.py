"""The checkpoint in demo_voice/ speaks: what its own tokenizer hears is what its speech LM said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.audio.read import read_audio
from cosyvoice_runtime.audio.resample import resample
from cosyvoice_runtime.audio.silence import AUDIBLE_RMS, TRIMS
from cosyvoice_runtime.checkpoint import verify_checkpoint
from cosyvoice_runtime.engine.utterance.layout import lm_prompts
from cosyvoice_runtime.lm import FinishReason, SamplingOptions
from cosyvoice_runtime.lm.torch.decoder import generate
from cosyvoice_runtime.local import SpeechRequest, Synthesizer
from cosyvoice_runtime.voice import Voice
from demo_voice.training.sizes import CODES, DEMO, DIGITS

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]
DIRECTORY = Path(__file__).parents[2] / "demo_voice"
TEXT = "The weather in Paris will be fine on Monday."
SECONDS = (1.8, 4.0)
"""The synthesizers of the registered voices take 2.3 to 3.0 s for the text."""
SAME_DIGITS = 0.8
"""Ternary digits of codes that survive being spoken; a third would by chance."""


@pytest.fixture(scope="module")
def synthesizer() -> Synthesizer:
    return Synthesizer.from_checkpoint(DIRECTORY)


def spoken(synthesizer: Synthesizer, voice: Voice) -> tuple[list[int], FinishReason, Float32]:
    """Speech tokens of the text, why they ended, and their 16 kHz waveform."""
    request = SpeechRequest(TEXT, voice, seed=1)
    [prompt] = lm_prompts(request, synthesizer.front_end, synthesizer.tokenizer)
    tokens, reason = generate(synthesizer.lm, prompt, SamplingOptions(seed=1))
    samples = np.concatenate([chunk.samples for chunk in synthesizer.synthesize_tokens(tokens, request)])
    return tokens, reason, resample(samples, synthesizer.sample_rate, 16_000)


def same_digits(first: Int64, second: Int64) -> float:
    powers = 3 ** np.arange(DIGITS)
    count = min(len(first), len(second))
    return (first[:count, None] // powers % 3 == second[:count, None] // powers % 3).mean()


def cosine(first: Float32, second: Float32) -> float:
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


@pytest.mark.parametrize("name", ["slt", "rms"])
def test_a_registered_voice_says_what_the_speech_lm_meant(synthesizer: Synthesizer, name: str) -> None:
    voices = synthesizer.speakers
    tokens, reason, samples = spoken(synthesizer, voices[name])
    assert reason is FinishReason.STOP
    assert SECONDS[0] < len(samples) / 16_000 < SECONDS[1]
    heard = synthesizer.extractors.speech_tokenizer(samples)
    assert same_digits(np.array(tokens) % CODES, heard % CODES) > SAME_DIGITS
    embedding = synthesizer.extractors.speaker_encoder(samples)
    likeness = {other: cosine(embedding, voice.speaker_embedding) for other, voice in voices.items()}
    assert max(likeness, key=lambda other: likeness[other]) == name


def test_the_reference_recording_is_the_default_voice(synthesizer: Synthesizer) -> None:
    transcript = (DIRECTORY / "reference.txt").read_text("utf-8").strip()
    cloned = synthesizer.voice(read_audio(DIRECTORY / "reference.flac"), transcript)
    default = next(iter(synthesizer.speakers.values()))
    assert default.transcript == transcript
    assert same_digits(cloned.speech_tokens % CODES, default.speech_tokens % CODES) > 0.99
    assert np.abs(cloned.prompt_mel - default.prompt_mel).mean() < 0.05


def test_silence_around_the_speech_of_a_silent_reference_is_left_out(synthesizer: Synthesizer) -> None:
    """The flow goes on as a reference ends, and the speech LM as one begins and ends."""
    reference = read_audio(DIRECTORY / "reference.flac")
    silence = np.zeros(2 * reference.rate, np.float32)
    around = Audio(np.concatenate([silence, reference.samples, silence]), reference.rate)
    voice = synthesizer.voice(around, (DIRECTORY / "reference.txt").read_text("utf-8").strip())
    whole, start, both = (
        np.concatenate([chunk.samples for chunk in synthesizer.synthesize(request)])
        for request in (SpeechRequest(TEXT, voice, seed=1, trim_silence=trim) for trim in TRIMS)
    )
    rate, before = synthesizer.sample_rate, len(whole) - len(start)
    assert before > 0.1 * rate
    np.testing.assert_allclose(start, whole[before:], atol=1e-3)
    np.testing.assert_allclose(both, start[: len(both)], atol=1e-3)
    assert len(start) - len(both) > 0.1 * rate
    for edge in (both[: rate // 10], both[-rate // 10 :]):
        assert edge.std() > AUDIBLE_RMS


def test_registered_voices_leave_little_to_wait_for(synthesizer: Synthesizer) -> None:
    block = DEMO.flow.encoder.chunk_tokens
    assert list(synthesizer.speakers) == ["slt", "rms", "awb", "kal16"]
    for voice in synthesizer.speakers.values():
        assert 18 <= -len(voice.speech_tokens) % block <= 20


def test_checkpoint_is_sound_small_and_complete() -> None:
    assert verify_checkpoint(DIRECTORY) == []
    sizes = [path.stat().st_size for path in DIRECTORY.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert max(sizes) < 16e6
    assert sum(sizes) < 32e6
    assert len(json.loads((DIRECTORY / "held_out.json").read_text("utf-8"))) == 400

"""CosyVoice-300M in the library: modes, chunks and what they sound like."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.audio.mel import mel_spectrogram
from cosyvoice_runtime.audio.resample import resample
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.engine.utterance.layout import lm_prompts
from cosyvoice_runtime.engine.utterance.request import AudioChunk, SpeechRequest
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families import COSYVOICE_300M
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.local.cli import main
from cosyvoice_runtime.local.synthesizer import Synthesizer
from cosyvoice_runtime.voice import Voice
from cosyvoice_runtime.voice.extractors import Extractors
from making import make_checkpoint

STEPS = 2
"""Steps of the solver, whose number is of no interest here."""
TOKENS = np.random.default_rng(3).integers(0, 4096, 260).tolist()
FIRST, NEXT = 38_912, 44_032
"""Samples of the first chunk of a stream, and of those after it but the last."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("made") / "tiny", "tiny", seed=5, family="cosyvoice300m")


@pytest.fixture(scope="module")
def synthesizer(checkpoint: Path) -> Synthesizer:
    return Synthesizer.from_checkpoint(checkpoint, ode_steps=STEPS)


@pytest.fixture(scope="module")
def recording() -> Audio:
    time = np.arange(2 * 22_050) / 22_050
    tone = 0.3 * np.sin(2 * np.pi * 180 * time) * (1 + 0.5 * np.sin(2 * np.pi * 3 * time))
    return Audio(tone.astype(np.float32), 22_050)


@pytest.fixture(scope="module")
def voice(synthesizer: Synthesizer, recording: Audio) -> Voice:
    return synthesizer.voice(recording, "what the recording says")


@pytest.fixture
def speaker(synthesizer: Synthesizer) -> Voice:
    return next(iter(synthesizer.speakers.values()))


def joined(chunks: Sequence[AudioChunk]) -> Floats:
    return np.concatenate([chunk.samples for chunk in chunks])


def spoken(synthesizer: Synthesizer, request: SpeechRequest, tokens: list[int]) -> list[AudioChunk]:
    return list(synthesizer.synthesize_tokens(tokens, request))


def test_reference_becomes_a_voice_of_the_familys_rates(voice: Voice) -> None:
    assert voice.prompt_mel.shape == (2 * 22_050 // 256, 80)
    assert len(voice.speech_tokens) == 100
    assert voice.speech_tokens.max() < 4096


def test_published_prompt_rate_makes_the_published_prompt(
    checkpoint: Path, voice: Voice, recording: Audio
) -> None:
    published = Extractors(Layout(checkpoint), published_prompt_rate=True).voice(recording, "")
    samples = resample(recording.samples, 22_050, 24_000)
    assert np.array_equal(published.prompt_mel, mel_spectrogram(samples, COSYVOICE_300M.mel))
    assert len(published.prompt_mel) == 2 * 24_000 // 256 > len(voice.prompt_mel)
    assert np.array_equal(published.speech_tokens, voice.speech_tokens)
    assert published.key != Extractors(Layout(checkpoint)).voice(recording, "").key


def test_the_longest_reference_is_a_prompt_at_either_rate(
    checkpoint: Path, synthesizer: Synthesizer, recording: Audio
) -> None:
    """The published rate makes the longer prompt of the two, with which something is said."""
    longest = Audio(np.tile(recording.samples, 15), recording.rate)
    for published in (False, True):
        voice = Extractors(Layout(checkpoint), published_prompt_rate=published).voice(longest, "")
        assert len(voice.prompt_mel) == 30 * (24_000 if published else 22_050) // 256
    assert len(joined(spoken(synthesizer, SpeechRequest("-", voice, seed=1), TOKENS[:9]))) == 256 * 15


def test_command_line_writes_the_familys_rate_and_reads_references_as_published_if_told(
    checkpoint: Path, recording: Audio, tmp_path: Path
) -> None:
    soundfile.write(tmp_path / "me.wav", recording.samples, recording.rate)
    spoken = ["speak", "--checkpoint", str(checkpoint), "Hello.", "--seed", "1"]
    spoken += ["--reference", str(tmp_path / "me.wav"), "--reference-text", "what the recording says"]
    heard = []
    for more in ([], ["--published-prompt-rate"]):
        assert main([*spoken, "-o", str(tmp_path / "speech.wav"), *more]) == 0
        samples, rate = soundfile.read(tmp_path / "speech.wav")
        assert rate == 22_050
        heard.append(samples)
    assert len(heard[0]) == len(heard[1])  # the speech LM reads tokens, which are the same
    assert not np.array_equal(*heard)


def test_stream_comes_in_the_published_chunks(synthesizer: Synthesizer, voice: Voice) -> None:
    chunks = spoken(synthesizer, SpeechRequest("-", voice, seed=1), TOKENS)
    held_back, rest = 20, 103  # mel frames; 60 tokens are left after two chunks
    assert [len(chunk.samples) for chunk in chunks] == [FIRST, NEXT, 256 * (held_back + rest)]
    assert {chunk.sample_rate for chunk in chunks} == {22_050}


@pytest.mark.parametrize("count", [1, 20, 119, 120, 121, 219])
def test_any_length_is_spoken(synthesizer: Synthesizer, voice: Voice, count: int) -> None:
    streamed = joined(spoken(synthesizer, SpeechRequest("-", voice, seed=1), TOKENS[:count]))
    offline = joined(spoken(synthesizer, SpeechRequest("-", voice, seed=1, streaming=False), TOKENS[:count]))
    assert len(offline) == int(count / 50 * 22_050 / 256) * 256
    assert len(offline) - len(streamed) in (0, 256)
    assert np.isfinite(streamed).all()


def test_seed_repeats_an_utterance_and_another_does_not(synthesizer: Synthesizer, voice: Voice) -> None:
    first, again, other = (
        joined(spoken(synthesizer, SpeechRequest("-", voice, seed=seed), TOKENS[:130])) for seed in (7, 7, 8)
    )
    assert np.array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3


def test_speed_shortens_an_offline_utterance(synthesizer: Synthesizer, voice: Voice) -> None:
    request = SpeechRequest("-", voice, seed=1, speed=2.0, streaming=False)
    assert len(joined(spoken(synthesizer, request, TOKENS[:100]))) == 256 * (172 // 2)


def test_each_mode_gives_the_speech_lm_what_it_was_trained_on(synthesizer: Synthesizer, voice: Voice) -> None:
    def prompt(**options: object) -> object:
        request = SpeechRequest("<|en|>Good morning.", voice, **options)
        [only] = lm_prompts(request, synthesizer.front_end, synthesizer.tokenizer)
        return only

    zero_shot, cross_lingual = prompt(), prompt(cross_lingual=True)
    instructed = prompt(instruct_text="Speak slowly.")
    assert (len(zero_shot.speaker), len(cross_lingual.speaker), len(instructed.speaker)) == (192, 192, 0)
    assert len(zero_shot.prompt_speech) == 100
    assert (len(cross_lingual.prompt_speech), len(cross_lingual.prompt_text)) == (0, 0)
    assert synthesizer.tokenizer.decode(list(instructed.prompt_text)) == "Speak slowly.<|endofprompt|>"
    assert synthesizer.tokenizer.id_of("<|en|>") == zero_shot.text[0]


@pytest.mark.parametrize(
    "options", [{}, {"cross_lingual": True}, {"instruct_text": "Speak slowly."}], ids=["zero-shot", "x", "i"]
)
def test_every_mode_speaks(synthesizer: Synthesizer, voice: Voice, options: dict[str, object]) -> None:
    sampling = SamplingOptions(max_tokens=60)
    request = SpeechRequest("Good morning.", voice, seed=1, sampling=sampling, **options)
    samples = joined(list(synthesizer.synthesize(request)))
    assert len(samples) >= 256
    assert 1e-3 < np.abs(samples).max() <= 1


def test_speaker_of_the_checkpoint_speaks(synthesizer: Synthesizer, speaker: Voice) -> None:
    request = SpeechRequest("Good morning.", speaker, seed=1, sampling=SamplingOptions(max_tokens=60))
    assert len(joined(list(synthesizer.synthesize(request)))) >= 256


def test_what_its_schedule_has_no_place_for_is_refused(checkpoint: Path) -> None:
    with pytest.raises(InvalidInput, match="lookahead_frames"):
        Synthesizer.from_checkpoint(checkpoint, lookahead_frames=3)
    with pytest.raises(InvalidInput, match="cut_prompts"):
        Synthesizer.from_checkpoint(checkpoint, first_hop=10)

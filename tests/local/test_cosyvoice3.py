"""A CosyVoice3 checkpoint speaks through the same library and command line."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.audio.mel import mel_spectrogram
from cosyvoice_runtime.audio.resample import resample
from cosyvoice_runtime.engine.utterance.layout import lm_prompts
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families import COSYVOICE3
from cosyvoice_runtime.lm import FinishReason, SamplingOptions
from cosyvoice_runtime.local import SpeechRequest, Synthesizer
from cosyvoice_runtime.local.cli import main
from cosyvoice_runtime.text import TextFrontEnd
from cosyvoice_runtime.token2wav.token2wav import flow_prompt
from examples import examples
from making import make_checkpoint

PREFIX = "You are a helpful assistant.<|endofprompt|>"
TEXT = PREFIX + "Hello world. How are you?"
STEPS = 2
"""Steps of the solver, whose number is of no interest here."""
TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("family") / "tiny", "tiny", seed=0, family="cosyvoice3")


@pytest.fixture(scope="module")
def synthesizer(checkpoint) -> Synthesizer:
    return Synthesizer.from_checkpoint(checkpoint, ode_steps=STEPS)


@pytest.fixture(scope="module")
def recording() -> Audio:
    time = np.arange(24_000 * 2) / 24_000
    tone = sum(np.sin(2 * np.pi * 150 * overtone * time) / overtone for overtone in range(1, 70))
    return Audio((0.2 * tone * (1 + np.sin(2 * np.pi * 4 * time))).astype(np.float32), 24_000)


def speak(synthesizer: Synthesizer, text: str, **options) -> list:
    voice = synthesizer.speakers["default"]
    return list(synthesizer.synthesize(SpeechRequest(text, voice, seed=5, **options)))


def test_streamed_equals_offline(synthesizer):
    streamed = speak(synthesizer, TEXT)
    [offline] = speak(synthesizer, TEXT, streaming=False)
    assert len(streamed) > 1
    assert offline.finish_reason is FinishReason.STOP
    samples = np.concatenate([chunk.samples for chunk in streamed])
    np.testing.assert_allclose(samples, offline.samples, atol=TOLERANCE, rtol=0)
    assert len(samples) % 960 == 0
    assert np.abs(samples).max() > 0.01


def test_onnx_runtime_speaks_as_torch_does(checkpoint, synthesizer, tmp_path):
    on_onnx = Synthesizer.from_checkpoint(checkpoint, ode_steps=STEPS, runtime="onnx", exported=tmp_path)
    short = SamplingOptions(max_tokens=30)  # the phase adds up what F0 makes of the mel's last digits
    expected, spoken = (
        np.concatenate([chunk.samples for chunk in speak(each, TEXT, sampling=short)])
        for each in (synthesizer, on_onnx)
    )
    np.testing.assert_allclose(spoken, expected, atol=2e-3, rtol=0)


def test_onnx_runtime_streams_what_it_speaks_at_once(checkpoint, tmp_path):
    on_onnx = Synthesizer.from_checkpoint(checkpoint, ode_steps=STEPS, runtime="onnx", exported=tmp_path)
    streamed = speak(on_onnx, TEXT)
    [offline] = speak(on_onnx, TEXT, streaming=False)
    assert len(streamed) > 1
    samples = np.concatenate([chunk.samples for chunk in streamed])
    np.testing.assert_allclose(samples, offline.samples, atol=1e-5, rtol=0)


@settings(max_examples=examples(5, fresh=30))
@given(
    length=st.integers(1, 120),
    cut=st.lists(st.integers(1, 60), max_size=6),
    speed=st.sampled_from([1.0, 1.0, 0.8, 1.3]),
    seed=st.integers(0, 99),
)
def test_any_schedule_of_tokens_gives_the_same_samples(synthesizer, length, cut, speed, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(6561, (length,), generator=generator).tolist()
    token2wav, voice = synthesizer.token2wav, synthesizer.speakers["default"]

    def wave(ends: list[int]) -> torch.Tensor:
        state, waves = token2wav.open(flow_prompt(voice), noise_seed=7, speed=speed), []
        for start, end in itertools.pairwise([0, *ends, length]):
            token2wav.push(state, tokens[start:end], last=end == length)
            waves += map(torch.from_numpy, token2wav.advance([state]))
        token2wav.close(state)
        return torch.cat(waves)

    offline = wave([])
    ends = [end for end in itertools.accumulate(cut) if end < length]
    torch.testing.assert_close(wave(ends), offline, atol=TOLERANCE, rtol=0)
    if speed == 1.0:
        assert len(offline) == 960 * length


def test_the_same_seed_gives_the_same_speech(synthesizer):
    first, again = ([chunk.samples for chunk in speak(synthesizer, TEXT)] for _ in range(2))
    assert np.array_equal(np.concatenate(first), np.concatenate(again))


def test_text_without_the_end_of_an_instruction_is_refused_by_name(synthesizer):
    with pytest.raises(InvalidInput, match=r"target_text: .*<\|endofprompt\|>"):
        speak(synthesizer, "Hello world.")


def test_reference_text_without_the_end_of_an_instruction_is_refused_by_name(synthesizer, recording):
    voice = synthesizer.voice(recording, "some words")
    with pytest.raises(InvalidInput, match=r"reference_text: '10 characters' .*<\|endofprompt\|>"):
        synthesizer.synthesize(SpeechRequest("Hello.", voice))
    told = synthesizer.voice(recording, PREFIX + "some words")
    assert list(synthesizer.synthesize(SpeechRequest("Hello.", told, sampling=SamplingOptions(max_tokens=9))))


def test_an_added_instruction_is_what_a_client_would_have_sent(synthesizer, recording):
    adding = TextFrontEnd(synthesizer.tokenizer, family=COSYVOICE3, adds_instruction=True)
    told, untold = (synthesizer.voice(recording, lead + "some words") for lead in (PREFIX, ""))

    def laid_out(front_end, text, voice, **options):
        request = SpeechRequest(text, voice, **options)
        return [
            [(part.table, list(part.ids)) for part in prompt.segments()]
            for prompt in lm_prompts(request, front_end, synthesizer.tokenizer)
        ]

    spoken = "Hello there. How are you?"
    sent, own = synthesizer.front_end, "<|endofprompt|>"
    assert laid_out(adding, spoken, untold) == laid_out(sent, spoken, told)
    assert laid_out(adding, spoken, told) == laid_out(sent, spoken, told)
    sound = {"cross_lingual": True}
    assert flattened(laid_out(adding, spoken, untold, **sound)) == flattened(
        laid_out(sent, PREFIX + spoken, untold, **sound)
    )
    calm = {"instruct_text": "Be calm."}
    assert laid_out(adding, spoken, untold, **calm) == laid_out(sent, spoken, untold, **calm)
    assert laid_out(adding, "Shout." + own + spoken, untold) == laid_out(
        sent, "Shout." + own + spoken, untold
    )


def flattened(prompts):
    """Ids of each prompt, whatever part they stand in."""
    return [[number for _, ids in parts for number in ids] for parts in prompts]


def test_every_segment_of_a_long_text_has_the_instruction_that_the_text_begins_with(synthesizer):
    instruction, sentence = (
        "Be happy.<|endofprompt|>",
        "This is a sentence of some length that has many words. ",
    )
    request = SpeechRequest(instruction + 12 * sentence, synthesizer.speakers["default"])
    prompts = lm_prompts(request, synthesizer.front_end, synthesizer.tokenizer)
    assert len(prompts) > 1
    texts = [synthesizer.tokenizer.decode(prompt.text) for prompt in prompts]
    assert all(text.startswith(instruction) and text.count(instruction) == 1 for text in texts)


def test_an_instruction_needs_no_marker_of_its_own(synthesizer):
    sampling = SamplingOptions(max_tokens=9)
    assert speak(synthesizer, "Hello.", instruct_text="Please speak slowly.", sampling=sampling)


def test_long_text_behind_a_prefix_is_spoken_in_segments(synthesizer):
    chunks = speak(
        synthesizer, PREFIX + "This is a long sentence. " * 30, sampling=SamplingOptions(max_tokens=3)
    )
    assert chunks[-1].segment > 1


def test_text_in_pieces_is_spoken_behind_an_instruction(synthesizer):
    voice = synthesizer.speakers["default"]
    request = SpeechRequest("", voice, instruct_text="Please speak slowly.", seed=5)
    pieces = [
        f"{word} "
        for word in [
            "Good",
            "morning.",
            "How",
            "are",
            "you",
            "on",
            "this",
            "fine",
            "day?",
            "I",
            "am",
            "well.",
        ]
    ]
    chunks = list(synthesizer.synthesize_pieces(pieces, request))
    assert sum(chunk.seconds for chunk in chunks) > 1
    with pytest.raises(InvalidInput, match="target_text"):
        list(synthesizer.synthesize_pieces(pieces, SpeechRequest("", voice)))


def test_reference_mel_reaches_to_12_khz(synthesizer, recording):
    mel = synthesizer.voice(recording, "").prompt_mel
    expected = mel_spectrogram(resample(recording.samples, recording.rate, 24_000), COSYVOICE3.mel)
    assert np.array_equal(mel, expected[: len(mel)])


def test_command_line_speaks(checkpoint, tmp_path, capsys):
    target = tmp_path / "speech.wav"
    assert main(["speak", "--checkpoint", str(checkpoint), "--seed", "1", TEXT, "-o", str(target)]) == 0
    assert "ends: stop" in capsys.readouterr().err
    samples, rate = soundfile.read(target)
    assert rate == 24_000
    assert abs(samples).max() > 0.01


def test_command_line_names_what_is_missing(checkpoint, tmp_path, capsys):
    target = tmp_path / "speech.wav"
    assert main(["speak", "--checkpoint", str(checkpoint), "Hello.", "-o", str(target)]) == 1
    assert "target_text" in capsys.readouterr().err

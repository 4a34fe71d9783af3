"""Requests as tensors, against the shapes that CosyVoice2's own clients send."""

from __future__ import annotations

import numpy as np
import pytest
import soundfile

from cosyvoice_client import InvalidArgumentError, Reference, SpeechRequest, read_reference
from cosyvoice_client.command import request_parser, spoken_options
from cosyvoice_client.request import OPTIONS, TRIMS

EVERYTHING = SpeechRequest(
    "你好",
    Reference(np.linspace(-0.5, 0.5, 8000, dtype=np.float32), "words", 24000),
    voice="mia",
    instruct_text="softly",
    language="zh",
    cross_lingual=True,
    speed=1.5,
    seed=2**62,
    sampling_strategy="greedy",
    top_k=5,
    top_p=0.5,
    temperature=0.25,
    repetition_penalty=2.0,
    text_markup="ssml",
    lexicon={"SQL": "sequel", "nginx": "engine x"},
    text_voices={"Anna": "anna-1"},
    max_tokens=100,
    trim_silence="both",
    turns=[{"voice": "mia", "text": "Hi."}],
    turn_pause_s=0.5,
    words=True,
    verify="retry",
    paragraph_pause_s=0.75,
    sentence_pause_s=0.25,
    start_character=12,
)


def test_only_what_is_given_is_sent():
    assert list(SpeechRequest("hello").tensors()) == ["target_text"]


def test_reference_is_sent_as_the_known_clients_do():
    tensors = SpeechRequest("hello", Reference(np.ones(5, np.float32), "five")).tensors()
    described = {name: (array.shape, array.dtype.str) for name, array in tensors.items()}
    assert described == {
        "target_text": ((1, 1), "|O"),
        "reference_wav": ((1, 5), "<f4"),
        "reference_wav_len": ((1, 1), "<i4"),
        "reference_text": ((1, 1), "|O"),
    }
    assert tensors["reference_wav_len"].item() == 5
    assert tensors["reference_text"].item() == b"five"


def test_every_option_has_its_type_and_value():
    tensors = EVERYTHING.tensors()
    assert tensors["reference_sample_rate"].item() == 24000
    written = {
        "lexicon": "SQL\tsequel\nnginx\tengine x",
        "text_voices": '{"Anna": "anna-1"}',
        "turns": '[{"voice": "mia", "text": "Hi."}]',
    }
    for name, dtype in OPTIONS.items():
        value = written.get(name, getattr(EVERYTHING, name))
        expected = value.encode() if isinstance(value, str) else value
        assert tensors[name].shape == (1, 1)
        assert (tensors[name].dtype, tensors[name].item()) == (np.dtype(dtype), expected)


@pytest.mark.parametrize(("field", "value"), [("seed", 2**63), ("top_k", 2**40), ("speed", "fast")])
def test_value_that_does_not_fit_is_named(field, value):
    with pytest.raises(InvalidArgumentError, match=f"^{field}: "):
        SpeechRequest("hello", **{field: value}).tensors()


def test_reference_is_mixed_down_and_resampled(tmp_path):
    tone = np.sin(2 * np.pi * 440 * np.arange(48000) / 48000)
    soundfile.write(tmp_path / "tone.wav", np.stack([tone, np.zeros(48000)], axis=1), 48000, "FLOAT")
    reference = read_reference(tmp_path / "tone.wav", "a tone")
    assert (reference.rate, reference.text, reference.samples.dtype) == (16000, "a tone", np.float32)
    assert len(reference.samples) == 16000
    expected = np.sin(2 * np.pi * 440 * np.arange(16000) / 16000) / 2
    assert np.abs(reference.samples - expected)[200:-200].max() < 1e-3


def test_reference_at_its_own_rate_keeps_its_samples(tmp_path):
    samples = np.tile(np.arange(-100, 100) / 128, 100)
    soundfile.write(tmp_path / "a.flac", samples, 24000)
    assert np.array_equal(read_reference(tmp_path / "a.flac", rate=24000).samples, samples.astype(np.float32))


@pytest.mark.parametrize("rate", [8000, 96000])
def test_reference_rate_has_limits(tmp_path, rate):
    with pytest.raises(InvalidArgumentError, match="16000 to 48000"):
        read_reference(tmp_path / "a.wav", rate=rate)


def test_reference_that_is_no_audio_is_an_error(tmp_path):
    (tmp_path / "a.wav").write_text("no audio")
    with pytest.raises(InvalidArgumentError, match=r"a\.wav"):
        read_reference(tmp_path / "a.wav")
    with pytest.raises(InvalidArgumentError, match="no such file"):
        read_reference(tmp_path / "b.wav")


@pytest.mark.parametrize("value", TRIMS)
def test_commands_ask_for_silence_to_be_left_out(value):
    parser = request_parser(None, "localhost:1", "model", 1.0)
    options = parser.parse_args(["--text", "hello", "--trim-silence", value])
    assert spoken_options(options)["trim_silence"] == value

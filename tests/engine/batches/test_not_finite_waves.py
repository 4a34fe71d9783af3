"""NaN and infinity out of the flow or the vocoder: the stage is named, and nobody else hears of it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from spoken import alone, chunks_of, prompt_tensors, speech_tokens

from cosyvoice_runtime.engine.batches import (
    VoiceCache,
    WaveService,
)
from cosyvoice_runtime.engine.runtimes import (
    onnx_runtime,
    torch_runtime,
)
from cosyvoice_runtime.errors import FLOW, SPEECH_LM, VOCODER, NotFiniteError
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.page import read_samples
from cosyvoice_runtime.onnx.session import EstimatorFormats
from cosyvoice_runtime.serving.not_finite import NotFiniteCount, speech_lm_remedies, token2wav_remedies
from cosyvoice_runtime.settings import TensorrtLlmSettings, Token2WavSettings
from cosyvoice_runtime.token2wav.onnx_export import export_wave
from cosyvoice_runtime.token2wav.token2wav import Token2Wav
from damaged import damaged

NAN, INFINITY = float("nan"), float("inf")
FLOW_TENSOR, VOCODER_TENSOR = "decoder.estimator.final_proj.bias", "conv_post.bias"
TOKEN_TENSOR = "input_embedding.weight"


def service_of(token2wav) -> WaveService:
    return WaveService(token2wav, VoiceCache(token2wav.flow, 8), idle_timeout_s=60.0)


def loaded(settings: Token2WavSettings, checkpoint: Path, directory: Path) -> Token2Wav:
    settings = settings.replace(checkpoint_dir=checkpoint, backend_dir=directory)
    if settings.backend == "torch":
        return torch_runtime.load_token2wav(settings)
    export_wave(checkpoint, directory, EstimatorFormats())
    return onnx_runtime.load_token2wav(settings)


@pytest.mark.parametrize("value", [NAN, INFINITY])
@pytest.mark.parametrize(
    ("file", "tensor", "stage"), [("flow.pt", FLOW_TENSOR, FLOW), ("hift.pt", VOCODER_TENSOR, VOCODER)]
)
def test_the_stage_that_breaks_is_named(settings, tmp_path, file, tensor, stage, value):
    checkpoint = damaged(settings.checkpoint_dir, tmp_path / "checkpoint", file, tensor, value)
    token2wav = loaded(settings, checkpoint, tmp_path / "networks")
    voice = prompt_tensors(token2wav, 30)
    with closing(service_of(token2wav)) as service:
        [outcome] = service.run(chunks_of("a", speech_tokens(30, 0), [30], "v", voice))
        assert len(service) == 0
    assert isinstance(outcome, NotFiniteError)
    assert outcome.stage == stage


def test_an_utterance_that_breaks_fails_alone_and_leaves_no_trace(settings, shared_token2wav, tmp_path):
    tokens = speech_tokens(60, 0)
    bad_token = next(token for token in range(1, 6561) if token not in tokens)  # padding is 0
    row = slice(bad_token, bad_token + 1)
    checkpoint = damaged(settings.checkpoint_dir, tmp_path / "c", "flow.pt", TOKEN_TENSOR, NAN, row)
    token2wav = loaded(settings, checkpoint, tmp_path / "networks")
    voice = prompt_tensors(token2wav, 0)
    heard: dict[str, list[np.ndarray]] = {"a": [], "b": []}
    with closing(service_of(token2wav)) as service:
        for name in heard:
            for number, chunk in enumerate(chunks_of(name, tokens, [30, 60], "v", voice)):
                [bad] = chunks_of(f"bad {name} {number}", [*tokens[:-1], bad_token], [60], "v", voice)
                good, broken = service.run([chunk, bad])
                assert isinstance(broken, NotFiniteError)
                assert broken.stage == FLOW
                assert not isinstance(good, Exception), (name, number, good)
                heard[name].append(good)
    expected = alone(shared_token2wav, voice, tokens)
    for waves in heard.values():
        np.testing.assert_allclose(np.concatenate(waves), expected, atol=2e-3, rtol=0)


def test_each_is_counted_by_its_stage_and_told_what_helps(tmp_path):
    count = NotFiniteCount(Metrics("token2wav", tmp_path), {FLOW: "remedy 1", VOCODER: "remedy 2"})
    other = ValueError("another error")
    assert count.with_remedy(other) is other
    told = [str(count.with_remedy(NotFiniteError(stage))) for stage in (FLOW, VOCODER, FLOW)]
    assert told[:2] == [
        "flow: NaN or infinity in the mel; remedy 1",
        "vocoder: NaN or infinity in the samples; remedy 2",
    ]
    samples = [each for each in read_samples(tmp_path) if each.name == "cosyvoice_not_finite_total"]
    assert {(each.labels["model"], each.labels["stage"], each.value) for each in samples} == {
        ("token2wav", FLOW, 2.0),
        ("token2wav", VOCODER, 1.0),
    }


@pytest.mark.parametrize(
    ("settings", "narrow"),
    [
        ({"engine": "torch", "dtype": "bfloat16"}, "bfloat16 may be too narrow"),
        ({"engine": "torch", "dtype": "float16"}, "COSYVOICE_TENSORRT_LLM__DTYPE=float32 ./run.sh 1 3"),
        ({"engine": "tensorrt_llm", "dtype": "float16"}, "COSYVOICE_TENSORRT_LLM__DTYPE=bfloat16"),
        ({"engine": "onnx", "weight_format": "int8"}, "COSYVOICE_TENSORRT_LLM__WEIGHT_FORMAT=float32"),
        ({"engine": "torch", "dtype": "float32"}, "its weights may be damaged"),
        ({"engine": "tensorrt_llm", "dtype": "bfloat16"}, "its weights may be damaged"),
    ],
)
def test_speech_lm_that_is_served_in_a_narrow_format_is_told_a_wider_one(settings, narrow):
    [told] = speech_lm_remedies(TensorrtLlmSettings.model_construct(**settings)).values()
    assert narrow in told
    assert "./run.sh check names the layer" in told


@pytest.mark.parametrize(
    ("settings", "flow", "vocoder"),
    [
        ({"backend": "torch", "dtype": "float16"}, "COSYVOICE_TOKEN2WAV__DTYPE=float32", "float16 may be"),
        ({"backend": "torch", "dtype": "float32"}, "its weights may", "its weights may"),
        ({"backend": "onnx", "weight_format": "int8"}, "TOKEN2WAV__WEIGHT_FORMAT=float32", "its weights may"),
        ({"backend": "onnx", "weight_format": "float32"}, "its weights may", "its weights may"),
    ],
)
def test_token2wav_that_is_served_in_a_narrow_format_is_told_a_wider_one(settings, flow, vocoder):
    told = token2wav_remedies(Token2WavSettings.model_construct(**settings))
    assert flow in told[FLOW]
    assert told[VOCODER].startswith(vocoder)


def test_every_stage_has_a_remedy():
    assert set(speech_lm_remedies(TensorrtLlmSettings())) == {SPEECH_LM}
    assert set(token2wav_remedies(Token2WavSettings())) == {FLOW, VOCODER}

"""From a checkpoint to graphs, engines and a token2wav that runs on them; what does not fit is refused."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.engine.runtimes.torch_runtime import load_token2wav
from cosyvoice_runtime.errors import EngineFileError, InvalidInput
from cosyvoice_runtime.flow.norm_range import norms_in_range
from cosyvoice_runtime.flow.voice_flow import FlowPrompt
from cosyvoice_runtime.flow.weights import dit_weights
from cosyvoice_runtime.gpu.cuda_graphs import EagerCalls
from cosyvoice_runtime.manifest import PACKAGE, Manifest
from cosyvoice_runtime.serving.hosted.extractors import engine_of
from cosyvoice_runtime.settings import (
    AudioTokenizerSettings,
    Machine,
    SpeakerEmbeddingSettings,
    Token2WavSettings,
)
from cosyvoice_runtime.tensorrt import engine_files, extractor, graph_files, token2wav_engines
from cosyvoice_runtime.tensorrt import extractor_graphs as extractors
from cosyvoice_runtime.tensorrt.engine_files import build
from cosyvoice_runtime.tensorrt.graph_files import NETWORKS, export_graph, graph_of, networks_of
from cosyvoice_runtime.token2wav import onnx_files
from cosyvoice_runtime.token2wav.token2wav import Token2Wav
from cosyvoice_runtime.vocoder.weights import plain_weights
from cosyvoice_runtime.voice.extractors import SpeakerEncoder, SpeechTokenizer
from cuda_fake import FakeCuda
from making import make_checkpoint
from prompts import prompt_of_tensors
from tensorrt_fake import fake_tensorrt

CPU = Machine(cores=1, gpu=False)


@pytest.fixture(scope="module")
def backend_dir(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("engines")
    export(tiny_checkpoint, directory)
    return directory


def export(checkpoint: Path, directory: Path) -> list[list[str]]:
    """Why each graph was written."""
    return [export_graph(checkpoint, directory, name, "float32") for name in NETWORKS]


@pytest.fixture
def settings(tiny_checkpoint: Path, backend_dir: Path) -> Token2WavSettings:
    given = Token2WavSettings(
        checkpoint_dir=tiny_checkpoint, max_flow_pages=24, ode_steps=2, threads=1, max_batch=2,
        backend="onnx", backend_dir=backend_dir, backend_max_seconds=20,
    )  # fmt: skip
    return given.resolved(CPU)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """A machine with a GPU and TensorRT 10.14."""
    cuda = FakeCuda()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    properties = SimpleNamespace(name="fake H100", major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setitem(sys.modules, "tensorrt", fake_tensorrt(cuda))
    for module in (engine_files, extractor, token2wav_engines):
        monkeypatch.setattr(module, "Cuda", lambda _: cuda)
    return cuda


def on_gpu(settings: Token2WavSettings) -> Token2WavSettings:
    return settings.replace(backend="tensorrt", device="cuda")


def built(settings: Token2WavSettings) -> list[list[str]]:
    """Why each engine was built."""
    shapes = token2wav_engines.shapes_of(settings, load_config(settings.checkpoint_dir))
    cuda = engine_files.Cuda(torch.device(settings.device))
    return [build(settings.backend_dir, name, profiles, cuda) for name, profiles in shapes.profiles().items()]


def prompt_and_tokens(token2wav: Token2Wav) -> tuple[FlowPrompt, list[int]]:
    config = token2wav.flow.flow.config
    generator = torch.Generator().manual_seed(4)
    prompt = prompt_of_tensors(
        tokens=torch.randint(config.token_vocab_size, (30,), generator=generator),
        mel=torch.randn(60, config.mel_bins, generator=generator),
        speaker=torch.randn(config.speaker_dim, generator=generator),
    )
    return prompt, torch.randint(config.token_vocab_size, (73,), generator=generator).tolist()


def mel(token2wav: Token2Wav) -> torch.Tensor:
    prompt, tokens = prompt_and_tokens(token2wav)
    return token2wav.flow.flow.generate([prompt], [tokens])[0]


def wave(token2wav: Token2Wav) -> torch.Tensor:
    prompt, tokens = prompt_and_tokens(token2wav)
    state = token2wav.open(prompt, noise_seed=3)
    chunks = []
    for start, end in ((0, 28), (28, 68), (68, 73)):
        token2wav.push(state, tokens[start:end], end == len(tokens))
        chunks += token2wav.advance([state])
    token2wav.close(state)
    return torch.from_numpy(np.concatenate(chunks))


def assert_same_speech(actual: Token2Wav, expected: Token2Wav) -> None:
    """To the rounding of each part; in the waveform, the sum of F0 makes more of the mel's last digits."""
    mels = [mel(each) for each in (actual, expected)]
    assert (mels[0] - mels[1]).abs().max() < 1e-4
    waves = [each.torch_vocoder.hift(mels[1][None]) for each in (actual, expected)]
    assert (waves[0] - waves[1]).abs().max() < 1e-5
    spoken = [wave(each) for each in (actual, expected)]
    assert (spoken[0] - spoken[1]).norm() < 1e-2 * spoken[1].norm()


def test_token2wav_on_tensorrt_speaks_as_on_torch(
    settings: Token2WavSettings, gpu: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaks_as_on_torch(settings, monkeypatch)
    assert any(event.startswith("replay") for event in gpu.events)


def test_cosyvoice3_on_tensorrt_speaks_as_on_torch(
    settings: Token2WavSettings, gpu: FakeCuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    checkpoint = make_checkpoint(tmp_path / "tiny", "tiny", seed=0, family="cosyvoice3")
    names = ["flow_estimator", "hift_decoder"]  # what comes before the estimator stays torch's
    assert networks_of(load_config(checkpoint)) == names
    for name in names:
        export_graph(checkpoint, tmp_path, name, "float32")
    speaks_as_on_torch(settings.replace(checkpoint_dir=checkpoint, backend_dir=tmp_path), monkeypatch)
    assert any(event.startswith("replay") for event in gpu.events)
    assert not graph_of(tmp_path, "flow_encoder").exists()


def speaks_as_on_torch(settings: Token2WavSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = load_token2wav(settings.replace(backend="torch"))
    built(on_gpu(settings))
    engines = token2wav_engines.open_engines(
        on_gpu(settings), load_config(settings.checkpoint_dir), EagerCalls()
    )
    monkeypatch.setattr(token2wav_engines, "open_engines", lambda *_: engines)
    compiled = load_token2wav(settings)
    assert_same_speech(compiled, modules)


def test_graphs_and_engines_are_made_once(settings: Token2WavSettings, gpu: FakeCuda) -> None:
    assert export(settings.checkpoint_dir, settings.backend_dir) == [[], [], []]
    built(on_gpu(settings))
    assert built(on_gpu(settings)) == [[], [], []]
    longer = on_gpu(settings).replace(backend_max_seconds=30)
    assert all("option profiles was" in reasons[0] for reasons in built(longer))


@pytest.mark.parametrize("writers", [graph_files.WRITERS, onnx_files.WRITERS], ids=["tensorrt", "onnx"])
@pytest.mark.parametrize("maker", [dit_weights, norms_in_range, plain_weights])
def test_graphs_of_other_code_for_their_weights_are_stale(
    writers: Sequence[str], maker: Callable[..., object]
) -> None:
    assert Path(inspect.getfile(maker)) in [path for pattern in writers for path in PACKAGE.glob(pattern)]


def test_graphs_of_other_weights_are_written_again(settings: Token2WavSettings, tmp_path: Path) -> None:
    first, *_ = export(settings.checkpoint_dir, tmp_path)
    assert "manifest.json is missing" in first[0]
    directory = graph_of(tmp_path, "hift_decoder").parent
    manifest = Manifest.read(directory)
    replace(manifest, sources={**manifest.sources, "hift.pt": "0" * 64}).write(directory)
    *flow, (reason,) = export(settings.checkpoint_dir, tmp_path)
    assert flow == [[], []]
    assert reason.startswith("source hift.pt was ")
    assert Manifest.read(directory) == manifest


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"backend_dir": Path("/nowhere")}, r"manifest\.json is missing"),
    ],
)
def test_missing_or_stale_graphs_are_refused(settings: Token2WavSettings, change, reason: str) -> None:
    with pytest.raises(EngineFileError, match=reason):
        load_token2wav(settings.replace(**change))


def test_missing_or_stale_engines_are_refused(
    settings: Token2WavSettings, gpu: FakeCuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    elsewhere = on_gpu(settings).replace(backend_dir=tmp_path)
    export(settings.checkpoint_dir, tmp_path)
    with pytest.raises(EngineFileError, match=r"flow_encoder/manifest\.json is missing"):
        load_token2wav(elsewhere)
    built(elsewhere)
    with pytest.raises(EngineFileError, match="option profiles was"):
        load_token2wav(elsewhere.replace(max_batch=3))
    other = SimpleNamespace(name="fake L4", major=8, minor=9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: other)
    with pytest.raises(EngineFileError, match="GPU was 'fake H100' when built, now 'fake L4'"):
        load_token2wav(elsewhere)
    monkeypatch.setitem(sys.modules, "tensorrt", fake_tensorrt(gpu, "11.4.1"))
    with pytest.raises(EngineFileError, match=r"version of tensorrt was '10\.14\.1\.48' when built"):
        load_token2wav(elsewhere)


def test_without_tensorrt_or_a_gpu_that_backend_is_refused(
    settings: Token2WavSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(EngineFileError, match="needs the module tensorrt"):
        load_token2wav(on_gpu(settings))
    monkeypatch.setitem(sys.modules, "tensorrt", fake_tensorrt(FakeCuda()))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(EngineFileError, match="sees no GPU"):
        load_token2wav(on_gpu(settings))


def test_extractors_on_tensorrt_make_the_same_voices(settings: Token2WavSettings, gpu: FakeCuda) -> None:
    layout, names = Layout(settings.checkpoint_dir), (extractors.TOKENIZER_NAME, extractors.ENCODER_NAME)
    given = {
        "checkpoint_dir": settings.checkpoint_dir, "backend": "tensorrt", "backend_dir": settings.backend_dir,
        "device": "cuda",
    }  # fmt: skip
    with pytest.raises(EngineFileError, match=r"speech_tokenizer/manifest\.json is missing"):
        extractor.open_extractor(AudioTokenizerSettings(**given), names[0])
    for name in names:
        export_graph(settings.checkpoint_dir, settings.backend_dir, name, "float32")
        build(settings.backend_dir, name, [extractors.PROFILE], gpu)
    tokens = extractor.open_extractor(AudioTokenizerSettings(**given), names[0])
    embeddings = extractor.open_extractor(SpeakerEmbeddingSettings(**given), names[1])
    recordings = [np.random.default_rng(row).standard_normal(16_000, np.float32) for row in range(10)]
    pairs = [
        (SpeechTokenizer(layout.speech_tokenizer, engine=tokens), SpeechTokenizer(layout.speech_tokenizer)),
        (SpeakerEncoder(layout.speaker_encoder, engine=embeddings), SpeakerEncoder(layout.speaker_encoder)),
    ]
    for ours, published in pairs:
        for actual, expected in zip(ours.batch(recordings), published.batch(recordings), strict=True):
            assert np.allclose(actual, expected, atol=1e-5)
    assert engine_of(AudioTokenizerSettings(), names[0]) is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"backend": "onnx", "device": "cuda"}, r"token2wav\.device"),
        ({"backend": "tensorrt", "device": "cpu"}, r"token2wav\.device"),
        ({"backend": "tensorrt", "device": "cuda:1", "dtype": "bfloat16"}, r"token2wav\.dtype"),
    ],
)
def test_settings_that_a_backend_cannot_have_are_refused(change: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        Token2WavSettings(**change)

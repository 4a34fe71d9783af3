"""What is trained is what the library runs: untrained networks exported and loaded by the normal loader."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
import pytest
import torch

from cosyvoice_runtime.checkpoint import Layout, load_config, verify_checkpoint
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.flow.torch.flow import Flow, FlowNetwork
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.torch.decoder import generate
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.vocoder.torch.hift import HiFT
from cosyvoice_runtime.voice.extractors import SpeakerEncoder, SpeechTokenizer

pytest.importorskip("transformers")
from demo_voice.training.export import write_checkpoint
from demo_voice.training.flow import with_phases
from demo_voice.training.lm import SpeechLMNetwork
from demo_voice.training.sizes import CODES, DEMO, PHASES
from demo_voice.training.speaker_encoder import SpeakerEncoderNetwork
from demo_voice.training.speech_tokenizer import SpeechTokenizerNetwork
from demo_voice.training.text_tokenizer import Bpe
from demo_voice.training.vocoder import initialised

LIMIT = 2e-2
"""Half-precision weights against those in training."""


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def networks() -> dict[str, torch.nn.Module]:
    torch.manual_seed(0)
    return {
        "tokenizer": SpeechTokenizerNetwork().eval(),
        "encoder": SpeakerEncoderNetwork().eval(),
        "lm": SpeechLMNetwork(DEMO.speech_lm).eval(),
        "flow": with_phases(FlowNetwork(DEMO.flow)).eval(),
        "hift": initialised(HiFT(DEMO.vocoder)).eval(),
    }


@pytest.fixture(scope="module")
def checkpoint(networks: dict[str, torch.nn.Module], tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("demo")
    bpe = Bpe.trained(["The rain in Spain stays mainly in the plain.", "How many trains are there today?"])
    write_checkpoint(directory, bpe, **networks)  # type: ignore[arg-type]
    return directory


def test_checkpoint_is_sound_and_small(checkpoint: Path) -> None:
    assert verify_checkpoint(checkpoint) == []
    sizes = [path.stat().st_size for path in checkpoint.rglob("*") if path.is_file()]
    assert max(sizes) < 16e6
    assert sum(sizes) < 32e6


def test_greedy_tokens_equal_those_of_the_trained_network(
    networks: dict[str, torch.nn.Module], checkpoint: Path
) -> None:
    network, config = networks["lm"], DEMO.speech_lm
    tensors = load_tensors(Layout(checkpoint), "llm", load_config(checkpoint))
    text, speech = [7, 300, 20, 5], [100, 2000, 4000]
    prompt = Prompt(text, (), speech)
    options = SamplingOptions(strategy="greedy", min_tokens=6, max_tokens=6)
    spoken, _ = generate(SpeechLM.from_tensors(config, tensors), prompt, options)
    control = config.speech_rows + config.text_vocab_size
    ids = [control, *(config.speech_rows + token for token in text), control + 1, *speech]
    for token in spoken:
        with torch.no_grad():
            logits = network.logits(network(torch.tensor([ids])))[0, -1, : config.speech_tokens]
        assert logits[token] >= logits.max() - LIMIT
        ids.append(token)


def test_flow_weights_survive(networks: dict[str, torch.nn.Module], checkpoint: Path) -> None:
    tensors = load_tensors(Layout(checkpoint), "flow", load_config(checkpoint))
    loaded = Flow.from_tensors(DEMO.flow, tensors).network.state_dict()
    for name, trained in networks["flow"].state_dict().items():
        torch.testing.assert_close(loaded[name], trained.float(), rtol=2e-3, atol=1e-4)


def test_vocoder_weights_survive(networks: dict[str, torch.nn.Module], checkpoint: Path) -> None:
    tensors = load_tensors(Layout(checkpoint), "hift", load_config(checkpoint))
    loaded = HiFT.from_tensors(DEMO.vocoder, tensors).state_dict()
    for name, trained in networks["hift"].state_dict().items():
        torch.testing.assert_close(loaded[name].float(), trained.float(), rtol=5e-3, atol=1e-3)


@pytest.mark.parametrize("samples", [640, 16_001, 160_000])
def test_tokenizer_counts_tokens_and_never_repeats_one(checkpoint: Path, samples: int) -> None:
    tokens = SpeechTokenizer(checkpoint / "speech_tokenizer_v2.onnx")(0.1 * noise(samples))
    assert len(tokens) == -(-(samples // 160) // 4)
    phases = tokens // CODES
    assert phases.tolist() == [place % PHASES for place in range(len(tokens))]


def test_onnx_equals_the_trained_networks(networks: dict[str, torch.nn.Module], checkpoint: Path) -> None:
    encoder = SpeakerEncoder(checkpoint / "campplus.onnx")
    assert encoder.dimension == DEMO.flow.speaker_dim
    batch = encoder.batch([0.1 * noise(16_000, seed=seed) for seed in range(2)])
    assert len(batch) == 2
    log_mel = noise(2, 128, 100)
    session = onnxruntime.InferenceSession(checkpoint / "speech_tokenizer_v2.onnx")
    names = [each.name for each in session.get_inputs()]
    lengths = torch.full((2,), 100, dtype=torch.int32)
    ids = session.run(None, dict(zip(names, (log_mel.numpy(), lengths.numpy()), strict=True)))[0]
    with torch.no_grad():
        expected = networks["tokenizer"](log_mel, lengths)
    assert (torch.from_numpy(ids) == expected).float().mean() > 0.95

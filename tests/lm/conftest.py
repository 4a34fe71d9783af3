"""A speech LM of unusual sizes with random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from lm_utterances import POISON

from capture_fake import play_back
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.schema import llm_schema
from cosyvoice_runtime.lm.torch import speech_decoder
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.lm.torch.network import SpeechLM
from counted_draws import counted_sample_batch

CONFIG = SpeechLMConfig(
    hidden_size=48,
    intermediate_size=56,
    num_layers=3,
    num_heads=6,
    num_kv_heads=2,
    text_vocab_size=90,
    speech_tokens=70,
    rope_theta=1e4,
    rms_norm_eps=1e-6,
    max_positions=512,
    mix_ratio=(5, 15),
)


@pytest.fixture(scope="session")
def config() -> SpeechLMConfig:
    return CONFIG


@pytest.fixture(scope="session")
def published() -> dict[str, torch.Tensor]:
    """Tensors under their published names, large enough for distinct logits."""
    generator = torch.Generator().manual_seed(5)
    return {
        name: torch.randn(shape, generator=generator) * (0.3 if len(shape) > 1 else 1)
        for name, shape in llm_schema(CONFIG).items()
    }


@pytest.fixture(scope="session")
def lm(published: dict[str, torch.Tensor]) -> SpeechLM:
    return SpeechLM.from_tensors(CONFIG, published)


@pytest.fixture(scope="session")
def poisoned(published: dict[str, torch.Tensor]) -> SpeechLM:
    """Whoever reads the text id POISON gets logits that are no numbers."""
    name = "llm.model.model.embed_tokens.weight"
    embedding = published[name].clone()
    embedding[POISON] = float("nan")
    return SpeechLM.from_tensors(CONFIG, {**published, name: embedding})


@pytest.fixture(scope="module")
def same_draws() -> Iterator[None]:
    """The host draws what captured steps draw."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speech_decoder, "sample_batch", counted_sample_batch)
        yield


@pytest.fixture(params=["host", "device"], scope="session")
def make(request: pytest.FixtureRequest) -> Callable[..., BatchDecoder]:
    """Makes decoders that draw on the host, or whose captured steps draw and run ahead."""
    return BatchDecoder if request.param == "host" else partial(BatchDecoder, capture=play_back)

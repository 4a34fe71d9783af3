"""Requests before they are bytes: every part can be wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tritonclient.utils import np_to_triton_dtype, serialize_byte_tensor

from cosyvoice_runtime.serving.triton.schema import SCHEMAS

REFERENCE_RATE = 16_000
MEL_BINS, SPEAKER_SIZE, SPEECH_TOKENS = 80, 192, 6561
PROTOCOLS = {
    "cosyvoice2": ("stream", "stream", "generate_stream", "generate", "unary", "infer"),
    "cosyvoice2_offline": ("unary", "infer", "binary infer", "generate"),
    "tensorrt_llm": ("stream", "generate_stream"),
    "audio_tokenizer": ("unary", "infer", "binary infer"),
    "speaker_embedding": ("unary", "infer", "binary infer"),
    "token2wav": ("unary", "infer", "binary infer"),
}
"""Ways to ask each model; one that can't answer so must say it."""


@dataclass
class Tensor:
    """An input as it is written: nothing says that its parts fit each other."""

    name: str
    datatype: str
    shape: list[int]
    content: bytes
    parameters: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, array: Any) -> Tensor:
        array = np.asarray(array)
        content = serialize_byte_tensor(array).item() if array.dtype == np.object_ else array.tobytes()
        return cls(name, np_to_triton_dtype(array.dtype), list(array.shape), content)


@dataclass
class Request:
    """
    Attributes:
        outputs: names, and the parameters of each.
        garbled: changes the bytes that go over the wire; None leaves them alone.
        change: what is wrong with it.
    """

    model: str
    protocol: str
    tensors: list[Tensor]
    version: str = ""
    id: str = ""
    outputs: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    garbled: random.Random | None = None
    change: str = "nothing"


def valid_request(chance: random.Random, model: str | None = None) -> Request:
    """A request that a server answers with audio, tokens or a vector; small, so that many are done soon."""
    model = model or chance.choice(list(SCHEMAS))
    values = VALID[model](chance)
    specs = {spec.name: spec for spec in SCHEMAS[model].inputs}
    tensors = [Tensor.of(name, specs[name].encode(value)) for name, value in values.items()]
    return Request(model, chance.choice(PROTOCOLS[model]), tensors, id=f"{chance.getrandbits(32):x}")


def reference(chance: random.Random, seconds: float = 0.5) -> np.ndarray[Any, Any]:
    noise = np.random.default_rng(chance.getrandbits(32))
    return (0.1 * noise.standard_normal(int(seconds * REFERENCE_RATE))).astype(np.float32)


def _speech(chance: random.Random) -> dict[str, Any]:
    values: dict[str, Any] = {"target_text": "Hi.", "max_tokens": 4}
    optional = {
        "seed": chance.getrandbits(31),
        "speed": chance.choice([0.5, 1.0, 2.0]),
        "language": "en",
        "top_k": chance.randint(1, 50),
        "top_p": chance.random() * 0.9 + 0.1,
        "temperature": 1.0,
        "repetition_penalty": 1.1,
        "sampling_strategy": chance.choice(["ras", "nucleus", "greedy"]),
    }
    values |= {name: optional[name] for name in chance.sample(list(optional), chance.randint(0, 4))}
    if chance.random() < 0.1:
        samples = reference(chance)
        values |= {"reference_wav": samples, "reference_wav_len": len(samples), "reference_text": "Ah."}
    return values


def _language_model(chance: random.Random) -> dict[str, Any]:
    values: dict[str, Any] = {"request_output_len": 5, "streaming": True, "seed": chance.getrandbits(31)}
    if chance.random() < 0.5:
        return values | {"self_test": True}
    ids = [chance.randrange(160_000) for _ in range(chance.randint(1, 20))]
    return values | {"input_ids": ids, "input_lengths": len(ids), "runtime_top_k": 25}


def _extractor(chance: random.Random) -> dict[str, Any]:
    samples = reference(chance, chance.uniform(0.5, 0.6))
    return {"reference_wav": samples, "reference_wav_len": len(samples)}


def _wave(chance: random.Random) -> dict[str, Any]:
    noise = np.random.default_rng(chance.getrandbits(32))
    tokens = chance.randint(0, 20)
    return {
        "utterance_id": f"fuzz {chance.getrandbits(64):x}",
        "speech_tokens": noise.integers(0, SPEECH_TOKENS, chance.randint(0, 30)),
        "position": 0,
        "last": True,
        "voice_key": f"fuzz {chance.getrandbits(64):x}",
        "noise_seed": chance.getrandbits(62),
        "speed": 1.0,
        "prompt_speech_tokens": noise.integers(0, SPEECH_TOKENS, tokens),
        "prompt_speech_feat": noise.standard_normal((2 * tokens, MEL_BINS)),
        "prompt_spk_embedding": noise.standard_normal(SPEAKER_SIZE),
    }


VALID = {
    "cosyvoice2": _speech,
    "cosyvoice2_offline": _speech,
    "tensorrt_llm": _language_model,
    "audio_tokenizer": _extractor,
    "speaker_embedding": _extractor,
    "token2wav": _wave,
}

"""config.pbtxt of every model in every profile: Triton can read it, and model.py does what it declares."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tritonclient.grpc", reason="needs the environment of scripts/environment.py")

from model_configuration import MODELS, TEMPLATES, data_type, problems, rendered, settings_of, tensors
from triton_python_backend_utils import InferenceRequest

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.merged_vocabulary import MergedVocabulary
from cosyvoice_runtime.engine.utterance.request import AudioChunk
from cosyvoice_runtime.engine.utterance.verdict import Verification
from cosyvoice_runtime.lm import FinishReason, SamplingOptions
from cosyvoice_runtime.lm.scheduler.request import RequestReader
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.metrics import RequestCount
from cosyvoice_runtime.serving.hosted.extractors import (
    AudioTokenizer,
    ReferenceModel,
    SpeakerEmbedding,
    references,
)
from cosyvoice_runtime.serving.hosted.tensorrt_llm import SpeechLmModel, TokenReply
from cosyvoice_runtime.serving.hosted.token2wav import WaveModel, decode
from cosyvoice_runtime.serving.not_finite import NotFiniteCount
from cosyvoice_runtime.serving.speech.open_utterances import TextMessage
from cosyvoice_runtime.serving.speech.speech_inputs import SpeechInputs
from cosyvoice_runtime.serving.speech.speech_inputs import outputs as speech_outputs
from cosyvoice_runtime.serving.triton.request import Inputs
from cosyvoice_runtime.serving.triton.schema import SCHEMAS
from cosyvoice_runtime.settings import Settings

TENSORRT = {
    "COSYVOICE_TOKEN2WAV__BACKEND": "tensorrt",
    "COSYVOICE_AUDIO_TOKENIZER__BACKEND": "tensorrt",
    "COSYVOICE_SPEAKER_EMBEDDING__BACKEND": "tensorrt",
}
PROFILES: dict[str, Callable[[], Settings]] = {
    **{
        f"gpu, {engine}": partial(settings_of, "gpu.toml", COSYVOICE_TENSORRT_LLM__ENGINE=engine, **backends)
        for engine, backends in (("torch", {}), ("vllm", {}), ("tensorrt_llm", TENSORRT))
    },
    "cpu": partial(settings_of, "cpu.toml"),
    "cpu, fast": partial(settings_of, "cpu_fast.toml"),
    "cpu, onnx": partial(settings_of, "cpu.toml", COSYVOICE_TOKEN2WAV__BACKEND="onnx"),
}
RECORDING = 0.1 * np.sin(np.arange(16_000) / 20)
SPEECH = {
    "target_text": "Hello.",
    "language": "en",
    "speed": 1.5,
    "seed": 3,
    "sampling_strategy": "ras",
    "top_k": 20,
    "top_p": 0.7,
    "temperature": 0.9,
    "repetition_penalty": 1.1,
    "max_tokens": 100,
    "utterance_id": "0123456789abcdef",
    "text_event": "push",
}
REFERENCE = {
    "reference_wav": RECORDING,
    "reference_wav_len": 15_000,
    "reference_sample_rate": 16_000,
    "reference_text": "Words.",
}
NOT_FINITE = NotFiniteCount(Metrics("tensorrt_llm"), {})
VOCABULARY = MergedVocabulary(text_tokens=1000, speech_rows=6564)
LM = {
    "input_ids": [VOCABULARY.sos_id, 5, 6, VOCABULARY.task_id],
    "input_lengths": 4,
    "request_output_len": 50,
    "end_id": VOCABULARY.speech_offset + 6561,
    "runtime_top_k": 20,
    "runtime_top_p": 0.7,
    "temperature": 0.9,
    "repetition_penalty": 1.1,
    "seed": 3,
    "min_tokens": 2,
    "streaming": True,
    "stop": False,
    "text_open": False,
    "end_text": False,
    "exclude_input_in_output": True,
    "sampling_strategy": "ras",
    "ras_window": 10,
    "ras_threshold": 0.1,
    "self_test": False,
}
WAVE = {
    "utterance_id": "a",
    "speech_tokens": [1, 2, 3],
    "position": 0,
    "last": False,
    "voice_key": "v",
    "noise_seed": 3,
    "speed": 1.5,
    "cushion": 0.5,
    "cancel": False,
    "prompt_speech_tokens": [1, 2],
    "prompt_speech_feat": np.zeros((4, 80)),
    "prompt_spk_embedding": np.zeros(192),
}
EXTRACTOR = {"reference_wav": RECORDING, "reference_wav_len": 15_000}
NOT_READ = {"tensorrt_llm": {"pad_id"}}
"""Accepted because NVIDIA's clients send it."""
NEEDED = {
    "tensorrt_llm": {"input_lengths", "request_output_len"},
    "token2wav": {"speech_tokens", "position", "last", "voice_key", "noise_seed", "speed"},
}
"""Optional only in a request that stops or forgets another one."""


@pytest.fixture(scope="module", params=PROFILES, ids=str)
def profile(request: pytest.FixtureRequest) -> tuple[Settings, dict[str, Any]]:
    settings = PROFILES[request.param]()
    return settings, rendered(settings)


@pytest.fixture(scope="module")
def configs() -> dict[str, Any]:
    return rendered(PROFILES["gpu, torch"]())


@pytest.mark.parametrize("model", MODELS)
def test_triton_reads_the_configuration_and_the_model_its_settings(profile, model):
    settings, configs = profile
    config, section = configs[model], settings.for_model(model)
    assert (config.name, config.backend) == (model, "python")
    parameters = {name: {"string_value": value.string_value} for name, value in config.parameters.items()}
    if model == "cosyvoice2_offline":
        assert parameters == {"log_level": {"string_value": section.log_level}}
    else:
        assert type(section).from_parameters(parameters) == section


@pytest.mark.parametrize("model", MODELS)
def test_ports_are_the_same_in_every_profile(profile, configs, model):
    config = profile[1][model]
    assert list(config.input) == list(configs[model].input)
    assert list(config.output) == list(configs[model].output)
    decoupled = model in ("cosyvoice2", "tensorrt_llm")
    assert config.model_transaction_policy.decoupled == decoupled


@pytest.mark.parametrize("model", MODELS)
def test_configuration_and_schema_agree(configs, model):
    def declared(ports) -> list[tuple[Any, ...]]:
        return [
            (port.name, data_type(port), tuple(port.dims), port.optional, port.allow_ragged_batch)
            for port in ports
        ]

    def of_schema(specs) -> list[tuple[Any, ...]]:
        return [(spec.name, spec.type, spec.dims, spec.optional, spec.ragged) for spec in specs]

    assert declared(configs[model].input) == of_schema(SCHEMAS[model].inputs)
    outputs = [(name, kind, dims) for name, kind, dims, *_ in of_schema(SCHEMAS[model].outputs)]
    assert [(port.name, data_type(port), tuple(port.dims)) for port in configs[model].output] == outputs


@pytest.mark.parametrize("model", ["token2wav", "audio_tokenizer", "speaker_embedding"])
def test_batcher_has_the_limits_of_the_settings(profile, model):
    settings, configs = profile
    section, config = settings.for_model(model), configs[model]
    assert config.max_batch_size == section.max_batch
    batcher = config.dynamic_batching
    assert batcher.default_queue_policy.max_queue_size == section.max_queue_size


def load(model: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"model_of_{model}", TEMPLATES / model / "1" / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("model", MODELS)
def test_model_file_has_what_triton_calls(model):
    made = load(model).TritonPythonModel()
    assert all(callable(getattr(made, name)) for name in ("initialize", "execute", "finalize"))


def read_speech(request: InferenceRequest) -> Any:
    TextMessage.read(Inputs(request))
    return SpeechInputs.read(Inputs(request), SamplingOptions(), 1000, 100)


def read_tokens(request: InferenceRequest) -> Any:
    submitted: list[Any] = []
    model = SpeechLmModel.__new__(SpeechLmModel)
    model.vocabulary = VOCABULARY
    model.reader = RequestReader(VOCABULARY, 100, 1000)
    model.scheduler = SimpleNamespace(submit=lambda read, reply: submitted.append(read))
    model.count, model.not_finite = RequestCount("tensorrt_llm"), NOT_FINITE
    model.execute([request])
    return submitted[0]


def read_reference(request: InferenceRequest) -> Any:
    [reference] = references([request])
    assert not isinstance(reference, Exception)
    return reference


def read_chunk(request: InferenceRequest) -> Any:
    return decode(Inputs(request))


READERS: dict[str, tuple[Callable[[InferenceRequest], Any], list[dict[str, Any]]]] = {
    "cosyvoice2": (
        read_speech,
        [SPEECH | REFERENCE, SPEECH | {"voice": "v", "instruct_text": "Slowly.", "cross_lingual": False}],
    ),
    "tensorrt_llm": (read_tokens, [LM]),
    "audio_tokenizer": (read_reference, [EXTRACTOR]),
    "speaker_embedding": (read_reference, [EXTRACTOR]),
    "token2wav": (read_chunk, [WAVE]),
}
READERS["cosyvoice2_offline"] = READERS["cosyvoice2"]


@pytest.mark.parametrize("model", MODELS)
def test_model_reads_every_declared_input_and_no_other(configs, model, monkeypatch):
    read, requests = READERS[model]
    looked_for: set[str] = set()
    shaped = Inputs.shaped
    monkeypatch.setattr(Inputs, "shaped", lambda self, name: looked_for.add(name) or shaped(self, name))
    for values in requests:
        read(InferenceRequest(tensors(configs[model], values)))
    assert looked_for == {port.name for port in configs[model].input} - NOT_READ.get(model, set())


@pytest.mark.parametrize("model", MODELS)
def test_model_asks_for_nothing_that_is_declared_optional(configs, model):
    read, requests = READERS[model]
    required = {port.name for port in configs[model].input if not port.optional}
    values = {
        name: value for name, value in requests[0].items() if name in required | NEEDED.get(model, set())
    }
    if model == "tensorrt_llm":
        values["self_test"] = True  # in place of input_ids
    read(InferenceRequest(tensors(configs[model], values)))


def sent_tokens(request: InferenceRequest) -> None:
    reply = TokenReply(request, VOCABULARY.speech_offset, RequestCount("tensorrt_llm"), NOT_FINITE)
    reply.send([1, 2, 3], None, rows=np.ones((3, 2), np.float32) / 2)
    reply.send([], FinishReason.STOP, rows=np.ones((0, 2), np.float32))
    reply.finish()


def sent_wave(request: InferenceRequest) -> None:
    model = WaveModel.__new__(WaveModel)
    model.name, model.count = "token2wav", RequestCount("token2wav")
    model.waves = SimpleNamespace(submit=lambda chunk, deliver: deliver(np.zeros(5, np.float32)))
    forget = {"utterance_id": np.array([[b"one"]], np.object_), "cancel": np.array([[True]])}
    request.tensors.update(InferenceRequest(forget).tensors)
    model.execute([request])


def sent(write: Callable[[InferenceRequest], None]) -> list[dict[str, Any]]:
    request = InferenceRequest({})
    write(request)
    return [
        {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}
        for response in request.sender.responses
    ]


def encoded(kind: type[ReferenceModel], features: Array) -> dict[str, Any]:
    """What a model makes of its network's output."""
    return kind.__new__(kind).encoded(features)


FOUND: dict[str, Any] = {"words_by": "attention", "verification": Verification([], 0)}
WRITERS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "cosyvoice2": lambda: [
        speech_outputs(AudioChunk(np.zeros(5, np.float32), 24_000, 0, **FOUND), 25, True, start_character=7),
        speech_outputs(
            AudioChunk(np.zeros(0, np.float32), 24_000, 0, FinishReason.STOP, spoken_tokens=[5, -1], **FOUND),
            token_rate=25,
            tells_tokens=True,
            start_character=7,
        ),
    ],
    "tensorrt_llm": lambda: sent(sent_tokens),
    "audio_tokenizer": lambda: [encoded(AudioTokenizer, np.zeros(3, np.int32))],
    "speaker_embedding": lambda: [encoded(SpeakerEmbedding, np.zeros(192, np.float32))],
    "token2wav": lambda: sent(sent_wave),
}
WRITERS["cosyvoice2_offline"] = WRITERS["cosyvoice2"]


@pytest.mark.parametrize("model", MODELS)
def test_model_sends_every_declared_output_as_declared(configs, model):
    responses = WRITERS[model]()
    assert responses
    for response in responses:
        assert list(problems(configs[model], response)) == []


def test_wrong_output_is_found(configs):
    wrong = {"waveform": np.zeros((1, 5)), "other": np.zeros((1, 5))}
    assert list(problems(configs["cosyvoice2"], wrong)) == [
        "waveform is float64, declared is FP32",
        "other is not declared",
        "finish_reason is not sent",
        "spoken_characters is not sent",
        "start_character is not sent",
        "sample_rate is not sent",
        "token_rate is not sent",
        "spoken_tokens is not sent",
        "words is not sent",
        "verification is not sent",
    ]

"""The library's own engines against its own generation: the same tokens from the same seeds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from coded_engine import CollectingReader

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.errors import EngineFileError, InvalidInput
from cosyvoice_runtime.lm import FinishReason, Prompt, SamplingOptions
from cosyvoice_runtime.lm.cache import PAGE
from cosyvoice_runtime.lm.engines.engine import ENGINES, prepare_engine
from cosyvoice_runtime.lm.scheduler.request import Request
from cosyvoice_runtime.lm.torch.decoder import generate
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.metrics import DIRECTORY_VARIABLE
from cosyvoice_runtime.metrics.page import read_samples
from cosyvoice_runtime.settings import Machine, TensorrtLlmSettings

MACHINE = Machine(cores=1, gpu=False)
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from pathlib import Path

from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.onnx.export import export_lm
from cosyvoice_runtime.lm.engines.engine import prepare_engine
from cosyvoice_runtime.settings import Machine, TensorrtLlmSettings

checkpoint, directory = map(Path, sys.argv[1:])
export_lm(checkpoint, directory, "float32")
settings = TensorrtLlmSettings(
    engine="onnx", engine_dir=directory, weight_format="float32", checkpoint_dir=checkpoint
)
engine = prepare_engine(settings.resolved(Machine(cores=1, gpu=False)))()
engine.add(Prompt([3]), SamplingOptions(seed=1, min_tokens=3, max_tokens=3))
rows = [row for _ in range(3) for row in engine.step()]
print(len(rows), rows[-1].finish_reason.value)
"""


@pytest.fixture(scope="module", params=["torch", "onnx"])
def settings(request: pytest.FixtureRequest, tiny_checkpoint: Path, onnx_export: Path) -> TensorrtLlmSettings:
    """Of each engine, with weights in float32."""
    return TensorrtLlmSettings(
        engine=request.param,
        engine_dir=onnx_export,
        weight_format="float32",
        checkpoint_dir=tiny_checkpoint,
        max_slots=3,
        max_tokens=60,
        max_sequence_tokens=128,
    ).resolved(MACHINE)


@pytest.fixture(scope="module")
def lm(tiny_checkpoint: Path) -> SpeechLM:
    config = load_config(tiny_checkpoint)
    return SpeechLM.from_tensors(config.speech_lm, load_tensors(Layout(tiny_checkpoint), "llm", config))


def test_scheduled_requests_equal_single_generation(settings, lm, make_scheduler):
    requests = [
        Request(Prompt([3, index], prompt_speech=range(index)), options)
        for index, options in enumerate(
            SamplingOptions(strategy, seed=seed, min_tokens=5, max_tokens=20 + seed)
            for seed, strategy in enumerate(["ras", "nucleus", "greedy"] * 3)
        )
    ]
    scheduler = make_scheduler(prepare_engine(settings))
    readers = [CollectingReader() for _ in requests]
    for request, reader in zip(requests, readers, strict=True):
        scheduler.submit(request, reader)
    for request, reader in zip(requests, readers, strict=True):
        assert reader.wait().tokens == generate(lm, request.prompt, request.options)[0]


def test_cancelled_utterance_brings_nothing_more_and_frees_its_slot(settings):
    engine = prepare_engine(settings)()
    options = SamplingOptions(seed=1, min_tokens=50, max_tokens=50)
    first, second = engine.add(Prompt([3]), options), engine.add(Prompt([4]), options)
    assert {row.handle for row in engine.step()} == {first, second}
    engine.cancel(first)
    assert {row.handle for row in engine.step()} == {second}
    for _ in range(settings.max_slots - 1):
        engine.add(Prompt([5]), options)


def test_last_token_comes_with_the_reason(settings):
    engine = prepare_engine(settings)()
    engine.add(Prompt([3]), SamplingOptions(seed=1, min_tokens=2, max_tokens=2))
    rows = [row for _ in range(2) for row in engine.step()]
    assert [(len(row.tokens), row.finish_reason) for row in rows] == [(1, None), (1, FinishReason.LENGTH)]


def test_settings_accept_the_engines_that_are_there_and_no_other(settings):
    for engine in ENGINES:
        assert settings.replace(engine=engine).engine == engine
    accepted = f"one of {', '.join(ENGINES)} or auto"
    with pytest.raises(InvalidInput, match=f"engine: 'sglang' is not accepted; {accepted}"):
        settings.replace(engine="sglang")


def test_cache_that_is_too_small_is_refused(settings):
    """Engine onnx has a slot of the longest for each; with engine torch all share what holds one of them."""
    needed, limit = {
        "onnx": (384, r"engine onnx needs max_slots \* max_sequence_tokens, which is 384"),
        "torch": (128, "at least max_sequence_tokens, which is 128"),
    }[settings.engine]
    message = f"kv_cache_tokens: {needed - 1} is not accepted; {limit}"
    with pytest.raises(InvalidInput, match=message):
        prepare_engine(settings.replace(kv_cache_tokens=needed - 1))
    prepare_engine(settings.replace(kv_cache_tokens=needed))().close()


def test_requests_that_share_few_pages_say_what_they_say_alone(
    settings, lm, make_scheduler, monkeypatch, tmp_path
):
    """Four pages, of which each comes to need three: those that were fed twice are counted."""
    if settings.engine != "torch":
        pytest.skip("engine onnx has a slot for each")
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    requests = [
        Request(Prompt([3, index]), SamplingOptions(seed=index, min_tokens=280, max_tokens=280))
        for index in range(4)
    ]
    small = settings.replace(max_tokens=300, max_sequence_tokens=4 * PAGE, kv_cache_tokens=4 * PAGE)
    scheduler = make_scheduler(prepare_engine(small))
    readers = [CollectingReader() for _ in requests]
    for request, reader in zip(requests, readers, strict=True):
        scheduler.submit(request, reader)
    for request, reader in zip(requests, readers, strict=True):
        assert reader.wait().tokens == generate(lm, request.prompt, request.options)[0]
    scheduler.close()
    found = {sample.name: sample.value for sample in read_samples(tmp_path)}
    assert found["cosyvoice_lm_cache_pages"] == 4
    assert found["cosyvoice_lm_evictions_total"] > 0
    assert found["cosyvoice_lm_recomputed_positions_total"] > 0
    assert found["cosyvoice_lm_cache_pages_in_use"] == 0
    assert found["cosyvoice_lm_requests_without_pages"] == 0


def test_a_cancelled_request_gives_its_pages_back_without_a_step(settings, monkeypatch, tmp_path):
    if settings.engine != "torch":
        pytest.skip("engine onnx has a slot for each")
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    engine = prepare_engine(settings)()
    handle = engine.add(Prompt([3]), SamplingOptions(seed=1, min_tokens=50, max_tokens=50))
    engine.step()
    in_use = [sample for sample in read_samples(tmp_path) if sample.name == "cosyvoice_lm_cache_pages_in_use"]
    assert [sample.value for sample in in_use] == [1]
    engine.cancel(handle)
    in_use = [sample for sample in read_samples(tmp_path) if sample.name == "cosyvoice_lm_cache_pages_in_use"]
    assert [sample.value for sample in in_use] == [0]


def test_sequences_longer_than_the_network_knows_are_refused(settings, lm):
    most = lm.config.max_positions
    changed = settings.replace(max_sequence_tokens=most + 1, kv_cache_tokens=10**6)
    with pytest.raises(InvalidInput, match=f"max_sequence_tokens: {most + 1} .* has {most} positions"):
        prepare_engine(changed)


def test_insisting_on_fused_kernels_without_a_gpu_is_an_error(settings):
    reason = "need an NVIDIA GPU, not cpu" if settings.engine == "torch" else "unless engine is torch"
    with pytest.raises(InvalidInput, match=rf"kernels: 'fused' .*{reason}"):
        prepare_engine(settings.replace(kernels="fused"))


def test_engine_onnx_refuses_files_in_another_format(tiny_checkpoint, onnx_export):
    settings = TensorrtLlmSettings(
        engine="onnx", engine_dir=onnx_export, checkpoint_dir=tiny_checkpoint, weight_format="int8"
    )
    with pytest.raises(EngineFileError, match=r"weight_format was .float32. when built, now .int8."):
        prepare_engine(settings.resolved(MACHINE))


def test_engine_onnx_is_written_and_works_without_torch(tiny_checkpoint, tmp_path):
    """In a process that can't import it."""
    command = [sys.executable, "-c", WITHOUT_TORCH, tiny_checkpoint, tmp_path / "speech_lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3", "length"]

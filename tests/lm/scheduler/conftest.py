"""Schedulers that must leave nothing behind."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from coded_engine import TIMEOUT_S, CodedEngine
from engine_drivers import own_threads

from cosyvoice_runtime.lm import Generation
from cosyvoice_runtime.lm.engines.tensorrt_llm.build import BuildOptions, build
from cosyvoice_runtime.lm.engines.tensorrt_llm.checkpoint import LAYOUTS
from cosyvoice_runtime.lm.engines.tensorrt_llm.convert import ConversionOptions, convert
from cosyvoice_runtime.lm.engines.vllm.export import DTYPES, export
from cosyvoice_runtime.lm.onnx.export import export_lm
from cosyvoice_runtime.lm.scheduler.load_metrics import Load
from cosyvoice_runtime.lm.scheduler.scheduler import Scheduler
from cosyvoice_runtime.settings import Machine, TensorrtLlmSettings
from making import make_checkpoint
from trtllm_fake import FakeTrtllm, install
from vllm_fake import RELEASES, FakeVllm
from vllm_fake import install as install_vllm


class Loads:
    """Waits for a load of the scheduler that was made last, which may stand in a step meanwhile."""

    def __init__(self) -> None:
        self.made: list[Scheduler] = []
        self.told: list[Load] = []

    def __call__(self, load: Load) -> None:
        self.told.append(load)

    def wait_for(self, holds: Callable[[Load], bool]) -> Load:
        deadline = time.monotonic() + TIMEOUT_S
        while not holds(load := self.made[-1].load):
            assert time.monotonic() < deadline, load
            time.sleep(0.002)
        return load


@pytest.fixture
def engine() -> CodedEngine:
    return CodedEngine()


@pytest.fixture
def loads() -> Loads:
    return Loads()


@pytest.fixture
def make_scheduler(loads: Loads) -> Iterator[Callable[..., Scheduler]]:
    """``make_scheduler(open_engine, max_waiting, clock)``, closed after the test."""
    threads = own_threads()

    def make(open_engine, max_waiting=100, **options) -> Scheduler:
        loads.made.append(Scheduler(open_engine, max_waiting, loads, **options))
        return loads.made[-1]

    yield make
    for scheduler in loads.made:
        scheduler.close()
    assert own_threads() <= threads


@pytest.fixture
def scheduler(make_scheduler: Callable[..., Scheduler], engine: CodedEngine) -> Scheduler:
    return make_scheduler(lambda: engine)


@pytest.fixture(scope="session")
def family_checkpoints(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small checkpoint of each family whose speech LM is a Qwen2."""
    other = tmp_path_factory.mktemp("cosyvoice3") / "tiny"
    return {
        "cosyvoice2": tiny_checkpoint,
        "cosyvoice3": make_checkpoint(other, "tiny", seed=0, family="cosyvoice3"),
    }


@pytest.fixture(scope="session")
def lm_checkpoint(request: pytest.FixtureRequest, family_checkpoints: dict[str, Path]) -> Path:
    """That of engines here: of the family by which a test parametrises this, else of CosyVoice2."""
    return family_checkpoints[getattr(request, "param", "cosyvoice2")]


@pytest.fixture
def trtllm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeTrtllm:
    """A stand-in for TensorRT-LLM."""
    return install(monkeypatch, tmp_path / "fake")


@pytest.fixture(scope="session")
def trtllm_engines(lm_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Engine directories by layout, with the weights as they are in the checkpoint."""
    directory = tmp_path_factory.mktemp("trtllm")
    with pytest.MonkeyPatch.context() as patch:
        install(patch, directory / "fake")
        for layout in LAYOUTS:
            options = ConversionOptions(layout, dtype="float32")
            convert(lm_checkpoint, directory / "converted" / layout, options)
            limits = BuildOptions(max_batch_size=8, max_seq_len=256, max_num_tokens=256)
            build(directory / "converted" / layout, directory / layout, limits)
    return {layout: directory / layout for layout in LAYOUTS}


@pytest.fixture(scope="session")
def trtllm_settings(
    lm_checkpoint: Path, trtllm_engines: dict[str, Path]
) -> Callable[..., TensorrtLlmSettings]:
    """``trtllm_settings(layout, **changes)`` for the stand-in and its engines."""

    def make(layout: str, **changes: object) -> TensorrtLlmSettings:
        return _built(
            lm_checkpoint, "tensorrt_llm", trtllm_engines[layout], {"vocabulary": layout, **changes}
        )

    return make


@pytest.fixture(params=RELEASES)
def vllm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakeVllm:
    """A stand-in for each release of vLLM."""
    return install_vllm(monkeypatch, request.param)


@pytest.fixture(scope="session")
def vllm_exports(lm_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Exported directories by dtype."""
    directory = tmp_path_factory.mktemp("vllm")
    for dtype in DTYPES:
        export(lm_checkpoint, directory / dtype, dtype)
    return {dtype: directory / dtype for dtype in DTYPES}


@pytest.fixture(scope="session")
def vllm_settings(lm_checkpoint: Path, vllm_exports: dict[str, Path]) -> Callable[..., TensorrtLlmSettings]:
    """``vllm_settings(**changes)`` for the stand-in and the weights as they are in the checkpoint."""

    def make(**changes: object) -> TensorrtLlmSettings:
        return _built(lm_checkpoint, "vllm", vllm_exports["float32"], changes)

    return make


@pytest.fixture(scope="session")
def onnx_export(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of engine ``onnx`` with weights in float32."""
    directory = tmp_path_factory.mktemp("onnx") / "speech_lm"
    export_lm(tiny_checkpoint, directory, "float32")
    return directory


def _built(
    checkpoint: Path, engine: str, directory: Path, changes: Mapping[str, object]
) -> TensorrtLlmSettings:
    """Settings of an engine in a directory; the changes are not resolved."""
    settings = TensorrtLlmSettings(
        checkpoint_dir=checkpoint,
        engine=engine,
        engine_dir=directory,
        device="cuda:1",
        dtype="float32",
        max_slots=4,
        max_tokens=100,
        max_sequence_tokens=256,
    ).resolved(Machine(cores=1, gpu=True))
    return settings.replace(**changes)


@pytest.fixture
def kept() -> Callable[[], int]:
    """``kept()``: utterances begun in this test whose state is still in memory."""

    def count() -> int:
        gc.collect()
        return sum(type(each) is Generation for each in gc.get_objects())

    before = count()
    return lambda: count() - before

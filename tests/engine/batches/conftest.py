"""Small networks for tests of the wave service, on both runtimes; what its clients get."""

from __future__ import annotations

import pytest
from coded_waves import CodedWaves, FakeClock, OneVoice
from outcomes import Outcomes

from cosyvoice_runtime.engine.runtimes import onnx_runtime, torch_runtime
from cosyvoice_runtime.onnx.session import EstimatorFormats
from cosyvoice_runtime.settings import Machine, Token2WavSettings
from cosyvoice_runtime.token2wav.onnx_export import export_wave
from cosyvoice_runtime.token2wav.token2wav import Token2Wav

PAGES = 24
LOADERS = {"torch": torch_runtime.load_token2wav, "onnx": onnx_runtime.load_token2wav}


@pytest.fixture(scope="session")
def torch_settings(tiny_checkpoint) -> Token2WavSettings:
    given = Token2WavSettings(
        checkpoint_dir=tiny_checkpoint, backend="torch", max_flow_pages=PAGES, ode_steps=3, threads=1
    )
    return given.resolved(Machine(cores=1, gpu=False))


@pytest.fixture(scope="session", params=LOADERS)
def settings(request, torch_settings, tmp_path_factory) -> Token2WavSettings:
    if request.param == "torch":
        return torch_settings
    directory = tmp_path_factory.mktemp("networks")
    export_wave(torch_settings.checkpoint_dir, directory, EstimatorFormats())
    return torch_settings.replace(backend="onnx", backend_dir=directory)


@pytest.fixture(scope="session")
def shared_token2wav(settings) -> Token2Wav:
    return LOADERS[settings.backend](settings)


@pytest.fixture(scope="session")
def torch_token2wav(torch_settings) -> Token2Wav:
    return torch_runtime.load_token2wav(torch_settings)


@pytest.fixture
def token2wav(shared_token2wav) -> Token2Wav:
    """All pages free before and after."""
    assert shared_token2wav.flow.pool.free_pages == PAGES
    shared_token2wav.flow.recomputing = 0
    yield shared_token2wav
    assert shared_token2wav.flow.pool.free_pages == PAGES


@pytest.fixture
def outcomes() -> Outcomes:
    return Outcomes()


@pytest.fixture
def waves() -> CodedWaves:
    return CodedWaves()


@pytest.fixture
def voices() -> OneVoice:
    return OneVoice()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()

"""Small networks for tests of the wave service."""

from __future__ import annotations

import pytest

from cosyvoice_runtime.serving.token2wav.torch_runtime import load_token2wav
from cosyvoice_runtime.settings import Machine, Token2WavSettings
from cosyvoice_runtime.wave.token2wav import Token2Wav

PAGES = 24


@pytest.fixture(scope="session")
def settings(tiny_checkpoint) -> Token2WavSettings:
    given = Token2WavSettings(checkpoint_dir=tiny_checkpoint, max_flow_pages=PAGES, ode_steps=3, threads=1)
    return given.resolved(Machine(cores=1, gpu=False))


@pytest.fixture(scope="session")
def shared_token2wav(settings) -> Token2Wav:
    return load_token2wav(settings)


@pytest.fixture
def token2wav(shared_token2wav) -> Token2Wav:
    """All pages free before and after."""
    assert shared_token2wav.flow.pool.free_pages == PAGES
    shared_token2wav.flow.recomputing = 0
    yield shared_token2wav
    assert shared_token2wav.flow.pool.free_pages == PAGES

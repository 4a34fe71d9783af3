"""The tiny checkpoint, made once per run; properties are tried on the same examples in every run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from cosyvoice_runtime.checkpoint import make_checkpoint

settings.register_profile(
    "suite", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a small checkpoint with random weights, laid out like the published one."""
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny", "tiny", seed=0)

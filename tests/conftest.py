"""The tiny checkpoint, made once per run."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosyvoice_runtime.checkpoint import make_checkpoint


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a small checkpoint with random weights, laid out like the published one."""
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny", "tiny", seed=0)

"""A tiny checkpoint, made once; `checkpoint` is a copy to damage, `listed` one whose checksums tell."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from making import make_checkpoint


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("made") / "tiny", "tiny", seed=7)


@pytest.fixture
def listed(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "listed"))


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(
        shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint", ignore=shutil.ignore_patterns("SHA256SUMS"))
    )

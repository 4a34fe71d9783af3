"""Which process a model of a rendered repository computes in."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("tritonclient.grpc", reason="needs the environment of scripts/environment.py")

from cosyvoice_runtime.settings import Machine, Settings
from cosyvoice_runtime.settings.rendered import guests_of, home_of
from cosyvoice_runtime.settings.repository import render, write

MODEL_REPO = Path(__file__).parents[2] / "model_repo"
GUESTS = ["tensorrt_llm", "audio_tokenizer", "speaker_embedding"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    settings = Settings.read([]).resolved(Machine(cores=2, gpu=False))
    write(render(MODEL_REPO, settings), tmp_path / "repository")
    return tmp_path / "repository"


def test_home_of_a_model_is_what_its_configuration_says(repository):
    assert guests_of(repository) == GUESTS
    assert home_of(repository, "speaker_embedding") == "token2wav"
    assert home_of(repository, "tensorrt_llm") == "token2wav"
    assert home_of(repository, "cosyvoice2") == "cosyvoice2"


def test_model_in_a_repository_without_token2wav_computes_by_itself(repository):
    shutil.rmtree(repository / "token2wav")
    assert home_of(repository, "speaker_embedding") == "speaker_embedding"

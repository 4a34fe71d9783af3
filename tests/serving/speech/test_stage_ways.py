"""How each stage of a rendered repository is called, and what that takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cosyvoice_runtime.metrics import DIRECTORY_VARIABLE
from cosyvoice_runtime.settings import Machine, Settings
from cosyvoice_runtime.settings.repository import render, write

MODEL_REPO = Path(__file__).parents[3] / "model_repo"
STAGES = ("audio_tokenizer", "speaker_embedding", "tensorrt_llm", "token2wav")
PROGRAM = """
import asyncio, sys
from pathlib import Path
from cosyvoice_runtime.serving.speech.load import open_ways

async def open_them() -> None:
    ways = open_ways(Path(sys.argv[1]), "127.0.0.1:9")
    print(*(f"{model}:{type(way).__name__}" for model, way in sorted(ways.items())))
    print(*sorted({"grpc", "tritonclient"} & set(sys.modules)))

asyncio.run(open_them())
"""


def opened(repository: Path, run: Path | None) -> list[str]:
    """Which stages are called by which way, and which libraries of gRPC are imported then.

    Args:
        run: directory of the server's run, which a server by hand lacks.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment |= {} if run is None else {DIRECTORY_VARIABLE: str(run)}
    command = [sys.executable, "-c", PROGRAM, str(repository)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )


def all_by(way: str) -> str:
    return " ".join(f"{model}:{way}" for model in STAGES)


@pytest.mark.parametrize(
    ("given", "supervised", "ways", "libraries"),
    [
        ([], True, all_by("HostCalls"), ""),
        (["audio_tokenizer.process=own"], True,
         all_by("HostCalls").replace("Host", "Grpc", 1), "grpc tritonclient"),
        (["process=own"], True, all_by("GrpcCalls"), "grpc tritonclient"),
        ([], False, all_by("GrpcCalls"), "grpc tritonclient"),
    ],
)  # fmt: skip
def test_only_who_calls_a_stage_through_the_server_imports_grpc(tmp_path, given, supervised, ways, libraries):
    if libraries:
        pytest.importorskip("tritonclient.grpc", reason="needs the environment of scripts/environment.py")
    settings = Settings.read(given).resolved(Machine(cores=2, gpu=False))
    write(render(MODEL_REPO, settings), tmp_path / "repository")
    assert opened(tmp_path / "repository", tmp_path if supervised else None) == [ways, libraries, ""]

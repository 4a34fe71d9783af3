"""A real tritonserver around two tiny models: ``count`` streams numbers, ``chain`` passes them on."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cosyvoice_runtime.settings import ServerSettings
from eventually import eventually

if TYPE_CHECKING:
    from count_stream import CountStream

    from cosyvoice_runtime.supervisor import Server

MODELS = Path(__file__).parent / "model_repo"

if importlib.util.find_spec("tritonclient") is None or importlib.util.find_spec("pytriton") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_report_header() -> list[str]:
    if "collect_ignore_glob" in globals():
        return ["tests/server is left out: it needs the environment of scripts/environment.py"]
    return []


@pytest.fixture
def count() -> Iterator[Callable[..., CountStream]]:
    """``count(server, model, count, pause_ms)`` starts a stream that is closed after the test."""
    from count_stream import CountStream

    streams: list[CountStream] = []

    def start(*arguments: Any, **options: Any) -> CountStream:
        streams.append(CountStream(*arguments, **options))
        return streams[-1]

    yield start
    for stream in streams:
        stream.close()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return Path(shutil.copytree(MODELS, tmp_path / "repository"))


@pytest.fixture
def settings(tmp_path: Path) -> ServerSettings:
    return settings_in(tmp_path)


def settings_in(folder: Path) -> ServerSettings:
    return ServerSettings(
        http_port=0,
        grpc_port=0,
        metrics_port=0,
        model_metrics_port=0,
        log_file=folder / "tritonserver.log",
        entry_models=("chain",),
        open_models=("*",),
        start_timeout_s=600.0,
        probe_timeout_s=60.0,
        probe_interval_s=0.0,
        exit_timeout_s=5.0,
    )


@pytest.fixture
def server(repository: Path, settings: ServerSettings) -> Iterator[Server]:
    from cosyvoice_runtime.supervisor import Server

    with Server(repository, settings) as server:
        yield server


@pytest.fixture(scope="module")
def lasting_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests of a file, which leave it as it was."""
    from cosyvoice_runtime.supervisor import Server

    folder = tmp_path_factory.mktemp("lasting")
    with Server(Path(shutil.copytree(MODELS, folder / "repository")), settings_in(folder)) as server:
        yield server


@pytest.fixture(name="eventually")
def eventually_fixture() -> Callable[..., None]:
    """``eventually(holds, timeout_s)``; see :func:`eventually`."""
    return eventually

"""Real servers around models of model_repo/, with the tiny checkpoint."""

from __future__ import annotations

import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path

import pytest

from eventually import eventually

pytest.importorskip("tritonclient.grpc", reason="needs the environment of scripts/environment.py")

from speaking import FEW_STEPS

from cosyvoice_runtime.settings import Machine, ServerSettings, Settings
from cosyvoice_runtime.settings.repository import HOST, HOSTED, render, write
from cosyvoice_runtime.supervisor import Server

MODEL_REPO = Path(__file__).parents[2] / "model_repo"
ALL_MODELS = sorted(path.parent.name for path in MODEL_REPO.glob("*/config.pbtxt"))
TIMEOUT_S = 180.0
ON_TORCH = {"tensorrt_llm.engine": "torch", "token2wav.backend": "torch"}

RenderModels = Callable[..., Path]
Serve = Callable[..., AbstractContextManager[Server]]
Gauge = Callable[..., float]


@pytest.fixture(scope="session")
def render_models(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> RenderModels:
    """``render_models(names, **{"section.key": value})`` writes a repository with these models."""

    def render_models(names: Iterable[str], **texts: object) -> Path:
        directory = tmp_path_factory.mktemp("models")
        engine = {HOST} if set(names) & set(HOSTED) else set()
        for name in {*names} | engine:
            shutil.copytree(MODEL_REPO / name, directory / "templates" / name)
        # Not by the machine's speed, which a test must not depend on.
        # On torch, as the library that servers are compared with, unless a test says otherwise.
        given = {"cosyvoice2.max_inflight_utterances": 64, "token2wav.ode_steps": FEW_STEPS, **ON_TORCH}
        texts = given | texts
        assignments = [f"{key}={value}" for key, value in texts.items()]
        settings = Settings.read([f"checkpoint_dir={tiny_checkpoint}", *assignments])
        files = render(directory / "templates", settings.resolved(Machine(cores=1, gpu=False)))
        write(files, directory / "repository")
        return directory / "repository"

    return render_models


@pytest.fixture(scope="session")
def serve(render_models: RenderModels) -> Serve:
    """``with serve(names, **{"section.key": value}) as server`` runs these models.

    ``change`` gets the repository before it is served.
    """

    @contextmanager
    def serve(
        names: Iterable[str], change: Callable[[Path], object] = lambda repository: None, **texts: object
    ) -> Iterator[Server]:
        repository = render_models(names, **texts)
        change(repository)
        settings = ServerSettings(
            http_port=0,
            grpc_port=0,
            metrics_port=0,
            model_metrics_port=0,
            log_file=repository.with_name("tritonserver.log"),
            open_models=("*",),
            start_timeout_s=1200.0,
            probe_interval_s=0.0,
            drain_timeout_s=120.0,
        )
        with Server(repository, settings) as server:
            yield server
        assert server.drained

    return serve


def metrics_page(server: Server) -> str:
    """The server's metrics page, as soon as Triton's part of it comes in time."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(f"http://{server.metrics_url}/metrics", timeout=TIMEOUT_S) as page:
                return page.read().decode()
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > deadline:
                raise


def metric(server: Server, name: str, **labels: str) -> float:
    """A number of the server's metrics page: the sum over samples that carry these labels."""
    samples = re.findall(rf"^{name}\{{(.*)\}} (\S+)$", metrics_page(server), re.MULTILINE)
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return sum(float(value) for found, value in samples if all(label in found for label in wanted))


@pytest.fixture(scope="session")
def serve_all(serve: Serve) -> Serve:
    """``with serve_all(**{"section.key": value}) as server`` runs every model of model_repo/."""
    return partial(serve, ALL_MODELS)


@pytest.fixture(name="metric", scope="session")
def metric_fixture() -> Gauge:
    """``metric(server, name, **labels)``; see :func:`metric`."""
    return metric


@pytest.fixture(name="metrics_page", scope="session")
def metrics_page_fixture() -> Callable[[Server], str]:
    """``metrics_page(server)``; see :func:`metrics_page`."""
    return metrics_page


@pytest.fixture(name="eventually", scope="session")
def eventually_fixture() -> Callable[..., None]:
    """``eventually(holds, timeout_s)``; see :func:`eventually`."""
    return eventually

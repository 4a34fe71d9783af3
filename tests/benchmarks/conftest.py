"""One server with fake models for all tests of the benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("tritonclient.grpc", reason="needs the environment of scripts/environment.py")

if TYPE_CHECKING:
    from fake_server import FakeServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    from fake_server import fake_server

    with fake_server(tmp_path_factory.mktemp("benchmarks") / "repository") as running:
        yield running

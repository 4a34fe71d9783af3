"""Who measures how fast the machine is when the entry models start."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.metrics.metrics import DIRECTORY_VARIABLE
from cosyvoice_runtime.serving.speech.admission import Admission
from cosyvoice_runtime.serving.speech.capacity import MOST_LEARNED
from cosyvoice_runtime.serving.speech.model import learn_speed


class Service:
    """Speaks 15 seconds a second, or fails; to several at a time ``of_crowd`` seconds for each."""

    def __init__(self, error: Exception | None = None, alone: float = 15.0, of_crowd: float = 0.0) -> None:
        self.measured, self.crowds = 0, []
        self._error, self._alone, self._of_crowd = error, alone, of_crowd

    async def speed(self, at_once: int = 1) -> float:
        self.measured += 1
        await asyncio.sleep(0)
        if self._error is not None:
            raise self._error
        if at_once == 1:
            return self._alone
        self.crowds.append(at_once)
        return at_once * self._of_crowd


class Stages:
    """Loaded when they are let."""

    def __init__(self, are_loaded: bool = True) -> None:
        self.load = asyncio.Event()
        if are_loaded:
            self.load.set()

    async def loaded(self) -> None:
        await self.load.wait()


STAGES = Stages()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "places"


@pytest.fixture(autouse=True)
def _supervised(monkeypatch, tmp_path):
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))


def test_model_that_takes_the_place_of_a_dead_one_knows_the_speed(file):
    Admission(None, file).capacity.start(30.0)
    service, admission = Service(), Admission(None, file)
    asyncio.run(learn_speed(service, admission, STAGES))
    assert (service.measured, admission.capacity.limit) == (0, 15)


@pytest.mark.parametrize("error", [CosyVoiceError("no voice"), TimeoutError()])
def test_model_starts_with_one_place_when_nothing_can_be_measured(file, error):
    admission = Admission(None, file)
    asyncio.run(learn_speed(Service(error), admission, STAGES))
    assert (admission.capacity.limit, admission.count) == (1, 0)


def test_nothing_is_measured_before_the_stages_are_loaded(file):
    async def start() -> list[int]:
        service, stages, found = Service(), Stages(are_loaded=False), []
        learning = asyncio.ensure_future(learn_speed(service, Admission(None, file), stages))
        for _ in range(9):
            await asyncio.sleep(0)
        found.append(service.measured)
        stages.load.set()
        await learning
        return [*found, service.measured]

    assert asyncio.run(start()) == [0, 1]


def test_speed_is_measured_beside_a_fixed_limit(file):
    service, admission = Service(), Admission(5, file)
    asyncio.run(learn_speed(service, admission, STAGES))
    assert service.measured == 1
    assert admission.capacity.speed > 0
    assert admission.capacity.limit == 5


@pytest.mark.parametrize(
    ("alone", "of_crowd", "crowds", "limit"),
    [
        (3.0, 2.5, [2], 2),
        (15.0, 9.0, [], 7),
        (40.0, 9.0, [20], 90),
        (40.0, 1.0, [20], 20),
        (90.0, 10.0, [32], MOST_LEARNED),
    ],
    ids=["one-at-a-time", "slow", "faster-together", "slower-together", "no-more-than-so-many"],
)
def test_fast_machine_and_one_of_one_client_are_measured_with_several_too(
    file, alone, of_crowd, crowds, limit
):
    service, admission = Service(alone=alone, of_crowd=of_crowd), Admission(None, file)
    asyncio.run(learn_speed(service, admission, STAGES))
    assert (service.crowds, admission.capacity.limit) == (crowds, limit)


def test_without_the_supervisor_nothing_is_measured_while_models_load(file, monkeypatch):
    monkeypatch.delenv(DIRECTORY_VARIABLE)
    service = Service()
    asyncio.run(learn_speed(service, Admission(None, file), STAGES))
    assert service.measured == 0

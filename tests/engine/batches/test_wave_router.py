"""Which device an utterance goes to, with coded networks."""

from __future__ import annotations

import threading

import pytest
from coded_waves import BAD_TOKEN, CodedWaves, OneVoice, chunk, runtime

from cosyvoice_runtime.engine.batches import WaveRouter, WaveScheduler, WaveService

DEVICES = 2
TIMEOUT_S = 120.0


class Device(CodedWaves):
    """Computes when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.go.set()
        self.computing = threading.Event()

    def advance(self, states):
        self.computing.set()
        assert self.go.wait(TIMEOUT_S)
        return super().advance(states)


class Speaker:
    """Sends chunks and waits for what comes of them."""

    def __init__(self, router: WaveRouter) -> None:
        self._router = router

    def send(self, *arguments, **options) -> object:
        done, outcomes = threading.Event(), []
        self._router.submit(
            chunk(*arguments, **options), lambda outcome: (outcomes.append(outcome), done.set())
        )
        assert done.wait(TIMEOUT_S)
        return outcomes[0]


@pytest.fixture
def devices() -> list[Device]:
    return [Device() for _ in range(DEVICES)]


@pytest.fixture
def router(devices):
    services = [WaveService(device, OneVoice(), idle_timeout_s=60) for device in devices]
    router = WaveRouter(
        [
            WaveScheduler(service, runtime(device, 4), 8, 1.0)
            for service, device in zip(services, devices, strict=True)
        ]
    )
    yield router
    for device in devices:
        device.go.set()
    router.close()


@pytest.fixture
def speaker(router) -> Speaker:
    return Speaker(router)


def tokens_of(device: Device) -> list[int]:
    return [token for batch in device.batches for row in batch for token in row]


def test_utterances_spread_and_each_stays_where_it_began(devices, speaker):
    for part in range(3):
        for name, token in (("a", 10), ("b", 20), ("c", 30), ("d", 40)):
            assert speaker.send(name, [token + part], part, last=part == 2).tolist() == [token + part]
    assert sorted(tokens_of(devices[0])) == [10, 11, 12, 30, 31, 32]
    assert sorted(tokens_of(devices[1])) == [20, 21, 22, 40, 41, 42]
    assert not any(device.open_states for device in devices)


def test_new_utterance_goes_to_the_device_with_fewer(devices, speaker):
    for name in "abcd":
        speaker.send(name, [1])
    for name in "ac":  # those of the first device
        speaker.send(name, [1], 1, last=True)
    for name in "ef":
        speaker.send(name, [9])
    assert tokens_of(devices[0]).count(9) == 2


def test_chunk_finds_its_device_while_that_one_computes(devices, router, speaker):
    devices[0].go.clear()
    outcomes: list[object] = []
    router.submit(chunk("a", [1]), outcomes.append)
    assert devices[0].computing.wait(TIMEOUT_S)
    router.submit(chunk("a", [2], 1), outcomes.append)  # returns, though "a" is not open yet
    assert speaker.send("b", [3], last=True).tolist() == [3]
    devices[0].go.set()
    assert speaker.send("a", [4], 2, last=True).tolist() == [4]
    assert [outcome.tolist() for outcome in outcomes] == [[1], [2]]
    assert tokens_of(devices[1]) == [3]


def test_utterance_that_failed_is_unknown_everywhere(devices, speaker):
    speaker.send("a", [1])
    assert str(speaker.send("a", [BAD_TOKEN], 1)).startswith("speech_tokens: 1000")
    assert str(speaker.send("a", [2], 1)).startswith("utterance_id: 'a' is unknown")
    assert not any(device.open_states for device in devices)


def test_cancel_reaches_the_device_of_its_utterance(devices, speaker):
    for name in "ab":
        speaker.send(name, [1])
    speaker.send("b", cancel=True)
    assert [len(device.open_states) for device in devices] == [1, 0]

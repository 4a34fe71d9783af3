"""How long a client may leave unread what it is sent."""

from __future__ import annotations

import asyncio

import pytest

from cosyvoice_runtime.gateway.limits import LARGEST_BUFFER, SLOWEST_BYTES_PER_S, SlowReaderTimeout

LIMIT_S = 60.0


class Hours:
    """A loop's clock that stands still until it is put forward."""

    def __init__(self) -> None:
        self._now_s = 0.0
        asyncio.get_running_loop().time = lambda: self._now_s

    async def pass_by(self, seconds: float) -> None:
        self._now_s += seconds
        for _ in range(3):
            await asyncio.sleep(0)


def given_up_after(written: int, size: int) -> float:
    """Seconds after which a write that is not taken is given up, to a tenth."""

    async def measure() -> float:
        hours, given_up = Hours(), asyncio.Event()
        timeout = SlowReaderTimeout(LIMIT_S, "somebody", given_up.set)
        if written:
            with timeout.during(written):
                pass
        waited_s = 0.0
        with timeout.during(size):
            while not given_up.is_set():
                await hours.pass_by(0.1)
                waited_s += 0.1
        return waited_s

    return asyncio.run(measure())


@pytest.mark.parametrize(
    ("written", "size", "more_s"),
    [
        (0, 0, 0.0),
        (0, 10 * SLOWEST_BYTES_PER_S, 10.0),
        (10 * SLOWEST_BYTES_PER_S, 5 * SLOWEST_BYTES_PER_S, 15.0),
        (100 * LARGEST_BUFFER, 0, LARGEST_BUFFER / SLOWEST_BYTES_PER_S),
    ],
)
def test_client_may_take_what_slow_playing_takes_beside_the_limit(written: int, size: int, more_s: float):
    assert given_up_after(written, size) == pytest.approx(LIMIT_S + more_s, abs=0.2)


def test_nobody_is_given_up_between_writes_or_after_one_that_failed():
    async def check() -> bool:
        hours, given_up = Hours(), asyncio.Event()
        timeout = SlowReaderTimeout(LIMIT_S, "somebody", given_up.set)
        for _ in range(3):
            with timeout.during(0):
                await hours.pass_by(LIMIT_S - 1.0)
            await hours.pass_by(3600.0)
        with pytest.raises(ConnectionError), timeout.during(0):
            raise ConnectionError
        await hours.pass_by(3600.0)
        return given_up.is_set()

    assert not asyncio.run(check())

"""Limits of a key over two fronts, whatever happens to one of them and to Redis."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cosyvoice_front.keys import digest
from eventually import eventually
from tests.fleet.front import Front
from tests.fleet.listeners import LONG, SHORT, Listener

KEYS = [f"sk-{number}" for number in range(10)]
READER = "sk-reader"
"""A key without limits."""
ALONE = re.compile(r"^cosyvoice_front_counted_alone_total ([\d.]+)$", re.MULTILINE)
TIMEOUT_S = 300.0


@pytest.fixture(scope="module")
def key_lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys.txt"
    lines = [f"{key} sha256:{digest(key)}" for key in KEYS]
    lines.append(f"reader sha256:{digest(READER)} requests_per_minute=0 streams=0")
    path.write_text("\n".join(lines))
    return path


@contextmanager
def counting(fleet, key_lines: Path, **limits: int) -> Iterator[list[Front]]:
    """Two fronts that count together."""
    with fleet.fronts(
        2, fleet.balancer.grpc_url, api_keys_file=key_lines, limits_url=fleet.redis.url, **limits
    ) as fronts:
        yield fronts


def together(fronts: list[Front], ask: Callable[[str], list[int]]) -> list[int]:
    """Statuses that Redis decided; another key is tried where it was not heard in time, on a busy machine."""
    for key in KEYS:
        eventually(lambda: all(map(asks_redis, fronts)))
        before = [counted_alone(front) for front in fronts]
        statuses = ask(key)
        if [counted_alone(front) for front in fronts] == before:
            return statuses
    raise AssertionError("Redis was never heard in time")


def asks_redis(front: Front) -> bool:
    """Whether the front counts in Redis."""
    before = counted_alone(front)
    body = json.dumps({"model": "tts-1", "input": SHORT}).encode()
    call(front, "/v1/audio/read", body)
    return counted_alone(front) == before


def counted_alone(front: Front) -> float:
    """Requests that the front has counted by itself."""
    found = ALONE.search(call(front, "/metrics"))
    assert found
    return float(found[1])


def call(front: Front, path: str, body: bytes | None = None) -> str:
    headers = {"Authorization": f"Bearer {READER}", "Content-Type": "application/json"}
    with urllib.request.urlopen(
        urllib.request.Request(front.url + path, body, headers), timeout=TIMEOUT_S
    ) as page:
        return page.read().decode()


def test_three_requests_a_minute_are_three(fleet, key_lines):
    with counting(fleet, key_lines, requests_per_minute=3) as fronts:
        asked = together(fronts, lambda key: [Listener(front, SHORT, key).end() for front in fronts * 3])
        assert asked == [200] * 3 + [429] * 3


def test_two_streams_are_two_and_a_killed_front_loses_its_own(fleet, key_lines):
    with counting(fleet, key_lines, streams_per_key=2) as fronts:
        one, other = fronts

        def ask(key: str) -> list[int]:
            held = [Listener(one, LONG, key) for _ in range(2)]
            begun = [listener.begin() for listener in held]
            refused = [Listener(front, SHORT, key).end() for front in fronts]
            for listener in held:
                listener.leave()
            eventually(lambda: not any(fleet.speaking))
            return [*begun, *refused, *(Listener(front, SHORT, key).end() for front in fronts)]

        assert together(fronts, ask) == [200, 200, 429, 429, 200, 200]
        held = [Listener(one, LONG, KEYS[-1]) for _ in range(2)]
        assert [listener.begin() for listener in held] == [200, 200]
        one.kill()
        eventually(lambda: Listener(other, SHORT, KEYS[-1]).end() == 200)


def test_speech_goes_on_without_redis_and_limits_come_back_with_it(fleet, key_lines):
    with counting(fleet, key_lines, requests_per_minute=2) as fronts:
        fleet.redis.kill()
        alone = [Listener(front, SHORT, KEYS[-1]).end() for front in [*fronts] * 3]
        assert alone == [200] * 4 + [429] * 2  # each front's own two
        fleet.redis.start()
        eventually(lambda: all(map(asks_redis, fronts)))
        fleet.redis.freeze()
        assert [Listener(front, SHORT, KEYS[-2]).end() for front in fronts] == [200, 200]
        fleet.redis.thaw()
        asked = together(fronts, lambda key: [Listener(front, SHORT, key).end() for front in fronts * 2])
        assert asked == [200] * 2 + [429] * 2

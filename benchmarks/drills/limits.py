"""Limits of a key over two fronts, whatever happens to one of them and to Redis."""

from __future__ import annotations

import json
import secrets
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cosyvoice_front.key_line import digest
from drills.deaths import while_six_listen
from drills.fleet import Fleet
from drills.front import Front
from drills.listeners import LONG, SHORT, TIMEOUT_S, Listener
from drills.outcome import Outcome
from drills.waiting import wait_until

TRIES = 10
READER = "sk-reader"
"""A key without limits."""
ALONE = "cosyvoice_front_counted_alone_total"


@contextmanager
def counting(fleet: Fleet, folder: Path, keys: Sequence[str], **limits: int) -> Iterator[list[Front]]:
    """Two fronts that count together, with these limits of a key."""
    file = folder / "keys.txt"
    lines = [f"{key} sha256:{digest(key)}" for key in keys]
    lines.append(f"reader sha256:{digest(READER)} requests_per_minute=0 streams=0")
    file.write_text("\n".join(lines), "utf-8")
    url = fleet.balancer.grpc_url
    with fleet.fronts(2, url, api_keys_file=file, limits_url=fleet.redis.url, **limits) as fronts:
        yield fronts


def fresh_keys() -> list[str]:
    """Keys that nothing has been counted for."""
    return [f"sk-{secrets.token_hex(8)}" for _ in range(TRIES)]


def three_a_minute(fleet: Fleet, folder: Path) -> Outcome:
    """Whether a key has three requests a minute, not three with each front."""
    keys = fresh_keys()
    with counting(fleet, folder, keys, requests_per_minute=3) as fronts:
        statuses = together(
            fronts, keys, lambda key: [Listener(front, SHORT, key).end() for front in fronts * 3]
        )
    return _expected(statuses, [200] * 3 + [429] * 3)


def two_streams(fleet: Fleet, folder: Path) -> Outcome:
    """Whether a key has two streams, those of a front that leaves them without a word aside."""
    keys = fresh_keys()
    with counting(fleet, folder, keys, streams_per_key=2) as fronts:
        one, other = fronts

        def ask(key: str) -> list[int]:
            held = [Listener(one, LONG, key) for _ in range(2)]
            begun = [listener.begin() for listener in held]
            refused = [Listener(front, SHORT, key).end() for front in fronts]
            for listener in held:
                listener.leave()
            fleet.wait_for_silence()
            return [*begun, *refused, *(Listener(front, SHORT, key).end() for front in fronts)]

        outcome = _expected(together(fronts, keys, ask), [200, 200, 429, 429, 200, 200])
        held = [Listener(one, LONG, keys[-1]) for _ in range(2)]
        assert [listener.begin() for listener in held] == [200, 200]
        one.kill()
        outcome.took_s["until a killed front's are free"] = wait_until(
            lambda: Listener(other, SHORT, keys[-1]).end() == 200, "streams of a killed front stay taken"
        )
    return outcome


def redis_away(fleet: Fleet, folder: Path) -> Outcome:
    """Whether six listeners hear nothing of a Redis that is away, and the fronts count alone meanwhile."""
    keys = fresh_keys()
    with counting(fleet, folder, keys, requests_per_minute=2) as fronts:
        took_s: dict[str, float] = {}
        alone: list[int] = []

        def away() -> None:
            fleet.redis.kill()
            alone.extend(Listener(front, SHORT, keys[-1]).end() for front in [*fronts] * 3)
            fleet.redis.start()
            took_s["until they count together"] = wait_until(
                lambda: all(map(asks_redis, fronts)), "the fronts count alone"
            )
            fleet.redis.freeze()
            alone.extend(Listener(front, SHORT, keys[-2]).end() for front in fronts)
            fleet.redis.thaw()

        outcome = while_six_listen(fleet, fronts, away, key=READER)
        outcome.took_s = took_s
        asked = together(
            fronts, keys, lambda key: [Listener(front, SHORT, key).end() for front in fronts * 2]
        )
    # Each front's own two of the first key, and one each of the second.
    return _expected([*alone, *asked], [200] * 4 + [429] * 2 + [200] * 2 + [200] * 2 + [429] * 2, outcome)


def together(fronts: Sequence[Front], keys: Sequence[str], ask: Callable[[str], list[int]]) -> list[int]:
    """Statuses that Redis decided; another key is tried where it was not heard in time, on a busy machine."""
    for key in keys:
        wait_until(lambda: all(map(asks_redis, fronts)), "the fronts count alone")
        before = [front.number(ALONE, key=READER) for front in fronts]
        statuses = ask(key)
        if [front.number(ALONE, key=READER) for front in fronts] == before:
            return statuses
    raise TimeoutError("Redis was never heard in time")


def asks_redis(front: Front) -> bool:
    """Whether the front counts in Redis."""
    before = front.number(ALONE, key=READER)
    body = json.dumps({"model": "tts-1", "input": SHORT}).encode()
    headers = {"Authorization": f"Bearer {READER}", "Content-Type": "application/json"}
    asked = urllib.request.Request(f"{front.url}/v1/audio/read", body, headers)
    urllib.request.urlopen(asked, timeout=TIMEOUT_S).close()
    return front.number(ALONE, key=READER) == before


def _expected(statuses: list[int], expected: list[int], outcome: Outcome | None = None) -> Outcome:
    """The outcome with a complaint where the statuses are others."""
    outcome = outcome or Outcome()
    outcome.requests += len(statuses)
    outcome.refused += statuses.count(429)
    outcome.faults += [] if statuses == expected else [f"statuses {statuses} in place of {expected}"]
    return outcome

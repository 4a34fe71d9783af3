"""Refused clients come back when there is room: openai's own package, with its own two retries."""

from __future__ import annotations

import json

import openai
import pytest

from cosyvoice_client import UnavailableError
from cosyvoice_front.errors import overloaded
from fake_upstream import FakeUpstream, tone
from raw_http import ASKED, send
from wire_client import asked, open_cartesia, open_omni

FULL = "12 utterances are in progress, the limit; try again in {:g} s"


class FullUntil(FakeUpstream):
    """A server that has room from a time on, by a clock that goes on while clients sleep.

    Attributes:
        told_s: to everybody who comes before.
    """

    def __init__(self) -> None:
        super().__init__([tone(0.1)])
        self.now = 0.0
        self.room_at = 0.0
        self.told_s = 0.1

    async def speak(self, request, request_id="", name=None):
        self.error = UnavailableError(FULL.format(self.told_s)) if self.now < self.room_at else None
        async for chunk in super().speak(request, request_id, name):
            yield chunk


@pytest.fixture
def upstream():
    return FullUntil()


@pytest.fixture
def stock(front, upstream, monkeypatch):
    """openai's client as it is installed, which sleeps by the server's clock."""

    def sleep(seconds: float) -> None:
        upstream.now += seconds

    monkeypatch.setattr("openai._base_client.time.sleep", sleep)
    with openai.OpenAI(base_url=f"{front.url}/v1", api_key="none") as client:
        yield client


@pytest.mark.parametrize("told_s", [0.1, 0.4, 2.5, 5.0, 12.0])
@pytest.mark.parametrize("room_at", [0.05, 1.0, 3.0, 5.0, 9.9, 10.0])
def test_two_retries_reach_room_within_ten_seconds(stock, upstream, room_at, told_s):
    upstream.room_at, upstream.told_s = room_at, told_s
    assert stock.audio.speech.create(**ASKED).content
    assert room_at <= upstream.now <= max(10.0, room_at) + 2 * told_s


def test_room_that_comes_soon_is_not_waited_for_long(stock, upstream):
    upstream.room_at = 2.0
    assert stock.audio.speech.create(**ASKED).content
    assert upstream.now == pytest.approx(3.1)


def test_server_that_stays_full_is_told_after_two_retries(stock, upstream):
    upstream.room_at = 1000.0
    with pytest.raises(openai.InternalServerError, match="the limit"):
        stock.audio.speech.create(**ASKED)
    assert len(upstream.requests) == 3


@pytest.mark.parametrize("limit", ["max_streams", "streams_per_key"])
def test_limits_of_the_front_are_waited_for_as_long(start_front, upstream, limit):
    front = start_front(**{limit: 1})
    held = front.app.state.front.limits.place("everybody", 0)
    front.wait(held.__aenter__())
    found = [refused(front, {"x-stainless-retry-count": count}) for count in ("0", "1")]
    front.wait(held.__aexit__(None, None, None))
    assert found == ["4000", "8000"]


def refused(front, headers, path="/v1/audio/speech", body=None):
    content = json.dumps(body or ASKED).encode()
    answer = send(front, path=path, body=content, **headers)
    assert answer.status in (429, 503)
    milliseconds = answer.headers["retry-after-ms"]
    assert int(answer.headers["retry-after"]) == -(-int(milliseconds) // 1000)
    return milliseconds


@pytest.mark.parametrize(
    ("count", "told_s", "wait_ms"),
    [
        (None, 0.1, "100"),
        (None, 2.5, "2500"),
        ("0", 0.1, "3100"),
        ("0", 0.3, "3300"),
        ("0", 3.0, "3000"),
        ("0", 17.5, "17500"),
        ("1", 0.1, "7100"),
        ("1", 8.0, "8000"),
        ("5", 0.1, "7100"),
        ("many", 0.1, "7100"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/audio/speech", "/tts/bytes"])
def test_time_to_come_back_follows_the_retries_that_are_counted(
    front, upstream, path, count, told_s, wait_ms
):
    upstream.room_at, upstream.told_s = 1.0, told_s
    headers = {"Cartesia-Version": "2026-03-01"} | ({"X-Stainless-Retry-Count": count} if count else {})
    wav = {"container": "wav", "encoding": "pcm_s16le", "sample_rate": 24_000}
    cartesia = {"model_id": "sonic", "transcript": "Hi.", "output_format": wav}
    body = cartesia if path == "/tts/bytes" else ASKED
    assert refused(front, headers, path, body) == wait_ms


def test_sockets_say_when_to_come_back(front, upstream, monkeypatch):
    def full(*_arguments):
        raise overloaded("full", 2500)

    monkeypatch.setattr(upstream, "speak_text", full)
    with open_cartesia(front) as wire:
        wire.send(asked())
        assert wire.error()["retry_after_ms"] == 2500
    with open_omni(front) as wire:
        wire.send({"type": "session.config"}, {"type": "input.text", "text": "Hi."}, {"type": "input.done"})
        assert wire.error()["retry_after_ms"] == 2500


def test_error_that_does_not_pass_has_no_time(front):
    with open_cartesia(front) as wire:
        wire.send("{}")
        assert "retry_after_ms" not in wire.error()

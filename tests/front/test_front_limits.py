"""How much a key may ask for, counted in one process."""

from __future__ import annotations

import pytest

from cosyvoice_front.errors import invalid, overloaded
from places import Places

FULL = overloaded("2 utterances are in progress", 2500)


@pytest.fixture
def places(request):
    opened = Places(**request.param)
    yield opened
    opened.close()


def limited(**limits):
    return pytest.mark.parametrize("places", [limits], indirect=True)


@limited(requests_per_minute=2)
def test_requests_of_a_minute_are_counted_for_each_key(places):
    for _ in range(2):
        places.hold()
        places.clock.now += 10
    refused = places.refusal()
    assert (refused.status, refused.code, refused.retry_after_ms) == (429, "rate_limit_exceeded", 40_000)
    places.hold("bert")
    places.clock.now += 40
    places.hold()
    assert places.refusal().retry_after_ms == 10_000


@limited(streams_per_key=1)
def test_streams_at_a_time_are_counted_for_each_key(places):
    place = places.hold()
    assert places.refusal().status == 429
    others = places.hold("bert")
    places.leave(place)
    assert places.limits.streams == len([others])
    places.hold()


@limited(characters_per_day=25)
def test_characters_of_a_day_are_counted_for_each_key(places):
    places.hold()
    places.hold()
    refused = places.refusal()
    assert "5 of 25 characters" in str(refused)
    assert refused.retry_after_ms == (86_400 - 100) * 1000
    places.hold(characters=5)
    places.hold("bert")
    places.clock.now += 86_400
    places.hold()


@limited(requests_per_minute=1, characters_per_day=10)
def test_refused_request_counts_for_nothing(places):
    places.refusal(characters=11)
    places.hold()
    assert places.limits.streams == 1


@limited(requests_per_minute=1, characters_per_day=10)
def test_request_that_the_server_refuses_counts_for_nothing(places):
    for _ in range(3):
        places.leave(places.hold(), FULL)
    places.hold()
    assert places.refusal().status == 429


@limited(requests_per_minute=1)
def test_request_that_the_server_refuses_for_its_own_fault_counts(places):
    places.leave(places.hold(), invalid("input", "input: there is no text."))
    assert places.refusal().status == 429


@limited(characters_per_day=10)
def test_request_of_yesterday_that_the_server_refuses_gives_nothing_back_today(places):
    places.clock.now += 86_400 - 130
    place = places.hold()
    places.clock.now += 40
    places.hold(characters=8)
    places.leave(place, FULL)
    assert "2 of 10 characters" in str(places.refusal())


@limited(characters_per_day=10)
def test_speech_that_breaks_off_after_a_minute_has_used_its_characters(places):
    place = places.hold()
    places.clock.now += 61
    places.leave(place, FULL)
    assert "0 of 10 characters" in str(places.refusal())


@limited(max_streams=2)
def test_all_together_have_a_limit(places):
    held = [places.hold("anna"), places.hold("bert")]
    refused = places.refusal("carl")
    assert places.limits.streams == len(held)
    assert (refused.status, refused.code, refused.retry_after_ms) == (503, "overloaded", 1000)

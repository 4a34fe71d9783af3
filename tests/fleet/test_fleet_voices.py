"""Voices that clients send to one front, and that every server speaks with through another one."""

from __future__ import annotations

from drills import names, stores


def test_a_voice_is_there_after_a_second_and_gone_after_two(fleet, fronts_with_voices):
    name = f"brief-{fronts_with_voices[0].name}"
    assert names.come_and_go(fleet, fronts_with_voices, name).faults == []


def test_of_twenty_that_want_a_name_at_once_one_has_it(fleet, fronts_with_voices):
    name = f"wanted-{fronts_with_voices[0].name}"
    assert names.one_of_twenty(fleet, fronts_with_voices, name).faults == []


def test_a_bucket_that_is_away_costs_voices_alone_that_were_not_spoken_with_and_comes_back(
    fleet, fronts_with_voices
):
    name = fronts_with_voices[0].name
    assert stores.bucket_away(fleet, fronts_with_voices, name).faults == []

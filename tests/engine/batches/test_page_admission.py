"""Utterances begin while those in progress are sure of pages, and wait otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from coded_pages import EACH, PAGES, Room, Usual
from coded_waves import BLOCK, chunk

from cosyvoice_runtime.engine.batches.job import WaveJob
from cosyvoice_runtime.engine.batches.pages import (
    BETWEEN_S,
    FEWEST_PAGES,
    LONGEST_WAIT_S,
    PAGES_AHEAD,
    PAGES_OF_FIRST,
    PAGES_OF_NEXT,
    SCARCE,
    SHORT,
    SOON_LACKING_S,
    SOON_S,
    PageAdmission,
)
from cosyvoice_runtime.engine.batches.utterances import Speaker


def jobs(names: str, **options) -> list[WaveJob]:
    """One a second of first chunks."""
    return [WaveJob(chunk(name, [1], **options), print, float(at)) for at, name in enumerate(names)]


def held(room: Room, new: list[WaveJob], now: float = 0.0) -> str:
    waiting = PageAdmission(room).held(new, now)
    return "".join(job.chunk.utterance_id for job in new if job in waiting)


@pytest.mark.parametrize(
    ("pages_left", "waiting"),
    [
        (PAGES_AHEAD + EACH - 1, "abc"),
        (PAGES_AHEAD + EACH, "bc"),
        (PAGES_AHEAD + 2 * EACH, "c"),
        (PAGES, ""),
    ],
)
def test_as_many_begin_as_there_are_pages_for(pages_left, waiting):
    assert held(Room(pages_left=pages_left), jobs("abc")) == waiting


@pytest.mark.parametrize(
    ("spoken", "pages_left", "waiting"),
    [
        (0, 14, ""),  # three with ten pages each: 0.6 of that is 18, of which two first chunks have four
        (0, 13, "b"),
        (0, 7, "ab"),
        (9, 5, ""),  # the one in progress has nearly all of its own
        (9, 4, "b"),
    ],
)
def test_those_who_have_just_begun_are_sure_of_what_others_hold_on_average(spoken, pages_left, waiting):
    room = Room(
        pages_left=pages_left + 2 * PAGES_OF_FIRST, usual_pages=Usual(in_progress=10), spoken_pages=spoken
    )
    assert held(room, jobs("ab")) == waiting


def test_the_most_urgent_begin():
    new = jobs("abc")
    assert held(Room(pages_left=PAGES_AHEAD + EACH), new[::-1]) == "cb"


def test_a_voice_takes_pages_once():
    room = Room(pages_left=PAGES_AHEAD + 2 * EACH + 5, voices={"known": 5})
    assert held(room, jobs("abc")) == "c"
    room.pages_left -= 1
    assert held(room, jobs("abc")) == "bc"


def test_somebody_begins_where_nobody_is_in_progress():
    assert held(Room(speaking=0, pages_left=0), jobs("abc")) == "bc"


def test_whoever_has_waited_for_long_begins_one_at_a_time():
    openings, new = PageAdmission(Room(pages_left=0)), jobs("abc")
    start = LONGEST_WAIT_S + 3
    assert len(openings.held(new, LONGEST_WAIT_S - 0.1)) == 3
    for moment in (start, start + BETWEEN_S):  # it is still the one while it has not begun
        assert openings.held(new, moment) == set(new[1:])
    assert openings.held(new[1:], start + 0.5) == set(new[1:])
    assert openings.held(new[1:], start + BETWEEN_S) == set(new[2:])


def test_whoever_is_due_first_of_those_who_have_waited_for_long_begins():
    """Turns go by deadlines: somebody who can wait would be let in and never be served."""
    patient = WaveJob(chunk("patient", [1], cushion_s=3600.0), print, 3600.0)
    new = [patient, *jobs("a")]
    assert held(Room(pages_left=0), new, LONGEST_WAIT_S) == "patient"


def test_a_listener_who_gets_all_at_once_has_waited_since_it_came():
    new = [WaveJob(chunk("whole", [1], cushion_s=8.0), print, 8.0)]
    assert held(Room(pages_left=0), new, LONGEST_WAIT_S - 0.1) == "whole"
    assert held(Room(pages_left=0), new, LONGEST_WAIT_S) == ""


def test_nobody_waits_to_be_told_that_a_voice_is_not_known():
    room = Room(pages_left=PAGES_AHEAD + EACH, unknown="nobody's")
    unknown = WaveJob(chunk("unknown", [1], voice_key="nobody's"), print, -1.0)
    assert held(room, [unknown, *jobs("ab")]) == "b"


@pytest.mark.parametrize("pages", [0, FEWEST_PAGES - 1])
def test_few_pages_in_all_hold_nobody_back(pages):
    assert held(Room(num_pages=pages, pages_left=0), jobs("abc")) == ""


def test_the_fewer_pages_the_sooner_those_in_progress_end():
    room = Room()
    openings = PageAdmission(room)
    assert openings.soon_s() == math.inf
    room.pages_left = int(SHORT * PAGES) - 1
    assert openings.soon_s() == SOON_S
    room.pages_left = 0
    assert openings.held(jobs("a"), 0.0)
    assert openings.soon_s() == SOON_LACKING_S
    room.pages_left = PAGES
    assert openings.soon_s() == SOON_LACKING_S
    room.pages_left = 0
    openings.held([], 0.0)
    assert openings.soon_s() == SOON_S


SCARCE_PAGES = int(SCARCE * PAGES) - 1
RICH_S, POOR_S = 2 * SOON_LACKING_S, SOON_LACKING_S / 2


@dataclass
class Speaks:
    """An utterance in progress.

    Attributes:
        blocks: of its chunk that waits; 0 if none does.
        cushion_s: that its listener has to play.
        pages, lost: that it holds, and that it has lost.
        last: with the chunk it ends.
    """

    blocks: int = 0
    cushion_s: float = RICH_S
    pages: int = 1
    lost: int = 0
    last: bool = True

    def job(self, number: int) -> WaveJob:
        tokens = [0] * (BLOCK * self.blocks)
        made = chunk(str(number), tokens, BLOCK, self.last, cushion_s=self.cushion_s)
        return WaveJob(made, print, self.cushion_s, number)


def saving(*speaks: Speaks, left: int = SCARCE_PAGES, of_one: int = 0, idle: bool = False) -> str:
    """Who does, of utterances by the order of their coming."""
    speakers = [Speaker(str(number), number, each.pages, each.lost) for number, each in enumerate(speaks)]
    jobs = [each.job(number) for number, each in enumerate(speaks) if each.blocks]
    found = PageAdmission(Room(pages_left=left, usual_pages=Usual(at_end=of_one))).saving(
        jobs, lambda: speakers, BLOCK, 0.0, idle
    )
    return "".join(sorted(job.chunk.utterance_id for job in found))


def test_all_go_on_while_half_of_the_pages_are_left():
    given = [Speaks(PAGES) for _ in range(3)]
    assert saving(*given, left=int(SCARCE * PAGES)) == ""
    assert saving(*given) == "012"


def test_later_ones_leave_pages_to_the_ends_of_earlier_ones():
    """Which take a page more than their chunks have blocks."""
    given = Speaks(4), Speaks(3), Speaks(3)
    assert saving(*given, left=13) == ""
    assert saving(*given, left=12) == "2"
    assert saving(*given, left=8) == "12"
    assert saving(*given, left=4) == "012"


def test_whoever_has_no_chunk_that_waits_just_now_is_sure_of_pages_too():
    given = Speaks(pages=2), Speaks(3)
    assert saving(*given, left=9, of_one=7) == ""
    assert saving(*given, left=8, of_one=7) == "1"
    assert saving(*given[::-1], left=8, of_one=7) == ""


def test_an_end_that_nobody_knows_is_that_of_others():
    young, old = Speaks(1, pages=1, last=False), Speaks(1, pages=4, last=False)
    assert saving(young, young, left=8, of_one=5) == ""
    assert saving(young, young, left=7, of_one=5) == "1"
    assert saving(old, young, left=6, of_one=5) == ""
    assert saving(old, young, left=5, of_one=5) == "1"  # two for the old one, whatever others have


def test_somebody_goes_on_where_nothing_is_under_way():
    given = Speaks(pages=2), Speaks(9), Speaks(9)
    assert saving(*given, left=5) == "12"
    assert saving(*given, left=5, idle=True) == "2"
    assert saving(Speaks(2), Speaks(9), left=5, idle=True) == "1"


def test_whoever_runs_dry_goes_on_while_there_are_pages_at_all():
    """Beside those that others take now, and not beside all that they will take."""
    poor = Speaks(2, POOR_S)
    assert saving(Speaks(9), poor, left=2) == "0"
    assert saving(Speaks(9), poor, left=1) == "01"
    assert saving(Speaks(3), poor, left=5) == ""
    assert saving(Speaks(3), poor, left=4) == "1"
    assert saving(poor, poor, left=3) == "1"
    assert saving(poor, Speaks(1), left=4) == "1"


def test_one_turn_takes_no_more_than_its_largest_part():
    poor = Speaks(3 * PAGES_OF_NEXT, POOR_S)
    assert saving(poor, left=PAGES_OF_NEXT) == ""
    assert saving(poor, left=PAGES_OF_NEXT - 1) == "0"


def test_pages_that_were_lost_are_wanted_again():
    assert saving(Speaks(4), Speaks(1, lost=1), left=8) == ""
    assert saving(Speaks(4), Speaks(1, lost=2), left=8) == "1"
    assert saving(Speaks(1, POOR_S, pages=0, lost=3), left=4) == ""
    assert saving(Speaks(1, POOR_S, pages=0, lost=4), left=4) == "0"
    unknown = Speaks(1, pages=0, lost=3, last=False)
    assert saving(unknown, left=5, of_one=5) == ""
    assert saving(unknown, left=4, of_one=5) == "0"


def test_cancels_and_utterances_that_are_not_in_progress_save_nothing():
    openings = PageAdmission(Room(pages_left=0))
    cancel = WaveJob(chunk("0", cancel=True), print, RICH_S)
    segment = WaveJob(chunk("segment", [0], continues=True, cushion_s=RICH_S), print, RICH_S)
    unknown = WaveJob(chunk("nobody's", [0], 25, cushion_s=RICH_S), print, RICH_S)
    speakers = [Speaker("0", 0, 5, 0), Speaker("1", 1, 5, 0)]
    assert openings.saving([cancel, segment, unknown], lambda: speakers, BLOCK, 0.0) == set()


def test_where_there_are_no_pages_nobody_saves_any():
    openings = PageAdmission(Room(pages_left=0, num_pages=0))
    assert openings.saving([Speaks(9).job(0)], lambda: [Speaker("0", 0, 0, 0)], BLOCK, 0.0) == set()


def test_what_waits_is_shown_when_it_changes():
    shown = []
    room = Room(pages_left=0)
    openings = PageAdmission(room, shown.append)
    for new in ("", "ab", "ba", "a", ""):
        openings.held(jobs(new), 0.0)
    assert shown == [2, 1, 0]


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        ({}, True),
        ({"cushion_s": 8.0}, True),
        ({"position": 25}, False),
        ({"cancel": True}, False),
        ({"continues": True}, False),
    ],
)
def test_what_begins(options, begins):
    assert WaveJob(chunk("a", [1], **options), print, 0.0).begins == begins


def test_what_is_launched_has_begun():
    job = WaveJob(chunk("a", [1, 2]), print, 0.0)
    job.launch(1)
    assert not job.begins

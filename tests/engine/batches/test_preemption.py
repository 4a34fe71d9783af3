"""Where pages are short, those who came last give theirs up, and all hear what they hear alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from coded_waves import FakeClock
from spoken import alone, chunks_of, prompt_tensors, speech_tokens

from cosyvoice_runtime.engine.batches import VoiceCache, WaveService
from cosyvoice_runtime.engine.batches.pages import SILENT_S
from cosyvoice_runtime.engine.batches.voices import UsualPages
from cosyvoice_runtime.settings import Token2WavSettings

TOLERANCE = 2e-3
"""Of the waveform, full scale 1: batching changes roundings, which the running phase adds up."""
NAMES = "abc"
TOKENS = {name: speech_tokens(120, seed) for seed, name in enumerate(NAMES)}
ENDS = (90, 105, 120)
"""Three pages beside the voice's, one more, and two more."""
ENOUGH = 14


@pytest.fixture(scope="session")
def settings(torch_settings: Token2WavSettings) -> Token2WavSettings:
    """Who gives up pages is decided above what computes; test_two_on_a_cpu has few pages of the other."""
    return torch_settings


class Speakers:
    """Utterances that came one after the other, of one voice.

    Attributes:
        heard: samples of each so far.
        waiting: whose chunks are queued.
    """

    def __init__(self, token2wav) -> None:
        self.token2wav = token2wav
        self.voices = VoiceCache(token2wav.flow, limit=2)
        self.clock = FakeClock()
        self.service = WaveService(token2wav, self.voices, idle_timeout_s=600, clock=self.clock)
        self.waiting: list[str] = []
        self.service.queued_in(lambda: self.waiting)
        self.prompt = prompt_tensors(token2wav, 60)
        self.heard: dict[str, list[np.ndarray]] = {name: [] for name in NAMES}
        self._taken: list[int] = []
        self._chunks = {name: chunks_of(name, TOKENS[name], ENDS, "v", self.prompt) for name in NAMES}

    def launch(self, *names: str):
        """Begin with the next chunk of each; what waits for its samples."""
        wait = self.service.launch([self._chunks[name].pop(0) for name in names])

        def wait_for_all() -> None:
            for name, outcome in zip(names, wait(), strict=True):
                assert isinstance(outcome, np.ndarray), outcome
                self.heard[name].append(outcome)

        return wait_for_all

    def speak(self, *names: str) -> None:
        self.launch(*names)()

    def leave(self, pages: int) -> None:
        """Have only so many pages left."""
        pool = self.token2wav.flow.pool
        pool.release(self._taken)
        self._taken = pool.acquire(pool.free_pages - pages)

    def lost(self) -> str:
        return "".join(speaker.name for speaker in self.service.speakers() if speaker.lost_pages)

    def close(self) -> None:
        self.service.close()
        self.token2wav.flow.pool.release(self._taken)

    def assert_whole(self) -> None:
        for name in NAMES:
            expected = alone(self.token2wav, self.prompt, TOKENS[name])
            np.testing.assert_allclose(np.concatenate(self.heard[name]), expected, atol=TOLERANCE, rtol=0)


@pytest.fixture
def speakers(token2wav) -> Iterator[Speakers]:
    """Three of whom each has one chunk behind it, and no page is left."""
    speakers = Speakers(token2wav)
    for name in NAMES:
        speakers.speak(name)
    speakers.leave(0)
    yield speakers
    speakers.close()


def test_the_latest_gives_up_pages_for_an_earlier_one_and_has_them_again(speakers):
    speakers.speak("b")
    assert speakers.lost() == "c"
    assert speakers.service.usage().recomputes == 1
    speakers.leave(ENOUGH)
    speakers.speak("a", "c")
    assert speakers.lost() == ""
    speakers.speak("a", "b", "c")
    speakers.assert_whole()


def test_nobody_gives_up_pages_for_a_later_one(speakers):
    speakers.speak("c")
    assert speakers.lost() == "c"
    speakers.speak("a", "b")  # with the pages that it had, and then those of b
    assert "a" not in speakers.lost()
    speakers.leave(ENOUGH)
    speakers.speak("a", "b", "c")
    speakers.assert_whole()


def test_as_many_give_up_theirs_as_it_takes(speakers):
    speakers.speak("a")
    assert speakers.lost() == "c"
    speakers.leave(0)
    speakers.speak("a")
    assert speakers.lost() == "bc"
    speakers.leave(ENOUGH)
    speakers.speak("b", "c")
    speakers.speak("b", "c")
    speakers.assert_whole()


def test_one_that_is_under_way_keeps_its_pages(speakers):
    speakers.leave(1)
    under_way = speakers.launch("c")
    speakers.speak("a")
    assert speakers.lost() == "b"
    under_way()
    speakers.leave(ENOUGH)
    speakers.speak("a", "b", "c")
    speakers.speak("b")
    speakers.assert_whole()


def test_one_whose_earlier_part_is_under_way_gives_no_pages_before_that_has_ended(speakers, monkeypatch):
    """The device may write them still, and another lane's turn would have them at once."""
    free: list[int] = []
    flow = speakers.token2wav.flow
    settle = type(flow).settle

    def settled() -> None:
        free.append(flow.free_pages)
        settle(flow)

    monkeypatch.setattr(flow, "settle", settled)
    speakers.leave(1)
    under_way = speakers.launch("c")
    further = speakers.launch("c")
    assert free[:1] == [0]  # nothing was free before it was waited for what is under way
    under_way()
    further()
    speakers.leave(ENOUGH)
    speakers.speak("a", "b")
    speakers.speak("a", "b")
    speakers.assert_whole()


def test_the_earliest_of_a_turn_has_the_pages_that_are_left_whatever_its_row(speakers):
    speakers.leave(1)
    speakers.speak("c", "b", "a")  # a has the one page, b that which c gives up, and c none
    assert speakers.lost() == "c"
    speakers.leave(ENOUGH)
    speakers.speak("c", "a", "b")
    speakers.assert_whole()


def test_who_shares_a_turn_with_an_earlier_one_takes_nothing_from_those_before_it(speakers):
    speakers.leave(1)
    speakers.speak("c", "a")  # which has the page that is left
    assert speakers.lost() == "c"
    speakers.leave(ENOUGH)
    speakers.speak("a", "b", "c")
    speakers.speak("b")
    speakers.assert_whole()


def test_nobody_gives_up_pages_that_are_not_enough(speakers):
    speakers.leave(ENOUGH - 2)
    speakers.speak("b")
    speakers.speak("b")
    speakers.token2wav.give_up(speakers.service._utterances.get("a").state)
    speakers.leave(0)
    speakers.speak("a")  # which takes the three that it had and one more, and c has three
    assert speakers.lost() == "a"
    speakers.leave(ENOUGH)
    speakers.speak("a", "c")
    speakers.speak("c")
    speakers.assert_whole()


def test_one_without_pages_gives_none_and_is_not_counted_again(speakers):
    speakers.speak("b")
    assert speakers.service.usage().recomputes == 1
    speakers.leave(0)
    speakers.speak("a")
    assert (speakers.lost(), speakers.service.usage().recomputes) == ("bc", 2)
    speakers.leave(0)
    speakers.speak("a")
    assert speakers.service.usage().recomputes == 2 + 1  # a itself: nobody else has any
    speakers.leave(ENOUGH)
    speakers.speak("b", "c")
    speakers.speak("c")
    speakers.assert_whole()


def test_those_whom_nobody_calls_for_give_their_pages_to_later_ones(speakers):
    speakers.leave(1)
    speakers.clock.now += SILENT_S - 1.0
    speakers.speak("c")
    speakers.leave(0)
    speakers.clock.now += 2.0
    speakers.waiting.append("a")  # whose next chunk is there
    speakers.speak("c")
    assert speakers.lost() == "b"
    speakers.waiting.clear()
    speakers.clock.now += SILENT_S + 1.0
    speakers.leave(1)
    speakers.speak("b")
    assert speakers.lost() == "a"
    speakers.leave(ENOUGH)
    speakers.speak("a", "b")
    speakers.speak("a")
    speakers.assert_whole()


def test_those_who_were_called_lately_give_nothing_to_later_ones(speakers):
    speakers.clock.now += SILENT_S - 1.0
    speakers.speak("c")
    assert speakers.lost() == "c"
    speakers.leave(ENOUGH)
    speakers.speak("a", "b", "c")
    speakers.speak("a", "b")
    speakers.assert_whole()


def test_what_utterances_hold_at_their_ends_is_learned(speakers):
    flow, usual, expected = speakers.token2wav.flow, speakers.voices.usual_pages, UsualPages()
    speakers.leave(ENOUGH)
    for name in NAMES:
        assert (usual.at_end, usual.in_progress) == (expected.at_end, expected.in_progress)
        speakers.speak(name)
        held = speakers.voices.spoken_pages
        assert held == flow.num_pages - flow.free_pages - speakers.voices.pages
        speakers.speak(name)
        expected.learn(6)  # 180 tokens are eight pages, of which the voice has two


def test_who_was_never_heard_teaches_nothing(speakers):
    speakers.leave(ENOUGH)
    speakers.voices.usual_pages = usual = UsualPages(pages=7.0, squared=900.0)
    speakers.voices.release(speakers.voices.acquire("v", None))
    assert vars(usual) == vars(UsualPages(pages=7.0, squared=900.0))

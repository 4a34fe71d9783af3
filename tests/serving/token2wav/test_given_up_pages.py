"""Where pages are short, those who came last give theirs up, and all hear what they hear alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from spoken import alone, chunks_of, prompt_tensors, speech_tokens

from cosyvoice_runtime.serving.token2wav import VoiceCache, WaveService
from cosyvoice_runtime.serving.token2wav.voices import NEWEST, USUAL_TOKENS

TOLERANCE = 2e-3
"""Of the waveform, full scale 1: batching changes roundings, which the running phase adds up."""
NAMES = "abc"
TOKENS = {name: speech_tokens(120, seed) for seed, name in enumerate(NAMES)}
ENDS = (90, 105, 120)
"""Three pages beside the voice's, one more, and two more."""
ENOUGH = 14


class Speakers:
    """Utterances that came one after the other, of one voice.

    Attributes:
        heard: samples of each so far.
    """

    def __init__(self, token2wav) -> None:
        self.token2wav = token2wav
        self.voices = VoiceCache(token2wav.flow, limit=2)
        self.service = WaveService(token2wav, self.voices, max_utterances=16, idle_timeout_s=60)
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
        return "".join(name for name in NAMES if self.service.lost_pages(name))

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


def test_what_an_utterance_holds_at_its_end_is_learned(speakers):
    flow = speakers.token2wav.flow
    assert speakers.voices.pages_of_one == flow.prefix_pages(USUAL_TOKENS)
    speakers.leave(ENOUGH - 2)
    speakers.speak("a")
    assert speakers.voices.spoken_pages == flow.num_pages - flow.free_pages - speakers.voices.pages
    mean = USUAL_TOKENS
    for name in NAMES:
        while len(speakers.heard[name]) < len(ENDS):
            speakers.speak(name)
        mean += NEWEST * (len(TOKENS[name]) - mean)
        assert speakers.voices.pages_of_one == flow.prefix_pages(round(mean))

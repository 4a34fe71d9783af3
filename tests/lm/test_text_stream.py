"""Feeding order of streamed text, as a table of ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.lm.prompt import PromptSegment, Table
from cosyvoice_runtime.lm.text_stream import StreamState, TextStream

TEXT = list(range(100, 200))
SPEECH = list(range(30))


def flat(parts: list[PromptSegment] | None) -> list[int | str]:
    """Ids in order; control ids by name."""
    assert parts is not None
    names = ("sos", "task")
    return [names[i] if table is Table.CONTROL else i for table, ids in parts for i in ids]


def speak(stream: TextStream, token: int = 9) -> int:
    """Draw the same speech token until the block is full, then the fill marker; number of tokens."""
    count = 0
    while not stream.must_fill:
        stream.accept(token)
        count += 1
    stream.accept(FILL)
    return count


FILL = 72


@pytest.fixture
def stream(config: SpeechLMConfig) -> TextStream:
    assert config.fill_id == FILL
    return TextStream(config)


def test_nothing_is_fed_before_a_block_of_text(stream: TextStream) -> None:
    stream.push(TEXT[:4])
    assert not stream.ready
    assert stream.take() is None
    stream.push(TEXT[4:5])
    assert flat(stream.take()) == ["sos", *TEXT[:5]]
    assert stream.state is StreamState.DECODING


def test_blocks_of_five_text_and_fifteen_speech(stream: TextStream) -> None:
    stream.push(TEXT[:12])
    feeds = []
    for _ in range(2):
        feeds.append(flat(stream.take()))
        assert speak(stream) == 15
    assert feeds == [["sos", *TEXT[:5]], TEXT[5:10]]
    assert stream.take() is None
    stream.end()
    assert flat(stream.take()) == [*TEXT[10:12], "task"]
    assert stream.state is StreamState.FINISHING
    assert not stream.must_fill


def test_early_fill_marker_starts_the_next_block(stream: TextStream) -> None:
    stream.push(TEXT[:10])
    stream.take()
    stream.accept(1)
    stream.accept(FILL)
    assert flat(stream.take()) == TEXT[5:10]
    assert speak(stream) == 15


def test_prompt_is_interleaved_and_its_last_block_completed(config: SpeechLMConfig) -> None:
    stream = TextStream(config, TEXT[:7], SPEECH[:20])
    stream.push(TEXT[7:8])
    assert stream.take() is None
    stream.push(TEXT[8:12])
    assert flat(stream.take()) == ["sos", *TEXT[:5], *SPEECH[:15], *TEXT[5:10], *SPEECH[15:20]]
    assert speak(stream) == 10


def test_prompt_of_whole_blocks_is_followed_by_text(config: SpeechLMConfig) -> None:
    stream = TextStream(config, TEXT[:5], SPEECH[:15])
    stream.push(TEXT[5:7])
    assert stream.take() is None
    stream.push(TEXT[7:10])
    assert flat(stream.take()) == ["sos", *TEXT[:5], *SPEECH[:15], *TEXT[5:10]]
    assert speak(stream) == 15


def test_prompt_alone_does_not_start_speech(config: SpeechLMConfig) -> None:
    stream = TextStream(config, TEXT[:10], SPEECH[:20])
    assert not stream.ready


def test_final_text_is_fed_with_the_task(stream: TextStream) -> None:
    stream.push(TEXT[:6])
    stream.take()
    speak(stream, token=33)
    stream.end()
    assert flat(stream.take()) == [TEXT[5], "task"]


def test_text_that_ends_within_the_prompt(config: SpeechLMConfig) -> None:
    stream = TextStream(config, TEXT[:6], SPEECH[:30])
    stream.push(TEXT[6:8])
    stream.end()
    rest = SPEECH[15:30]
    assert flat(stream.take()) == ["sos", *TEXT[:5], *SPEECH[:15], *TEXT[5:8], "task", *rest]


def test_short_text_has_the_layout_of_a_whole_prompt(config: SpeechLMConfig) -> None:
    stream = TextStream(config, TEXT[:2], SPEECH[:30])
    stream.push(TEXT[2:4])
    stream.end()
    assert flat(stream.take()) == ["sos", *TEXT[:4], "task", *SPEECH]


@given(
    pieces=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    num_prompt_text=st.integers(0, 12),
    num_prompt_speech=st.integers(0, 30),
)
def test_everything_is_fed_once_and_in_order(
    config: SpeechLMConfig, pieces: list[int], num_prompt_text: int, num_prompt_speech: int
) -> None:
    text = list(range(100, 100 + num_prompt_text + sum(pieces)))
    speech = list(range(num_prompt_speech))
    stream = TextStream(config, text[:num_prompt_text], speech)
    fed: list[PromptSegment] = []
    at = num_prompt_text
    for size in pieces:
        stream.push(text[at : at + size])
        at += size
        while (feed := stream.take()) is not None:
            fed += feed
            speak(stream)
    stream.end()
    while stream.state is not StreamState.FINISHING:
        fed += stream.take() or []
        if stream.state is StreamState.DECODING:
            speak(stream)
    assert [i for table, ids in fed for i in ids if table is Table.TEXT] == text
    assert [i for table, ids in fed for i in ids if table is Table.SPEECH] == speech
    assert [i for table, ids in fed for i in ids if table is Table.CONTROL] == [0, 1]

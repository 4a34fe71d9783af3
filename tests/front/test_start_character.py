"""Speech that begins amid its text, events that tell how far it has come, and silences that are asked for."""

from __future__ import annotations

import base64
import dataclasses

import numpy as np
import pytest
from test_front_keys import write_keys

from cosyvoice_client import AudioChunk
from cosyvoice_client.words import TimedWord
from decoded import decode, events
from fake_upstream import FakeUpstream
from raw_http import ask

TEXT = "Hello there. How are you? Fine."
RATE = 24_000


def spoken(start: int | None = None):
    """Three segments of a loudness of their own, the second of which ends with no samples."""

    async def speak(_self, request, request_id="", name=None):
        _self.requests.append(request)
        told = [(0.1, "", None), (0.1, "stop", 12), (0.2, "", None), (0.0, "stop", 25), (0.3, "stop", 31)]
        for level, reason, characters in told:
            samples = np.resize(np.float32([level, -level]), 3 * RATE // 10 if level else 0)
            yield AudioChunk(samples, 0.0, reason, characters, token_rate=25, start_character=start)

    return speak


@pytest.fixture
def three(monkeypatch, upstream, front):
    monkeypatch.setattr(FakeUpstream, "speak", spoken())
    return front


def test_fields_go_to_the_server_and_others_are_not_sent(front, upstream):
    fields = {"paragraph_pause_s": 1.5, "sentence_pause_s": 0.25, "start_character": 7}
    assert ask(front, input=TEXT, **fields).status == 200
    assert ask(front, input=TEXT).status == 200
    given, plain = upstream.requests
    assert {name: getattr(given, name) for name in fields} == fields
    assert {getattr(plain, name) for name in fields} == {None}


def test_an_event_tells_what_is_spoken_before_it(three):
    heard, told = b"", []
    found = events(ask(three, input=TEXT, response_format="pcm", stream_format="sse").body)
    for event in found:
        if "spoken_characters" in event:
            seconds = len(heard) / 2 / RATE
            told.append((event["type"].rpartition(".")[2], event["spoken_characters"], seconds))
        heard += base64.b64decode(event.get("audio", ""))
    assert told == [("delta", 12, 0.6), ("delta", 25, 0.9), ("done", 31, 1.2)]
    assert found[-1]["usage"]["input_tokens"] == len(TEXT)


@pytest.mark.parametrize("response_format", ["pcm", "mp3"])
@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_a_header_tells_where_speech_begins(monkeypatch, front, response_format, stream_format):
    asked = {"input": TEXT, "response_format": response_format, "stream_format": stream_format}
    monkeypatch.setattr(FakeUpstream, "speak", spoken(12))
    assert ask(front, start_character=15, **asked).headers["x-start-character"] == "12"
    monkeypatch.setattr(FakeUpstream, "speak", spoken())
    assert "x-start-character" not in ask(front, **asked).headers


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"start_character": -1}, "start_character"),
        ({"start_character": 2.5}, "start_character"),
        ({"start_character": len(TEXT)}, "start_character"),
        ({"paragraph_pause_s": 10.5}, "paragraph_pause_s"),
        ({"sentence_pause_s": -0.5}, "sentence_pause_s"),
    ],
)
def test_what_can_not_be_is_refused(front, upstream, fields, param):
    answer = ask(front, input=TEXT, **fields)
    assert (answer.status, answer.error["param"]) == (400, param)
    assert upstream.requests == []


def test_turns_have_no_character_to_begin_with(front, upstream):
    turns = [{"voice": "alloy", "text": "Hello."}]
    answer = ask(front, input=None, voice=None, turns=turns, start_character=2)
    assert (answer.status, answer.error["param"]) == (400, "start_character")
    assert "turns" in answer.error["message"]
    assert upstream.requests == []


def test_characters_before_the_start_count_for_no_key(start_front, tmp_path):
    keys = tmp_path / "keys"
    write_keys(keys, anna="sk-anna")
    front = start_front(api_keys_file=keys, characters_per_day=12)
    asked = {"input": TEXT, "stream_format": "sse", "response_format": "pcm"}
    answer = ask(front, "sk-anna", start_character=25, **asked)
    assert events(answer.body)[-1]["usage"]["input_tokens"] == 6
    assert ask(front, "sk-anna", start_character=25, **asked).status == 200
    assert ask(front, "sk-anna", start_character=25, **asked).status == 429


def test_words_end_with_their_segments(three):
    answer = ask(three, input=TEXT, stream_format="sse", word_timestamps=True)
    words = [word for event in events(answer.body) for word in event.get("words", ())]
    assert [word["word"] for word in words] == TEXT.split()
    ends = {word["word"]: word["end_s"] for word in words}
    assert (ends["there."], ends["you?"]) == (pytest.approx(0.6, abs=0.03), pytest.approx(0.9, abs=0.03))


def speaks(monkeypatch, words: list[str], begins: int | None) -> None:
    """Have the server time words, a tenth of a second each."""

    async def speak(_self, request, request_id="", name=None):
        timed = [TimedWord(word, place / 10, place / 10 + 0.1) for place, word in enumerate(words)]
        chunk = AudioChunk(np.zeros(RATE, np.float32), 0.0, "stop", 9, words=timed, words_by="attention")
        yield dataclasses.replace(chunk, start_character=begins)

    monkeypatch.setattr(FakeUpstream, "speak", speak)


TIMED = {"stream_format": "sse", "word_timestamps": True}


def told(front, **fields) -> list[tuple[str, float]]:
    found = events(ask(front, **TIMED | fields).body)
    return [(word["word"], word["start_s"]) for event in found for word in event.get("words", ())]


def test_words_from_a_character_on_count_from_where_the_speech_begins(monkeypatch, front):
    speaks(monkeypatch, ["How", "are", "you?"], begins=12)
    assert told(front, input=TEXT, start_character=15) == [("How", 0.0), ("are", 0.1), ("you?", 0.2)]


def test_chinese_words_from_a_character_on_are_those_of_the_text_there(monkeypatch, front):
    """A word of one character before them does not count as their beginning."""
    text, rest = "中。中国人说中文。", "中国人说中文。"
    speaks(monkeypatch, list(rest), begins=None)
    whole = told(front, input=rest, word_unit="word")
    assert len(whole[0][0]) > 1
    speaks(monkeypatch, list(rest), begins=2)
    assert told(front, input=text, start_character=3, word_unit="word") == whole


def test_a_text_of_a_hundred_thousand_characters_is_taken(start_front, upstream):
    front = start_front(max_text_characters=100_000)
    text = "Hello there. " * 7_692
    answer = ask(front, input=text, response_format="pcm")
    assert answer.status == 200
    assert len(decode(answer.body, "pcm")) == len(upstream.samples)
    assert upstream.requests[0].text == text
    turns = [{"voice": "alloy", "text": text[:9_000]}] * 2
    answer = ask(front, input=None, voice=None, turns=turns)
    assert (answer.status, answer.error["param"]) == (400, "turns")
    assert "at most 10000" in answer.error["message"]
    answer = ask(front, input=text + "Hello.")
    assert (answer.status, answer.error["code"]) == (400, "string_above_max_length")
    for fields in ({}, {"target_lufs": -16}, {"target_lufs": -16, "stream": False}):
        answer = ask(front, input=text, **fields)
        assert answer.status == (400 if "stream" in fields else 200)
    assert answer.error["param"] == "target_lufs"

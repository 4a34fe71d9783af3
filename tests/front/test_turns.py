"""Turns of several speakers in a request: what is asked of the server, what is refused, and by which name."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from test_front_keys import write_keys

from cosyvoice_client import AudioChunk, RefusedError
from decoded import decode, events
from fake_upstream import FakeUpstream, tone
from front_server import RunningFront, running_front
from raw_http import Answer, ask, begin, send
from voice_uploads import AnalysingUpstream, upload

ANNA = {"voice": "alloy", "text": "Hello."}
BEN = {"voice": {"id": "ben"}, "text": "<speak>Hi <voice name='carl'>you.</voice></speak>", "speed": 3}


def say(front: RunningFront, *turns: Any, key: str | None = None, **fields: Any) -> Answer:
    given = {"input": None, "voice": None, "turns": list(turns), "response_format": "pcm"} | fields
    return ask(front, key, **given)


def test_turns_are_one_request_with_the_names_of_its_voices(front, upstream):
    fields = {"turn_pause_s": 0.5, "instructions": "Slowly.", "seed": 3}
    answer = say(front, ANNA, {**BEN, "instructions": "Softly."}, **fields)
    assert answer.status == 200
    [request] = upstream.requests
    assert request.turns == [ANNA, {"voice": "ben", "text": BEN["text"], "instructions": "Softly."}]
    assert (request.text, request.voice, request.reference) == ("", None, None)
    assert (request.turn_pause_s, request.instruct_text, request.seed) == (0.5, "Slowly.", 3)
    assert request.text_voices == {"alloy": "", "ben": "ben", "carl": "carl"}
    assert len(decode(answer.body, "pcm")) == len(upstream.samples)


def test_a_pause_is_sent_where_one_is_asked_for_alone(front, upstream):
    assert say(front, ANNA).status == 200
    assert upstream.requests[0].turn_pause_s is None
    assert "turn_pause_s" not in upstream.requests[0].tensors()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": "Hi."}, "input"),
        ({"voice": "alloy"}, "voice"),
        ({"ref_audio": "AAAA"}, "ref_audio"),
        ({"turns": []}, "turns"),
        ({"turns": "Hi."}, "turns"),
        ({"turns": [ANNA] * 201}, "turns"),
        ({"turns": [ANNA, "Hi."]}, "turns[1]"),
        ({"turns": [ANNA, {"voice": "alloy"}]}, "turns[1].text"),
        ({"turns": [{"text": "Hi."}]}, "turns[0].voice"),
        ({"turns": [{"voice": 1, "text": "Hi."}]}, "turns[0].voice"),
        ({"turns": [ANNA, {**ANNA, "text": " "}]}, "turns[1].text"),
        ({"turns": [ANNA, {**ANNA, "instructions": 7}]}, "turns[1].instructions"),
        ({"turns": [{**ANNA, "text": "a" * 51}]}, "turns[0].text"),
        ({"turns": [{**ANNA, "text": "a" * 26}] * 2}, "turns"),
        ({"turn_pause_s": 3.5}, "turn_pause_s"),
        ({"turn_pause_s": "long"}, "turn_pause_s"),
    ],
)
def test_what_is_wrong_is_named_with_its_turn(start_front, upstream, fields, param):
    answer = say(start_front(max_text_characters=50), ANNA, **fields)
    assert (answer.status, answer.error["param"]) == (400, param)
    assert answer.error["message"].startswith(f"{param}: ")
    assert upstream.requests == []


def test_an_input_is_still_needed_without_turns(front):
    answer = ask(front, input=None)
    assert (answer.status, answer.error["message"]) == (400, "input: it is missing.")


@pytest.mark.parametrize(
    ("message", "status", "param", "code"),
    [
        ("turns[1].voice: 'ben' is not accepted; one of a", 404, "turns[1].voice", "voice_not_found"),
        ("turns[0].text: '?' is not accepted; words", 400, "turns[0].text", None),
        ("turn_pause_s: 4 is not accepted; 0 to 3", 400, "turn_pause_s", None),
    ],
)
def test_what_the_server_refuses_of_a_turn_is_named_with_it(front, upstream, message, status, param, code):
    upstream.error = RefusedError(message, "invalid_argument")
    answer = say(front, ANNA, BEN)
    assert (answer.status, answer.error["param"], answer.error["code"]) == (status, param, code)
    assert answer.error["message"] == message


def test_a_voice_of_somebody_else_is_none_for_a_turn(tmp_path, resources):
    upstream = AnalysingUpstream(tmp_path / "voices")
    keys = write_keys(tmp_path / "keys", anna="sk-anna", bert="sk-bert")
    settings = {"api_keys_file": keys, "voices_dir": tmp_path / "voices"}
    front = resources.enter_context(running_front(upstream, **settings))
    assert upload(front).status == 200
    asked = len(upstream.requests)
    turns = [ANNA, {"voice": "mine", "text": "Hi."}, {"voice": "mine", "text": "<voice name='mine'/>Hi."}]
    assert say(front, *turns, key="sk-anna").status == 200
    assert upstream.requests[-1].text_voices == {"alloy": "", "mine": "mine"}
    answer = say(front, *turns, key="sk-bert")
    assert (answer.status, answer.error["param"]) == (404, "turns[1].voice")
    assert answer.error["code"] == "voice_not_found"
    assert len(upstream.requests) == asked + 1


def test_turns_count_with_all_their_characters(start_front, tmp_path):
    keys = tmp_path / "keys"
    write_keys(keys, anna="sk-anna")
    front = start_front(api_keys_file=keys, characters_per_day=20)
    assert say(front, ANNA, {**ANNA, "text": "Hi, there."}, key="sk-anna").status == 200
    assert say(front, ANNA, key="sk-anna").status == 429


def test_the_last_event_tells_when_each_turn_ends(front, upstream, monkeypatch):
    async def speak(_self, request, request_id="", name=None):
        yield AudioChunk(tone(0.3), 0.0, "", token_rate=25)
        yield AudioChunk(tone(0.2), 0.0, "stop", token_rate=25)
        yield AudioChunk(tone(0.5), 0.0, "stop", spoken_characters=6, token_rate=25)
        yield AudioChunk(tone(0.75), 0.0, "stop", spoken_characters=12, token_rate=25)

    monkeypatch.setattr(FakeUpstream, "speak", speak)
    done = events(say(front, ANNA, BEN, stream_format="sse").body)[-1]
    assert done["turns"] == [{"voice": "alloy", "end_s": 1.0}, {"voice": "ben", "end_s": 1.75}]
    assert done["usage"]["input_tokens"] == len(ANNA["text"]) + len(BEN["text"])
    assert "turns" not in events(ask(front, stream_format="sse").body)[-1]


def test_who_leaves_ends_all_turns(front, upstream):
    upstream.gates = asyncio.Semaphore(0)
    with begin(front, input=None, voice=None, turns=[ANNA, ANNA]) as connection:
        assert b"200 OK" in connection.recv(4096)
    front.wait_until(lambda: upstream.cancelled == 1 and front.streams == 0)


def test_turns_are_not_read_as_one_text_is(front):
    answer = send(front, path="/v1/audio/read", body=json.dumps({"turns": [ANNA]}).encode())
    assert (answer.status, answer.error["param"]) == (400, "turns")


def words_of(answer: Answer) -> list[tuple[str, str]]:
    found = [each for each in events(answer.body) if each["type"] == "speech.audio.words"]
    words = [word for each in found for word in each["words"]]
    times = [second for word in words for second in (word["start_s"], word["end_s"])]
    assert times == sorted(times)
    return [(word["word"], word["voice"]) for word in words]


def test_each_word_is_told_with_its_speaker_within_the_turn_s_audio(front, monkeypatch):
    async def speak(_self, request, request_id="", name=None):
        yield AudioChunk(tone(0.4), 0.0, "", token_rate=25)
        yield AudioChunk(tone(0.4), 0.0, "stop", spoken_characters=12, token_rate=25)
        yield AudioChunk(tone(0.5), 0.0, "stop", token_rate=25)
        yield AudioChunk(tone(0.5), 0.0, "stop", spoken_characters=24, token_rate=25)

    monkeypatch.setattr(FakeUpstream, "speak", speak)
    turns = [{**ANNA, "text": "Hello there."}, BEN]
    answer = say(front, *turns, stream_format="sse", word_timestamps=True)
    expected = [("Hello", "alloy"), ("there.", "alloy"), ("Hi", "ben"), ("you.", "ben")]
    assert words_of(answer) == expected
    words = [word for each in events(answer.body) for word in each.get("words", ())]
    assert words[1]["end_s"] == pytest.approx(0.8, abs=0.03)
    assert words[2]["start_s"] == pytest.approx(0.8, abs=0.03)
    assert words[3]["end_s"] == pytest.approx(1.8, abs=0.03)


def test_words_of_one_input_are_its_voice_s(front):
    answer = ask(front, stream_format="sse", word_timestamps=True)
    assert words_of(answer) == [("Hello", "alloy"), ("there.", "alloy")]
    assert words_of(ask(front, voice=None, stream_format="sse", word_timestamps=True))[0] == (
        "Hello",
        "default",
    )
    assert words_of(ask(front, stream_format="sse")) == []


def test_words_are_told_in_events_alone(front):
    answer = ask(front, word_timestamps=True)
    assert (answer.status, answer.error["param"]) == (400, "word_timestamps")

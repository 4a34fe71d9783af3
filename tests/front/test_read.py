"""What would be spoken of a text, as the front tells it."""

from __future__ import annotations

import json

import pytest
from test_front_keys import write_keys

from raw_http import ask, send


def read(front, key="none", **fields):
    body = json.dumps(fields).encode()
    return send(front, path="/v1/audio/read", body=body, Authorization=f"Bearer {key}")


def segments(front, **fields):
    answer = read(front, **fields)
    assert answer.status == 200, answer.body
    return json.loads(answer.body)["segments"]


def segment(text, pause_s=0.0, rate=1.0, voice=None):
    return {"text": text, "pause_s": pause_s, "rate": rate, "voice": voice}


def test_text_is_shown_as_it_is_spoken(front, upstream):
    assert segments(front, input="It takes 3 days.") == [segment("It takes three days.")]
    assert upstream.requests == []


def test_markup_and_lexicon_are_the_request_s(front):
    changed = "<voice name='alloy'>is <prosody rate='80%'>old.</prosody></voice>"
    text = f"<speak>SQL <break time='1.5s'/> {changed}</speak>"
    shown = segments(front, input=text, language="en", lexicon={"SQL": "sequel"})
    assert shown[0]["text"].startswith("sequel")
    assert [each["pause_s"] for each in shown] == [0.0, 1.5, 0.0]
    assert [(each["rate"], each["voice"]) for each in shown[1:]] == [(1.0, "alloy"), (0.8, "alloy")]
    plain = segments(front, input="**2**", language="en", text_markup="plain")
    assert plain != segments(front, input="**2**", language="en")


def test_paragraphs_are_shown_with_the_silence_before_them(front):
    text = "# One\nTwo.\n\nThree."
    for fields, pause_s in (({}, 0.5), ({"paragraph_pause_s": 1.25}, 1.25), ({"paragraph_pause_s": 0}, 0.0)):
        expected = [segment("One."), segment("Two.", pause_s), segment("Three.", pause_s)]
        assert segments(front, input=text, **fields) == expected


def test_silence_between_sentences_is_shown_too(front):
    shown = segments(front, input="One.\n\nTwo.<break time='1s'/> Three.", sentence_pause_s=0.25)
    assert shown == [segment("One."), segment("Two.", 0.75), segment("Three.", 1.25)]


def test_a_text_whose_reading_takes_long_is_refused(start_front):
    front = start_front(max_text_characters=100_000)
    answer = read(front, input="Hi. " * 2_501)
    assert (answer.status, answer.error["param"]) == (400, "input")
    assert "10004 characters, at most 10000" in answer.error["message"]


SSML = "<speak>{}</speak>"
MANY = "".join(f"<voice name='v{number}'>x</voice>" for number in range(101))


@pytest.mark.parametrize(
    "fields",
    [
        {"speed": 2.5},
        {"speed": 0.25},
        {"speed": "fast"},
        {"sample_rate": 1},
        {"ref_text": "Hi."},
    ],
)
def test_faults_of_fields_are_told_as_by_speech(front, fields):
    asked = {"model": "tts-1", "input": "Hi.", **fields}
    answers = [read(front, **asked), ask(front, **asked)]
    assert [answer.status for answer in answers] == [400, 400]
    assert answers[0].error == answers[1].error


@pytest.mark.parametrize(
    ("text", "status", "param", "says"),
    [
        ("<prosody rate='200%'>x</prosody>", 400, "input", "rate 2"),
        (MANY, 400, "input", "101 voices"),
        (f"<voice name='{'0' * 64}'>x</voice>", 404, "voice", "'0000"),
    ],
)
def test_what_the_server_would_refuse_of_a_text_is_refused(front, text, status, param, says):
    answer = read(front, input=SSML.format(text), speed=1.5)
    assert (answer.status, answer.error["param"]) == (status, param)
    assert says in answer.error["message"]


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({}, 400, "input"),
        ({"input": "..."}, 400, "input"),
        ({"input": "<speak>open"}, 400, "input"),
        ({"input": "Hi.", "language": "12"}, 400, "language"),
        ({"input": "Hi.", "pronunciation_dict_id": "none"}, 404, "pronunciation_dict_id"),
        (
            {"input": "<speak><voice name='0123'>Hi.</voice></speak>", "text_markup": "html"},
            400,
            "text_markup",
        ),
    ],
)
def test_errors_are_those_of_speech(front, fields, status, param):
    answer = read(front, **fields)
    assert (answer.status, answer.error["param"]) == (status, param)


def test_it_asks_for_a_key(start_front, tmp_path):
    front = start_front(api_keys_file=write_keys(tmp_path / "keys", anna="sk-anna"))
    assert read(front, "sk-bert", input="Hi.").status == 401
    assert read(front, "sk-anna", input="Hi.").status == 200


def test_it_counts_as_a_request_without_characters(start_front):
    front = start_front(requests_per_minute=2, characters_per_day=1)
    assert [read(front, input="Hi.").status for _ in range(3)] == [200, 200, 429]

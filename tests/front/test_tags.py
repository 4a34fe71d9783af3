"""Tags of a text: handed on untouched, and no words."""

from __future__ import annotations

import json

import pytest
from test_text_fields import speak_bytes

from cosyvoice_front.live.transcript import Transcript
from cosyvoice_front.pause import is_wordless
from cosyvoice_runtime.alignment.words import WordReader
from cosyvoice_runtime.text.markup.unsaid import blanked
from raw_http import ask
from wire_client import asked, open_cartesia, words_in

TAGGED = (
    'Wait <break time="1s"/> for <spell>AB</spell>. <speed ratio="1.5"/>Now'
    '<emotion value="happy"/> [pause:0.5s] <volume ratio="0.8"/>go, <b>on</b>.'
)
WORDS = ["Wait", "for", "AB", ".", "Now", "go,", "on", "."]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_tags_are_no_words_whatever_the_pieces(size):
    reader, transcript = WordReader(), Transcript()
    words = []
    for start in range(0, len(TAGGED), size):
        words += reader.read(TAGGED[start : start + size])
        transcript.add(TAGGED[start : start + size])
    words += reader.finish()
    assert [word.text for word in words] == WORDS
    assert all(TAGGED[: word.end].endswith(word.text) for word in words)
    assert transcript.worded == TAGGED.index("on</b>") + 2


def test_tag_that_never_ends_is_words():
    reader, transcript = WordReader(), Transcript()
    assert [word.text for word in reader.read("if a <b or")] == ["if", "a"]
    transcript.add("<b or")
    assert transcript.worded == 0
    transcript.end()
    assert transcript.worded == 5
    assert [word.text for word in reader.finish()] == ["<b", "or"]


def test_long_text_without_an_end_of_a_tag_waits_for_none():
    reader = WordReader()
    assert len(reader.read("<a " + "x " * 1000)) > 500


@pytest.mark.parametrize(
    ("text", "left"), [("1 < 2 > 0", "1 < 2 > 0"), ("List<int>", "List<int>"), ("<name>", "<name>")]
)
def test_what_is_no_tag_stays(text, left):
    assert blanked(text) == left


@pytest.mark.parametrize(
    "text", ['<break time="1s"/>', "[pause:1s]", "<speak> <p></p> </speak>", "<?xml a?>."]
)
def test_text_of_tags_alone_is_a_pause(front, upstream, text):
    assert is_wordless(text)
    assert not is_wordless(text, "plain")
    assert ask(front, input=text, response_format="wav").status == 200
    with open_cartesia(front) as wire:
        wire.send(asked(text))
        wire.until("done")
    assert upstream.requests == []


def test_tags_are_words_where_the_server_s_texts_are_plain(start_front, upstream):
    front = start_front(**{"cosyvoice2.text_markup": "plain"})
    for fields, spoken in (({}, 1), ({"text_markup": "markdown"}, 0)):
        upstream.requests.clear()
        assert ask(front, input="<break/>", response_format="wav", **fields).status == 200
        assert speak_bytes(front, transcript="<break/>", **fields).status == 200
        with open_cartesia(front) as wire:
            wire.send(asked("Hi <break/> you. ", **fields))
            heard = wire.until("done")
            wire.send(asked("<break/>", context_id="two", **fields))
            wire.until("done")
        assert len(upstream.requests) == 3 * spoken + 1
        assert [word for word, _, _ in words_in(heard)] == ["Hi", *["<break/>"] * spoken, "you."]
        assert {request.text_markup for request in upstream.requests} == {fields.get("text_markup")}


def test_tags_reach_the_server_untouched(front, upstream):
    assert speak_bytes(front, transcript=TAGGED).status == 200
    assert upstream.requests[-1].text == TAGGED
    assert ask(front, input=TAGGED).status == 200
    assert upstream.requests[-1].text == TAGGED
    with open_cartesia(front) as wire:
        for start in range(0, len(TAGGED), 10):
            wire.send(asked(TAGGED[start : start + 10], **{"continue": True, "max_buffer_delay_ms": 5000}))
        wire.send(asked("", max_buffer_delay_ms=5000))
        messages = wire.until("done")
    assert "".join(piece for piece in upstream.texts[-1].pushed if piece != "|") == TAGGED
    assert [word for word, _, _ in words_in(messages)] == WORDS


def test_flush_of_a_tag_alone_waits_for_no_speech(front, upstream):
    with open_cartesia(front) as wire:
        wire.send(asked("Hello. ", **{"continue": True}), asked('<break time="1s"/>', **{"continue": True}))
        wire.until("flush_done", 2)
        wire.send(asked("There."))
        wire.until("done")
    assert json.dumps(upstream.texts[-1].pushed) == json.dumps(
        ["Hello. ", "|", '<break time="1s"/>There.', *upstream.texts[-1].pushed[3:]]
    )

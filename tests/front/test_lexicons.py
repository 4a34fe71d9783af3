"""Lexicons of keys, voices and by an id."""

from __future__ import annotations

import json

import pytest
from test_front_keys import write_keys
from test_text_fields import speak_bytes, speak_cartesia, speak_omni

from cosyvoice_front.command import main
from raw_http import ask
from wire_client import asked, open_cartesia


@pytest.fixture
def directory(tmp_path):
    files = {
        "keys/anna": "a\tkey\nb\tkey\nc\tkey\nd\tkey",
        "voices/default": "b\tvoice\nc\tvoice\nd\tvoice",
        "voices/other": "b\tother",
        "dictionaries/mine": "c\tdictionary\nd\tdictionary",
    }
    for name, text in files.items():
        path = tmp_path / "lexicons" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "lexicons"


@pytest.fixture
def keyed(start_front, directory, tmp_path):
    keys = write_keys(tmp_path / "keys", anna="sk-anna", bert="sk-bert")
    return start_front(api_keys_file=keys, lexicons=directory)


ALL = {"a": "key", "b": "voice", "c": "dictionary", "d": "request"}
FIELDS = {"pronunciation_dict_id": "mine", "lexicon": {"d": "request"}}


@pytest.mark.parametrize("speak", [ask, speak_bytes, speak_cartesia, speak_omni])
def test_request_counts_before_dictionary_voice_and_key(keyed, upstream, speak):
    speak(keyed, "sk-anna", **FIELDS)
    assert upstream.requests[-1].lexicon == ALL
    speak(keyed, "sk-bert", **FIELDS)
    assert upstream.requests[-1].lexicon == {word: ALL[word] for word in ("b", "c", "d")}


def test_voice_has_its_own_words(keyed, upstream):
    ask(keyed, "sk-bert", voice="other")
    assert upstream.requests[-1].lexicon == {"b": "other"}
    ask(keyed, "sk-bert", voice="third")
    assert upstream.requests[-1].lexicon is None


def test_unknown_dictionary_is_told_in_each_protocol_s_form(keyed, upstream):
    answer = ask(keyed, "sk-anna", pronunciation_dict_id="../keys/anna")
    assert (answer.status, answer.error["param"]) == (404, "pronunciation_dict_id")
    answer = speak_bytes(keyed, "sk-anna", pronunciation_dict_id="none")
    assert answer.status == 404
    assert json.loads(answer.body)["error_code"] == "pronunciation_dict_not_found"
    with open_cartesia(keyed, X_API_Key="sk-anna") as wire:
        wire.send(asked(pronunciation_dict_id="none"))
        assert wire.error()["status_code"] == 404
    assert upstream.requests == []


def test_words_together_are_limited(keyed):
    answer = ask(keyed, "sk-anna", lexicon={f"w{number}": "x" for number in range(497)})
    assert (answer.status, answer.error["param"]) == (400, "lexicon")
    assert "501 words" in answer.error["message"]


def test_line_at_fault_stops_the_start(directory, caplog):
    (directory / "keys" / "bert.txt").write_text("a\tb\nwithout a tab\n")
    assert main([f"front.lexicons={directory}", "front.port=0"]) == 2
    assert "line 2 of" in caplog.text
    assert main([f"front.lexicons={directory}/none", "front.port=0"]) == 2

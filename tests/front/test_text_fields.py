"""How a text is read, asked for in every protocol; and voices in it, which are their owners' alone."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from test_front_keys import write_keys

from raw_http import ask, send
from voice_uploads import AnalysingUpstream, upload
from wire_client import FORMAT, VERSION, asked, open_cartesia, open_omni

FIELDS = {"text_markup": "markdown", "lexicon": {"SQL": "sequel", "C": "see\u0301"}}
READ = {"SQL": "sequel", "C": "seé"}
OWN = '<speak><voice name=\'mine\'>One.</voice> <voice gender="x" name = "mine">Two.</voice></speak>'
NAMES = "<speak><voice name='mi&#110;e'/><voice name=\"alloy\"/><voice name='her&amp;s'/> Hi.</speak>"


@pytest.fixture
def upstream(tmp_path):
    return AnalysingUpstream(tmp_path / "voices")


@pytest.fixture
def keyed(start_front, tmp_path):
    keys = write_keys(tmp_path / "keys", anna="sk-anna", bert="sk-bert")
    front = start_front(api_keys_file=keys, voices_dir=tmp_path / "voices")
    assert upload(front).status == 200
    return front


def speak_bytes(front, key="none", **fields):
    body = json.dumps(
        {"model_id": "sonic-3", "transcript": "Hello there.", "output_format": FORMAT, **fields}
    ).encode()
    headers = {"X-API-Key": key, "Cartesia-Version": VERSION}
    return send(front, path="/tts/bytes", body=body, **headers)


def speak_cartesia(front, key="none", **fields):
    with open_cartesia(front, X_API_Key=key) as wire:
        wire.send(asked(**fields))
        wire.until("done")


def speak_omni(front, key="none", **fields):
    with open_omni(front, **{"X-API-Key": key}) as wire:
        text = {"type": "input.text", "text": "Hello there."}
        wire.send({"type": "session.config", **fields}, text, {"type": "input.done"})
        wire.until("session.done")


@pytest.mark.parametrize("speak", [ask, speak_bytes, speak_cartesia, speak_omni])
def test_every_protocol_says_how_the_text_is_read(start_front, upstream, speak):
    speak(start_front(), **FIELDS)
    request = upstream.requests[-1]
    assert (request.text_markup, request.lexicon, request.text_voices) == ("markdown", READ, {})


@pytest.mark.parametrize(
    ("lexicon", "says"),
    [
        ({"a\tb": "x"}, r"'a\tb'"),
        ({"good": "words", "two": ""}, "'two'"),
        ({"line": "a\nb\tc"}, "'line'"),
        ({"#1": "number one"}, "'#1'"),
        ({"token": "<|en|>"}, "'token'"),
        ({"number": 1}, "'number'"),
        ({"long": "x" * 201}, "'long'"),
        ({str(number): "x" for number in range(501)}, "501 words"),
        (["SQL"], "object"),
    ],
)
def test_lexicon_at_fault_is_named_with_its_word(start_front, upstream, lexicon, says):
    front = start_front()
    answer = ask(front, lexicon=lexicon)
    assert (answer.status, answer.error["param"]) == (400, "lexicon")
    assert says in answer.error["message"]
    answer = speak_bytes(front, lexicon=lexicon)
    assert answer.status == 400
    assert json.loads(answer.body)["message"].startswith("lexicon: ")
    assert says in json.loads(answer.body)["message"]
    assert upstream.requests == []


def test_unknown_markup_is_refused(start_front):
    answer = ask(start_front(), text_markup="latex")
    assert (answer.status, answer.error["param"]) == (400, "text_markup")


def test_voice_in_a_text_is_its_owners_alone(keyed, upstream):
    for key, voices in (("sk-anna", {"mine": "mine"}), ("sk-bert", {})):
        assert ask(keyed, key, input=OWN).status == 200
        assert upstream.requests[-1].text_voices == voices
        assert speak_bytes(keyed, key, transcript=OWN).status == 200
        assert upstream.requests[-1].text_voices == voices


def test_names_in_a_text_are_read_as_the_server_reads_them(keyed, upstream):
    assert ask(keyed, "sk-anna", input=NAMES).status == 200
    assert upstream.requests[-1].text_voices == {"mine": "mine", "alloy": ""}


def test_content_of_a_voice_is_no_name_in_a_text(keyed, upstream):
    key = upstream.store.get("mine").key
    ask(keyed, "sk-anna", input=f"<speak><voice name='{key}'>Hi.</voice></speak>")
    assert upstream.requests[-1].text_voices == {}


@pytest.mark.parametrize("speak", [speak_cartesia, speak_omni])
def test_text_in_pieces_may_name_what_is_listed_if_it_is_ssml(keyed, upstream, speak):
    for key, is_among in (("sk-anna", True), ("sk-bert", False)):
        speak(keyed, key, text_markup="ssml")
        voices = upstream.requests[-1].text_voices
        assert voices["default"] == voices["alloy"] == ""
        assert (voices.get("mine") == "mine") is is_among
        speak(keyed, key)
        assert upstream.requests[-1].text_voices == {}


def test_characters_are_counted_with_their_markup(start_front, upstream, tmp_path):
    front = start_front(audit_file=tmp_path / "audit")
    ask(front, input=OWN, lexicon={"One": "Uno"})
    front.stop()
    assert json.loads((tmp_path / "audit").read_text())["characters"] == len(OWN)


def test_front_needs_nothing_of_the_server_s_to_read_texts():
    names = "tokenizers", "yaml", "torch", "onnxruntime", "transformers"
    imports = "import cosyvoice_front.app, cosyvoice_front.uploads, cosyvoice_runtime.text.frontend"
    code = f"import sys; sys.modules.update(dict.fromkeys({names})); {imports}"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

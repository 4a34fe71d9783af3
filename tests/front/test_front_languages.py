"""Languages by whatever name, on every route of the front."""

from __future__ import annotations

import json

import pytest

from raw_http import ask, send
from wire_client import OPENING, VERSION, open_cartesia, open_omni

WAV = {"container": "wav", "encoding": "pcm_s16le", "sample_rate": 24_000}
KNOWN = [
    ("Auto", "auto"), ("", "auto"), (None, None), ("English", "en"), ("en_US", "en-US"), ("zh-CN", "zh-CN"),
    ("Chinese", "zh"), ("eng", "en"), ("日本語", "ja"),
    ("german", "de"), ("deu", "de"), ("Deutsch", "de"), ("und", "auto"),
]  # fmt: skip


@pytest.mark.parametrize(("language", "tag"), KNOWN)
def test_language_by_any_name_reaches_the_server_as_its_tag(front, upstream, language, tag):
    ask(front, language=language)
    body = {**OPENING, "language": language, "output_format": WAV}
    assert (
        send(front, path="/tts/bytes", body=json.dumps(body).encode(), **{"Cartesia-Version": VERSION}).status
        == 200
    )
    with open_cartesia(front) as wire:
        wire.send({**OPENING, "language": language})
        wire.until("done")
    with open_omni(front) as wire:
        wire.send({"type": "session.config", "language": language})
        wire.send({"type": "input.text", "text": "Hello."}, {"type": "input.done"})
        wire.until("session.done")
    assert [request.language for request in upstream.requests] == [tag] * 4


@pytest.mark.parametrize("language", ["Klingon", "N/A", "e", "12", "en/US", 5, ["en"]])
def test_unknown_language_is_named_with_what_is_known(front, upstream, language):
    answer = ask(front, language=language)
    assert (answer.status, answer.error["param"]) == (400, "language")
    with open_cartesia(front) as cartesia, open_omni(front) as omni:
        cartesia.send({**OPENING, "language": language})
        omni.send({"type": "session.config", "language": language})
        for text in (answer.error["message"], cartesia.error()["message"], omni.error()["message"]):
            assert text.startswith(f"language: {language!r}: ")
            assert isinstance(language, int | list) or "a name such as English" in text
    assert upstream.requests == []


def test_two_names_of_a_language_are_one_in_a_context(front):
    with open_cartesia(front) as wire:
        wire.send({**OPENING, "language": "English", "continue": True}, {**OPENING, "language": "en"})
        wire.until("done")

"""Pages of other origins: named ones may call, with a key where one is asked for, and others are told how."""

from __future__ import annotations

import json

import pytest
from test_front_keys import write_keys
from websockets.exceptions import InvalidStatus

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings import Settings
from raw_http import ASKED, send
from wire_client import asked, open_cartesia, open_omni

APP = "https://app.example"
SPEECH = json.dumps(ASKED).encode()
WANTED = "authorization,x-stainless-os"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": WANTED}


@pytest.fixture
def opened(start_front):
    return start_front(cors_origins=f"{APP},http://localhost:5173")


@pytest.mark.parametrize("path", ["/v1/audio/speech", "/v1/audio/voices/mine", "/tts/bytes"])
@pytest.mark.parametrize("origin", [APP, "http://localhost:5173"])
def test_preflight_of_a_named_origin_is_granted(opened, path, origin):
    answer = send(opened, "OPTIONS", path, Origin=origin, **PREFLIGHT)
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == origin
    assert {"POST", "DELETE"} <= set(answer.headers["access-control-allow-methods"].split(", "))
    assert answer.headers["access-control-allow-headers"] == WANTED
    assert "access-control-allow-credentials" not in answer.headers


def test_page_of_a_named_origin_hears_and_reads_what_it_needs(opened):
    answer = send(opened, body=SPEECH, Origin=APP)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, APP)
    exposed = {name.strip().lower() for name in answer.headers["access-control-expose-headers"].split(",")}
    assert exposed >= {"x-request-id", "retry-after", "retry-after-ms"}
    assert exposed >= {"x-seed", "x-sample-rate", "x-start-character", "x-reference-note"}
    assert "origin" in answer.headers["vary"].lower()


@pytest.mark.parametrize(
    "asked_for", [("POST", "/v1/audio/speech", b"{}"), ("GET", "/nowhere", b""), ("PUT", "/health", b"")]
)
def test_page_can_read_errors_too(opened, asked_for):
    answer = send(opened, *asked_for, Origin=APP)
    assert answer.status >= 400
    assert answer.headers["access-control-allow-origin"] == APP


OTHERS = [
    "https://app.example.evil",
    "http://app.example",
    "https://app.example:444",
    "null",
    "https://APP.example",
]


@pytest.mark.parametrize("origin", OTHERS)
def test_other_origins_are_told_of_the_setting(opened, upstream, origin):
    for answer in (
        send(opened, "OPTIONS", "/v1/audio/speech", Origin=origin, **PREFLIGHT),
        send(opened, body=SPEECH, Origin=origin),
    ):
        assert (answer.status, answer.error["code"]) == (403, "foreign_origin")
        assert "front.cors_origins" in answer.error["message"]
        assert "access-control-allow-origin" not in answer.headers
    assert upstream.requests == []


def test_without_the_setting_no_origin_may(front):
    answer = send(front, "OPTIONS", "/v1/audio/speech", Origin=APP, **PREFLIGHT)
    assert (answer.status, answer.error["code"]) == (403, "foreign_origin")


def test_star_lets_every_page(start_front):
    front = start_front(cors_origins="*")
    for origin in (APP, "null"):
        answer = send(front, body=SPEECH, Origin=origin)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "*")
    with open_cartesia(front, Origin=APP) as wire:
        wire.send(asked())
        wire.until("done")


def test_named_origin_needs_the_name_of_this_machine_all_the_same(opened):
    answer = send(opened, body=SPEECH, Origin=APP, Host="evil.example")
    assert (answer.status, answer.error["code"]) == (403, "foreign_host")


@pytest.mark.parametrize("origins", [APP, "*"])
def test_keys_are_asked_for_all_the_same(start_front, tmp_path, origins):
    front = start_front(cors_origins=origins, api_keys_file=write_keys(tmp_path / "keys", anna="sk-anna"))
    assert send(front, "OPTIONS", "/v1/audio/speech", Origin=APP, **PREFLIGHT).status == 200
    refused = send(front, body=SPEECH, Origin=APP)
    assert (refused.status, refused.error["code"]) == (401, "invalid_api_key")
    assert "access-control-allow-origin" in refused.headers
    assert send(front, body=SPEECH, Origin=APP, Authorization="Bearer sk-anna").status == 200
    with pytest.raises(InvalidStatus, match="401"), open_omni(front, Origin=APP):
        pass


@pytest.mark.parametrize("opening", [open_cartesia, open_omni])
def test_sockets_are_open_to_pages_of_the_same_origins(opened, start_front, tmp_path, opening):
    guarded = start_front(cors_origins=APP, api_keys_file=write_keys(tmp_path / "keys", anna="sk-anna"))
    for front, key in ((opened, "none"), (guarded, "sk-anna")):
        own = f"http://127.0.0.1:{front.port}"
        for origin in (APP, own):
            with opening(front, Origin=origin, Authorization=f"Bearer {key}"):
                pass
        with (
            pytest.raises(InvalidStatus, match="403"),
            opening(front, Origin=OTHERS[0], Authorization=f"Bearer {key}"),
        ):
            pass


@pytest.mark.parametrize(
    "origin",
    [
        "app.example",
        "https://app.example/",
        "https://App.example",
        "https://*.example",
        "https://app.example/x",
        "**",
        "https://",
    ],
)
def test_origin_that_no_browser_sends_is_refused_at_the_start(origin):
    with pytest.raises(InvalidInput, match=r"front\.cors_origins.*https://app\.example"):
        Settings.read([f"front.cors_origins={origin}"])

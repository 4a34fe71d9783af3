"""Who may call, and how much."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime

import openai
import pytest

from cosyvoice_client import UnavailableError
from cosyvoice_front.command import check
from cosyvoice_front.errors import ApiError
from cosyvoice_front.keys import Keys, digest
from cosyvoice_front.limits.allowance import Allowance
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings import FrontSettings
from raw_http import ASKED, ask, send
from wire_client import asked, open_cartesia


def keys_of(path, **settings):
    return Keys(FrontSettings(api_keys_file=str(path), **settings))


def write_keys(path, **keys):
    lines = [f"{name} sha256:{digest(key)}" for name, key in keys.items()]
    path.write_text("\n".join(["# who may call", "", *lines, ""]))
    return path


@pytest.fixture
def keys_file(tmp_path):
    return write_keys(tmp_path / "keys", anna="sk-anna", bert="sk-bert")


@pytest.fixture
def guarded(start_front, keys_file):
    return start_front(api_keys_file=keys_file)


@pytest.mark.parametrize("key", [None, "", "sk-carl", "anna", digest("sk-anna")])
def test_unknown_key_is_refused_before_the_body_is_looked_at(guarded, upstream, key):
    answer = ask(guarded, key, speed="broken")
    assert answer.status == 401
    assert answer.error["code"] == "invalid_api_key"
    assert upstream.requests == []


def test_known_key_speaks(guarded, open_client):
    assert open_client(guarded, "sk-anna").audio.speech.create(**ASKED).content
    with pytest.raises(openai.AuthenticationError):
        open_client(guarded, "sk-carl").audio.speech.create(**ASKED)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/audio/models", "/v1/audio/voices", "/v1/models/tts-1"])
def test_lists_are_open_where_a_setting_says_so(guarded, start_front, keys_file, path):
    assert send(guarded, "GET", path).status == 401
    assert send(guarded, "GET", path, Authorization="bearer sk-anna").status == 200
    opened = start_front(api_keys_file=keys_file, open_lists=True)
    assert send(opened, "GET", path).status == 200
    assert ask(opened).status == 401


@pytest.mark.parametrize("path", ["/v1/", "/test", "/health", "/health/ready"])
def test_probes_need_no_key(guarded, path):
    assert send(guarded, "GET", path).status == 200


def test_changed_file_counts_from_the_next_request_on(guarded, keys_file):
    assert ask(guarded, "sk-anna").status == 200
    write_keys(keys_file, carl="sk-carl-and-nobody-else")
    assert ask(guarded, "sk-anna").status == 401
    assert ask(guarded, "sk-carl-and-nobody-else").status == 200


@pytest.mark.parametrize("damage", ["sk-plain-key", "anna sha256:short", "anna md5:" + "0" * 32])
def test_damaged_file_leaves_the_keys_as_they_were(guarded, keys_file, damage):
    keys_file.write_text(damage)
    assert ask(guarded, "sk-anna").status == 200
    keys_file.unlink()
    assert ask(guarded, "sk-anna").status == 200


def test_damaged_file_is_refused_at_the_start_without_repeating_it(tmp_path):
    path = tmp_path / "keys"
    path.write_text("\nsk-forgotten-to-hash\n")
    with pytest.raises(InvalidInput, match=r"keys:2.*NAME sha256:HASH") as caught:
        keys_of(path)
    assert "forgotten" not in str(caught.value)


GOOD = f"anna sha256:{digest('sk-anna')}"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("streams=two", r"keys:2: streams: 'two'.*a whole number from 0 to 100000"),
        ("streams=-1", r"keys:2: streams: '-1'.*from 0 to 100000"),
        ("requests_per_minute=", r"keys:2: requests_per_minute: ''.*from 0 to 1000000"),
        ("characters_per_day=1e99", r"keys:2: characters_per_day: '1e99'.*from 0 to 1e\+12"),
        ("until=2027-02-30", r"keys:2: until: '2027-02-30'.*a day as 2027-01-31"),
        ("until=tomorrow", r"keys:2: until: 'tomorrow'.*a day as 2027-01-31"),
        ("stream=2", r"keys:2: 'stream' .*NAME sha256:HASH, then any of requests_per_minute=, streams=, "),
        ("streams=2 streams=3", r"keys:2: streams: '3'.*twice"),
        ("sk-anna", r"keys:2: '\(not shown"),
        ("key=sk-anna-of-another-line", r"keys:2: 'key' .*then any of"),
        ("sk-anna=2", r"keys:2: '\(not shown"),
        ("streams=sk-anna", r"keys:2: streams: '\(not shown"),
        ("streams=sk-another-key-of-somebody", r"keys:2: streams: '\(not shown"),
    ],
)
def test_line_that_says_what_none_may_is_refused_without_showing_a_key(guarded, keys_file, words, says):
    keys_file.write_text(f"# who may call\n{GOOD} {words}\n")
    with pytest.raises(InvalidInput, match=rf"front\.api_keys_file.*{says}") as caught:
        keys_of(keys_file)
    assert "sk-a" not in str(caught.value)
    assert ask(guarded, "sk-bert").status == 200  # of the file as it was


def test_lines_of_one_name_have_the_same_limits(tmp_path):
    path, second = tmp_path / "keys", f"anna sha256:{digest('sk-new')}"
    path.write_text(f"{GOOD} streams=2 until=2027-01-31\n{second} streams=2\n")
    assert keys_of(path).owner_of("sk-new") == "anna"
    path.write_text(f"{GOOD} streams=2\n{second} streams=3\n")
    with pytest.raises(InvalidInput, match=r"keys:2: .*the limits of line 1 are expected"):
        keys_of(path)


def test_limits_of_a_key_come_before_the_settings(tmp_path):
    (tmp_path / "keys").write_text(f"{GOOD} streams=3 characters_per_day=0\nbert sha256:{digest('sk-bert')}")
    keys = keys_of(tmp_path / "keys", requests_per_minute=60, streams_per_key=1, characters_per_day=100)
    assert keys.allowance("anna") == Allowance(60, 3, 0)
    assert keys.allowance("bert") == Allowance(60, 1, 100)


def test_changed_limits_count_from_the_next_request_on(start_front, tmp_path):
    path = tmp_path / "keys"
    path.write_text(f"{GOOD} requests_per_minute=1")
    front = start_front(api_keys_file=path)
    assert [ask(front, "sk-anna").status for _ in range(2)] == [200, 429]
    path.write_text(f"{GOOD} requests_per_minute=20")
    assert ask(front, "sk-anna").status == 200


def test_key_counts_until_the_end_of_its_last_day(tmp_path):
    (tmp_path / "keys").write_text(f"{GOOD} until=2027-01-31")
    end = datetime(2027, 2, 1, tzinfo=UTC).timestamp()
    now = end - 1
    keys = Keys(FrontSettings(api_keys_file=str(tmp_path / "keys")), lambda: now)
    assert keys.owner_of("sk-anna") == "anna"
    now = end
    with pytest.raises(ApiError, match=r"good until 2027-01-31 \(UTC\)") as caught:
        keys.owner_of("sk-anna")
    assert (caught.value.status, caught.value.code) == (401, "expired_api_key")
    with pytest.raises(ApiError, match="unknown"):
        keys.owner_of("sk-carl")


def test_expired_key_is_told_so(start_front, tmp_path):
    (tmp_path / "keys").write_text(f"{GOOD} until=2020-01-31")
    answer = ask(start_front(api_keys_file=tmp_path / "keys"), "sk-anna")
    assert (answer.status, answer.error["code"]) == (401, "expired_api_key")


def test_made_key_opens(tmp_path):
    made = subprocess.run(
        [sys.executable, "-m", "cosyvoice_front.keys", "anna"], capture_output=True, text=True, check=True
    )
    (tmp_path / "keys").write_text(made.stdout)
    key = made.stderr.split()[-1]
    assert key not in made.stdout
    assert keys_of(tmp_path / "keys").owner_of(key) == "anna"


@pytest.mark.parametrize("name", ["--help", "-", "a b", ""])
def test_no_key_is_made_for_what_is_no_name(name):
    made = subprocess.run(
        [sys.executable, "-m", "cosyvoice_front.keys", name], capture_output=True, text=True
    )
    assert (made.returncode, made.stdout) == (2, "")
    assert "NAME >> FILE" in made.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_strangers_are_never_let_in_without_keys(host, keys_file):
    with pytest.raises(InvalidInput, match=r"front\.host.*api_keys_file"):
        check(FrontSettings(host=host))
    check(FrontSettings(host=host, api_keys_file=str(keys_file)))


@pytest.mark.parametrize("host", ["192.0.2.5", "front.example"])
def test_front_does_not_start_at_another_machine_s_address(host):
    with pytest.raises(InvalidInput, match=r"front\.host"):
        check(FrontSettings(host=host))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_no_keys_are_needed_at_home(host):
    check(FrontSettings(host=host))


def test_pages_of_other_sites_do_not_call_without_a_key(front, guarded, upstream):
    body = json.dumps(ASKED).encode()
    for origin in ("http://site.example", "null", "http://127.0.0.1:1"):
        refused = send(front, body=body, Origin=origin)
        assert (refused.status, refused.error["code"]) == (403, "foreign_origin")
    assert send(front, body=body, Origin=front.url).status == 200
    assert (
        send(guarded, body=body, Origin="http://site.example", Authorization="Bearer sk-anna").status == 200
    )


@pytest.mark.parametrize(
    "host",
    ["site.example:8080", "site.example", "localhost.site.example", "[::1", "", "127.0.0.1.site.example"],
)
def test_page_whose_name_leads_here_does_not_call_without_a_key(front, guarded, upstream, host):
    body = json.dumps(ASKED).encode()
    refused = send(front, body=body, Host=host, Origin=f"http://{host}")
    assert (refused.status, refused.error["code"]) == (403, "foreign_host")
    assert "front.allowed_hosts" in refused.error["message"]
    assert upstream.requests == []
    assert send(guarded, body=body, Host=host, Authorization="Bearer sk-anna").status == 200


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "192.168.1.5:8080", "[::1]:8080"])
def test_name_that_nobody_else_can_lead_here_needs_no_key(front, host):
    body = json.dumps(ASKED).encode()
    assert send(front, body=body, Host=host).status == 200
    assert send(front, body=body, Host=host, Origin=f"http://{host}").status == 200


def test_names_of_a_setting_need_no_key(start_front):
    front = start_front(allowed_hosts="speech.example,speech")
    body = json.dumps(ASKED).encode()
    for host in ("speech.example:443", "speech"):
        assert send(front, body=body, Host=host, Origin=f"https://{host}").status == 200
    assert send(front, body=body, Host="site.example").status == 403


@pytest.mark.parametrize("origin", ["http://[::1", "http://[x]", ""])
def test_origin_that_is_no_address_is_foreign(front, origin):
    refused = send(front, body=json.dumps(ASKED).encode(), Origin=origin)
    assert (refused.status, refused.error["code"]) == (403, "foreign_origin")


@pytest.mark.parametrize(("key", "name"), [("sk-anna", "anna"), ("sk-jose", "jos%C3%A9")])
def test_server_is_told_whose_turn_it_is(start_front, upstream, tmp_path, key, name):
    front = start_front(api_keys_file=write_keys(tmp_path / "keys", anna="sk-anna", josé="sk-jose"))
    ask(front, key)
    with open_cartesia(front, X_API_Key=key) as wire:
        wire.send(asked())
        wire.until("done")
    assert upstream.names == [name, name]


def test_callers_without_keys_have_a_turn_each(front, upstream):
    ask(front)
    assert upstream.names == [None]


def test_refusals_of_the_server_use_up_no_limit(start_front, keys_file, upstream):
    front = start_front(api_keys_file=keys_file, requests_per_minute=1, characters_per_day=12)
    upstream.error = UnavailableError("full; try again in 2.5 s")
    assert [ask(front, "sk-anna").status for _ in range(3)] == [503] * 3
    upstream.error = None
    assert [ask(front, "sk-anna").status for _ in range(2)] == [200, 429]


def test_limits_reach_clients_and_end_with_the_stream(start_front, keys_file, upstream):
    front = start_front(api_keys_file=keys_file, streams_per_key=1)
    upstream.gates = asyncio.Semaphore(0)
    with (
        openai.OpenAI(base_url=f"{front.url}/v1", api_key="sk-anna", max_retries=0) as client,
        client.audio.speech.with_streaming_response.create(**ASKED) as response,
    ):
        pieces = response.iter_bytes()  # the response is closed with it
        assert next(pieces)
        with pytest.raises(openai.RateLimitError):
            client.audio.speech.create(**ASKED)
    front.wait_until(lambda: front.streams == 0)
    upstream.gates = None
    assert ask(front, "sk-anna").status == 200

"""The front's numbers: what Prometheus reads is what clients have met."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families
from test_front_keys import write_keys

from cosyvoice_client import RefusedError, UnavailableError
from drills.ports import free_port
from raw_http import ask, begin, send
from wire_client import asked, open_cartesia, open_omni

ENDINGS = "cosyvoice_front_utterances_total"


def numbers(front, **headers):
    """Samples by name, or by name and labels; those of the process left out."""
    answer = send(front, "GET", "/metrics", **headers)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
        if sample.name.startswith("cosyvoice_front_") and not sample.name.endswith(("_bucket", "_created"))
    }


def endings(front):
    return {labels[0]: value for (name, *labels), value in numbers(front).items() if name == ENDINGS}


@pytest.mark.parametrize("fields", [{}, {"stream_format": "sse"}])
def test_spoken_utterance_counts_with_its_seconds_and_its_first_audio(front, fields):
    ask(front, **fields)
    front.wait_until(lambda: front.streams == 0)
    found = numbers(front)
    assert found.pop(("cosyvoice_front_first_audio_seconds_sum",)) > 0
    assert found == {
        ("cosyvoice_front_requests_total", "/v1/audio/speech", "200"): 1,
        (ENDINGS, "spoken"): 1,
        ("cosyvoice_front_first_audio_seconds_count",): 1,
        ("cosyvoice_front_speech_seconds_total",): pytest.approx(0.8),
        ("cosyvoice_front_streams",): 0,
        ("cosyvoice_front_counted_alone_total",): 0,
    }


@pytest.mark.parametrize("fields", [{}, {"stream_format": "sse"}])
@pytest.mark.parametrize(("after", "ending"), [(0, "refused"), (1, "failed")])
def test_failure_is_a_refusal_until_there_is_audio(front, upstream, fields, after, ending):
    upstream.error, upstream.error_after = UnavailableError("full"), after
    send_and_forget(front, **fields)
    assert endings(front) == {ending: 1}
    refusals = [key for key in numbers(front) if key[0] == "cosyvoice_front_refusals_total"]
    assert refusals == ([("cosyvoice_front_refusals_total", "overloaded")] if after == 0 else [])


def send_and_forget(front, **fields):
    with begin(front, response_format="pcm", **fields) as connection:
        connection.recv(65536)
        front.wait_until(lambda: front.upstream.active == 0)
    front.wait_until(lambda: front.streams == 0)


def test_client_that_leaves_cancels(front, upstream):
    upstream.gates = asyncio.Semaphore(0)
    with begin(front, response_format="pcm") as connection:
        assert connection.recv(65536)
        assert numbers(front)[("cosyvoice_front_streams",)] == 1
    front.wait_until(lambda: front.streams == 0)
    assert endings(front) == {"cancelled": 1}
    assert numbers(front)[("cosyvoice_front_streams",)] == 0


def test_reason_of_a_refusal_is_its_code(start_front, upstream):
    front = start_front(requests_per_minute=1)
    upstream.error = RefusedError("reference_wav: too quiet", "invalid_argument")
    assert [ask(front).status for _ in range(2)] == [400, 429]
    reasons = {key[1]: value for key, value in numbers(front).items() if "refusals" in key[0]}
    assert reasons == {"invalid": 1, "rate_limit_exceeded": 1}


def test_texts_of_both_sockets_count(front):
    with open_cartesia(front) as wire:
        wire.send(asked())
        wire.until("done")
    with open_omni(front) as wire:
        wire.send({"type": "session.config"})
        wire.send({"type": "input.text", "text": "Hello there."})
        wire.send({"type": "input.done"})
        wire.until("session.done")
    assert endings(front) == {"spoken": 2}
    found = numbers(front)
    assert found[("cosyvoice_front_requests_total", "/tts/websocket", "101")] == 1
    assert found[("cosyvoice_front_first_audio_seconds_count",)] == 2


def test_no_label_is_a_clients_word(front):
    for path in ("/nowhere", "/v1/models/mine", "/v1/models/thine"):
        send(front, "GET", path)
    send(front, "DELETE", "/v1/audio/speech")
    found = {key[1:]: value for key, value in numbers(front).items() if "requests" in key[0]}
    assert found == {
        ("none", "404"): 1,
        ("/v1/models/{model}", "404"): 2,
        ("/v1/audio/speech", "405"): 1,
    }


def test_numbers_ask_for_a_key_where_speech_does(start_front, tmp_path):
    front = start_front(api_keys_file=write_keys(tmp_path / "keys", prometheus="sk-prometheus"))
    assert send(front, "GET", "/metrics").status == 401
    assert numbers(front, Authorization="Bearer sk-prometheus")


def test_page_of_another_site_reads_no_numbers(front):
    assert send(front, "GET", "/metrics", Origin="https://elsewhere.example").status == 403


def test_process_says_when_it_was_started(front):
    assert b"\nprocess_start_time_seconds " in send(front, "GET", "/metrics").body


@pytest.fixture
def inside():
    """A port for metrics."""
    return free_port()


def whole_page(port, path="/metrics", **headers):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


def by_key(port):
    """Numbers of keys, by metric and key."""
    return {
        (sample.name.removeprefix("cosyvoice_front_key_"), sample.labels["key"]): sample.value
        for family in text_string_to_metric_families(whole_page(port))
        for sample in family.samples
        if sample.name.startswith("cosyvoice_front_key_") and sample.name.endswith("_total")
    }


def test_speech_and_characters_of_each_key_are_told_inside_alone(start_front, tmp_path, inside, upstream):
    keys = write_keys(tmp_path / "keys", anna="sk-anna", bert="sk-bert")
    front = start_front(api_keys_file=keys, metrics_port=inside)
    for _ in range(2):
        ask(front, "sk-anna", input="Hello.")
    with open_cartesia(front, X_API_Key="sk-bert") as wire:
        wire.send(asked("One. ", **{"continue": True}), asked("Two."))
        wire.until("done")
    front.wait_until(lambda: front.streams == 0)
    upstream.error = UnavailableError("full")
    assert ask(front, "sk-anna").status == 503  # of which nothing was spoken
    found = by_key(inside)
    assert found["characters_total", "anna"] == 2 * len("Hello.")
    assert found["characters_total", "bert"] == len("One. Two.")
    assert found["speech_seconds_total", "anna"] == pytest.approx(1.6)
    assert found["speech_seconds_total", "bert"] > 0
    outside = send(front, "GET", "/metrics", Authorization="Bearer sk-anna").body
    assert b"cosyvoice_front_speech_seconds_total" in outside
    assert b"key" not in outside
    assert "\ncosyvoice_front_streams 0.0\n" in whole_page(inside)


@pytest.mark.parametrize("headers", [{"Origin": "http://127.0.0.1"}, {"Host": "elsewhere.example"}])
def test_pages_of_browsers_read_no_numbers_inside(start_front, inside, headers):
    start_front(metrics_port=inside)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        whole_page(inside, **headers)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        whole_page(inside, "/v1/models")


def test_port_of_numbers_closes_with_the_front(start_front, inside):
    start_front(metrics_port=inside).stop()
    with pytest.raises(urllib.error.URLError):
        whole_page(inside)

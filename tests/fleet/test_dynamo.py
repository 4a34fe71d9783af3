"""NVIDIA Dynamo before the fleet: its frontend, and a worker of ours beside each server."""

from __future__ import annotations

import http.client
import json
import re
from collections import Counter

import pytest

pytest.importorskip("dynamo.llm", reason="needs ai-dynamo: pip install --no-deps -r requirements/dynamo.txt")

from cosyvoice_dynamo.command import refuse_keys
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings import FrontSettings
from drills.listeners import SHORT, TEXT, TIMEOUT_S, Listener, difference, listening
from drills.speech_server import PLACES
from eventually import eventually
from tests.fleet.dynamo import Dynamo

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def running_dynamo(running_fleet, tmp_path_factory):
    dynamo = Dynamo(tmp_path_factory.mktemp("dynamo"), running_fleet.servers)
    with dynamo.running():
        yield dynamo


@pytest.fixture
def dynamo(fleet, running_dynamo):
    """Dynamo before the whole, idle fleet."""
    running_dynamo.heal()
    return running_dynamo


def ask(dynamo: Dynamo, **fields: object) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", dynamo.frontend.port, timeout=TIMEOUT_S)
    body = json.dumps({"model": "tts-1", "input": SHORT, "seed": 7, **fields})
    connection.request("POST", "/v1/audio/speech", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    headers = {name.lower(): value for name, value in answer.getheaders()}
    return answer.status, headers, answer.read()


def test_speech_is_the_front_s(dynamo, plain_front):
    fields = {"speed": 1.2, "lexicon": {"world": "earth"}}
    uncut = Listener(plain_front, **fields).whole
    assert difference(Listener(dynamo.frontend, **fields).whole, uncut) is None


@pytest.mark.parametrize(
    ("fields", "media_type", "beginning", "streamed"),
    [
        ({}, "audio/mpeg", b"\xff", True),
        ({"response_format": "wav"}, "audio/wav", b"RIFF", True),
        ({"response_format": "pcm"}, "audio/pcm", b"", True),
        ({"response_format": "mp3"}, "audio/mpeg", b"\xff", False),
        ({"response_format": "opus"}, "audio/ogg; codecs=opus", b"OggS", False),
        ({"response_format": "flac"}, "audio/flac", b"fLaC", False),
        ({"response_format": "aac"}, "audio/aac", b"\xff", False),
        ({"response_format": "pcm", "speed": 1.5}, "audio/pcm", b"", False),
    ],
)
def test_formats_have_their_type_and_some_are_streamed(dynamo, fields, media_type, beginning, streamed):
    """Dynamo's frontend sends a format that it does not stream as a whole, with its length."""
    status, headers, body = ask(dynamo, **fields)
    assert (status, headers["content-type"]) == (200, media_type)
    assert body.startswith(beginning)
    assert len(body) > 1000
    assert ("content-length" in headers) != streamed


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"voice": "nobody"}, "nobody"),
        ({"input": " "}, "input: there is no text"),
        ({"speed": 3.0}, "speed: 3 is not 0.5 to 2"),
        ({"seed": -1}, "seed"),
        ({"response_format": "midi"}, "response_format"),
        ({"stream_format": "sse"}, "stream_format"),
        ({"data_source": "url"}, "data_source"),
    ],
)
def test_a_wrong_request_is_400_with_the_field(dynamo, fields, words):
    status, _, body = ask(dynamo, **fields)
    assert status == 400
    assert words in json.loads(body)["message"]


@pytest.mark.parametrize("setting", ["api_keys_file", "audit_file"])
def test_a_worker_that_should_know_its_callers_does_not_start(setting):
    with pytest.raises(InvalidInput, match=rf"front\.{setting}: 'file' is not accepted; leave it empty"):
        refuse_keys(FrontSettings(**{setting: "file"}))


def test_as_many_at_once_as_there_are_places_are_served(fleet, dynamo):
    with listening([dynamo.frontend], fleet.places) as listeners:
        assert [listener.begin() for listener in listeners] == [200] * fleet.places
        assert fleet.speaking == [PLACES] * len(fleet.servers)


def test_whoever_finds_no_place_gets_503_and_the_workers_stay_in_use(fleet, dynamo):
    """The time to come back is in the frontend's log: it passes no words and no headers of a 503 on."""
    with listening([dynamo.frontend], fleet.places + 3) as listeners:
        statuses = Counter(listener.begin() for listener in listeners)
        assert statuses == {200: fleet.places, 503: 3}
        refused = [listener for listener in listeners if listener.status == 503]
        assert not any("retry-after" in listener.headers for listener in refused)
    assert len(re.findall(r"try again.* retry-after-ms: \d+", dynamo.frontend.told())) >= 3
    eventually(lambda: not any(fleet.speaking))
    with listening([dynamo.frontend], fleet.places) as listeners:
        assert [listener.begin() for listener in listeners] == [200] * fleet.places


def test_the_place_of_a_client_that_leaves_is_free_at_once(fleet, dynamo):
    for _ in range(2):
        with listening([dynamo.frontend], fleet.places) as listeners:
            assert [listener.begin() for listener in listeners] == [200] * fleet.places
        eventually(lambda: not any(fleet.speaking))


def test_a_killed_worker_ends_its_own_streams_alone(fleet, dynamo):
    uncut = Listener(dynamo.frontend, TEXT).whole
    with listening([dynamo.frontend], 6, TEXT) as listeners:
        assert [listener.begin() for listener in listeners] == [200] * 6
        dynamo.workers[0].kill()
        for listener in listeners:
            listener.end()
        whole = [listener for listener in listeners if listener.failure is None]
        assert len(whole) == 4
        assert [difference(listener.whole, uncut) for listener in whole] == [None] * 4
    eventually(lambda: fleet.servers[0].speaking == 0)
    eventually(lambda: dynamo.frontend.workers() == 2)
    assert [Listener(dynamo.frontend, SHORT).end() for _ in range(6)] == [200] * 6


def test_nobody_is_sent_to_a_killed_server_until_it_is_back(fleet, dynamo):
    uncut = Listener(dynamo.frontend, TEXT).whole
    with listening([dynamo.frontend], 6, TEXT) as listeners:
        assert [listener.begin() for listener in listeners] == [200] * 6
        fleet.servers[0].kill()
        eventually(lambda: dynamo.frontend.workers() == 2)
        assert [Listener(dynamo.frontend, SHORT).end() for _ in range(2)] == [200] * 2
        for listener in listeners:
            listener.end()
        whole = [listener for listener in listeners if listener.failure is None]
        assert [difference(listener.whole, uncut) for listener in whole] == [None] * 4
    fleet.servers[0].start()
    eventually(lambda: dynamo.frontend.workers() == 3)
    with listening([dynamo.frontend], fleet.places) as listeners:
        assert [listener.begin() for listener in listeners] == [200] * fleet.places


def test_a_worker_that_is_stopped_ends_its_streams_first(fleet, dynamo):
    uncut = Listener(dynamo.frontend, TEXT).whole
    with listening([dynamo.frontend], 6, TEXT) as listeners:
        assert [listener.begin() for listener in listeners] == [200] * 6
        worker = dynamo.workers[0]
        worker.terminate()
        eventually(lambda: dynamo.frontend.workers() == 2)
        assert [Listener(dynamo.frontend, SHORT).end() for _ in range(2)] == [200] * 2
        assert [difference(listener.whole, uncut) for listener in listeners] == [None] * 6
        worker.join()
    assert worker.process.returncode == 0

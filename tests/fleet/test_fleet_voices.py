"""Voices that clients send to one front, and that every server speaks with through another one."""

from __future__ import annotations

import time
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor

from cosyvoice_client import RefusedError, SpeechClient, SpeechRequest
from eventually import eventually
from tests.fleet.listeners import SHORT, Listener, listening
from voice_uploads import delete, listed, sound, upload

KEPT = 4
"""Voices that are uploaded, more than there are servers."""
SEEN_S, GONE_S = 1.0, 2.0
"""Promises for what another front has done."""
WANTED = 20


def speaks(server, name):
    """Whether a server speaks with a voice, asked past the fronts."""
    try:
        return bool(list(SpeechClient(server.grpc_url).speak(SpeechRequest(SHORT, voice=name, seed=7))))
    except RefusedError:
        return False


def test_a_voice_that_one_front_keeps_speaks_at_every_server_through_another(fleet, fronts_with_voices):
    one, other = fronts_with_voices
    names = [f"voice-{number}" for number in range(KEPT)]
    answers = [upload(one, name=name, recording=sound(2 + place / 10)) for place, name in enumerate(names)]
    assert [answer.status for answer in answers] == [200] * KEPT
    for name in names:
        with listening([other], len(fleet.servers), voice=name) as listeners:
            assert {listener.begin() for listener in listeners} == {200}
            assert fleet.speaking == [1] * len(fleet.servers)


def test_a_voice_is_there_after_a_second_and_gone_after_two(fleet, fronts_with_voices):
    one, other = fronts_with_voices
    assert not any(speaks(server, "brief") for server in fleet.servers)
    assert upload(one, name="brief").status == 200
    time.sleep(SEEN_S)
    assert all(speaks(server, "brief") for server in fleet.servers)
    assert "brief" in listed(other)
    assert delete(other, "brief").status == 200
    time.sleep(GONE_S)
    assert not any(speaks(server, "brief") for server in fleet.servers)
    assert Listener(one, SHORT, voice="brief").end() == 404


def test_of_twenty_that_want_a_name_at_once_one_has_it(fleet, fronts_with_voices):
    def want(number):
        recording = sound(1 + number / 100)
        answer = upload(fronts_with_voices[number % 2], name="wanted", recording=recording)
        while answer.status == 503:  # all places are taken
            time.sleep(float(answer.headers["retry-after-ms"]) / 1000)
            answer = upload(fronts_with_voices[number % 2], name="wanted", recording=recording)
        return answer

    with ThreadPoolExecutor(WANTED) as pool:
        answers = list(pool.map(want, range(WANTED)))
    assert sorted(answer.status for answer in answers) == [200] + [400] * (WANTED - 1)
    assert {answer.error["code"] for answer in answers if answer.status == 400} == {"voice_exists"}
    assert all(speaks(server, "wanted") for server in fleet.servers)


def test_a_bucket_that_is_away_costs_voices_alone_that_were_not_spoken_with_and_comes_back(
    fleet, fronts_with_voices
):
    front = fronts_with_voices[0]
    for name in ("unheard", "kept"):
        assert upload(front, name=name).status == 200
    assert Listener(front, SHORT, voice="kept").end() == 200
    assert all(speaks(server, "kept") for server in fleet.servers)
    reference = {"ref_audio": b64encode(sound()).decode(), "ref_text": "A tone."}
    fleet.bucket.kill()
    assert Listener(front, SHORT, voice="unheard").end() == 503
    assert [Listener(front, SHORT, voice="kept").end() for _ in fleet.servers] == [200] * len(fleet.servers)
    assert Listener(front, SHORT, **reference).end() == 200
    fleet.bucket.start()
    eventually(lambda: Listener(front, SHORT, voice="unheard").end() == 200)

"""Fronts that keep voices in a bucket: what one has done holds for all, and a bucket that is away is said."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from test_front_keys import write_keys

pytest.importorskip("obstore", reason="needs the environment of scripts/environment.py --front")

from cosyvoice_front.command import main as front_command
from cosyvoice_runtime.voice.opening import open_voices
from eventually import eventually
from raw_http import ask
from running_bucket import fresh_url, running_bucket
from voice_uploads import CHECKPOINT, SharingUpstream, delete, listed, upload


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    with running_bucket(tmp_path_factory.mktemp("bucket")) as bucket:
        yield bucket


@pytest.fixture
def url(bucket, monkeypatch):
    return fresh_url(bucket, monkeypatch)


@pytest.fixture
def upstream(url):
    return SharingUpstream(url)


@pytest.fixture
def settings(url, tmp_path):
    keys = write_keys(tmp_path / "keys", anna="sk-anna", bert="sk-bert")
    return {"api_keys_file": keys, "cosyvoice2.voices_url": url, "cosyvoice2.reference_days": 0}


@pytest.fixture
def fronts(start_front, settings):
    return [start_front(**settings) for _ in range(2)]


@pytest.fixture
def server(url, tmp_path):
    """The voices of a server that has analysed none of them."""
    return open_voices(tmp_path / "voices", url, CHECKPOINT)


def spoken(front, key="sk-anna", voice="mine"):
    return ask(front, key, voice=voice).status


def known(server, name="mine"):
    return bool(server.names_of(name))


def test_voice_of_one_front_is_its_owner_s_at_every_other_one_and_at_every_server(fronts, server):
    first, second = fronts
    assert upload(first).status == 200
    assert server.get("mine").transcript == "A tone."
    assert [spoken(second), spoken(second, "sk-bert")] == [200, 404]
    assert "mine" in listed(second, "sk-anna")
    assert "mine" not in listed(second, "sk-bert")
    assert delete(second, "mine", "sk-bert").status == 404
    assert delete(second, "mine").status == 200
    eventually(lambda: not known(server))
    assert "mine" not in listed(first, "sk-anna")
    assert upload(first, "sk-bert").status == 200
    eventually(lambda: spoken(second) == 404)
    assert spoken(second, "sk-bert") == 200


def test_the_same_upload_twice_has_the_same_answer(fronts, upstream):
    first, second = fronts
    answer = upload(first)
    assert answer.status == 200
    assert json.loads(upload(second).body) == json.loads(answer.body)
    assert len(upstream.requests) == 1
    for other in ({"consent": "I agree otherwise."}, {"ref_text": "Another."}, {"public": "true"}):
        assert upload(second, **other).error["code"] == "voice_exists"
    assert upload(second, "sk-bert").error["code"] == "voice_exists"


def test_of_many_at_once_one_has_the_name_and_the_same_client_its_answer_again(fronts):
    keys = ["sk-anna", "sk-bert"] * 5
    with ThreadPoolExecutor(len(keys)) as pool:
        answers = list(pool.map(lambda n: upload(fronts[n // 2 % 2], keys[n]), range(len(keys))))
    owners = {json.loads(answer.body)["owner"] for answer in answers if answer.status == 200}
    assert len(owners) == 1
    assert [answer.status == 200 for answer in answers] == [key == f"sk-{next(iter(owners))}" for key in keys]
    assert {answer.error["code"] for answer in answers if answer.status != 200} == {"voice_exists"}


def test_bucket_that_is_away_is_said_to_who_needs_it_until_it_is_back(start_front, settings, bucket):
    front, strict = start_front(**settings), start_front(**settings, **{"cosyvoice2.voices_grace_s": 0})
    assert upload(front).status == 200
    assert [spoken(each) for each in (front, strict)] == [200, 200]
    bucket.kill()
    try:
        eventually(lambda: spoken(strict) == 503)
        assert [spoken(front), spoken(front, "sk-bert")] == [200, 404]
        front = strict
        for answer in (
            ask(front, "sk-anna", voice="mine"),
            upload(front, name="other"),
            delete(front, "mine"),
        ):
            assert (answer.status, answer.error["code"]) == (503, "overloaded")
            assert "The bucket of the voices can't be reached; try again later" in answer.error["message"]
            assert answer.headers["retry-after"]
        assert ask(front, "sk-anna").status == 200  # the default voice lies in no bucket
    finally:
        bucket.start()
    eventually(lambda: spoken(front) == 200)
    assert delete(front, "mine").status == 200


def test_bucket_that_is_not_there_stops_the_start(url, caplog):
    assert front_command(["cosyvoice2.voices_url=s3://no-such-bucket/voices"]) == 2
    told = (
        "cosyvoice2.voices_url: 's3://no-such-bucket/voices' is not accepted; a bucket that is there, can be"
    )
    assert told in caplog.text

"""The soak against a real server with fake models, which refuse nothing, and a made metrics page."""

from __future__ import annotations

import asyncio
import random
import re
import time
from dataclasses import replace

import numpy as np
import pytest

import soak
from cosyvoice_client import RefusedError, UnavailableError
from measuring.server_processes import Holding, growths
from measuring.work_left import IN_PROGRESS

SEED_OF_THREE_FATES = "5"
"""With it the first requests of three clients have the three fates of a test."""


def page(tmp_path, **values):
    lines = [f'{name}{{model="m"}} {values.get(name, 0.0)}' for name in IN_PROGRESS]
    (tmp_path / "metrics").write_text("\n".join(lines))
    return (tmp_path / "metrics").as_uri()


def run(server, page, *arguments):
    line = ["--url", server.grpc_url, "--metrics", page, "--clients", "3", "--minutes", "0.05"]
    return soak.main([*line, *arguments])


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    monkeypatch.setattr(soak, "SETTLE_S", 0.0)


@pytest.fixture(autouse=True)
def fates(monkeypatch):
    """Of a server that has no token2wav."""
    shares = {fate: share for fate, share in soak.SHARES.items() if fate != "given tokens"}
    monkeypatch.setattr(soak, "SHARES", shares)


@pytest.fixture
def slow_speech(monkeypatch):
    """Who leaves does so long before the end: tritonserver 2.51 may abort when both come together."""
    monkeypatch.setattr(soak, "SENTENCES", {"slow": "chunks=40 pause_ms=100"})


@pytest.mark.usefixtures("slow_speech")
def test_clients_of_every_kind_come_and_nothing_fails(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(soak, "SHARES", {"listen": 2, "leave": 1, "leave at once": 1})
    assert run(server, page(tmp_path), "--seed", SEED_OF_THREE_FATES) == 0
    printed = capsys.readouterr()
    assert all(re.search(rf"\d x {name},", printed.out) for name in soak.SHARES)
    assert printed.err == ""


@pytest.mark.usefixtures("slow_speech")
def test_time_of_the_clients_begins_when_they_come(server, tmp_path, monkeypatch, capsys):
    async def heard_for_longer_than_they_stay(self):
        await asyncio.sleep(3.5)

    monkeypatch.setattr(soak.Soak, "alone", heard_for_longer_than_they_stay)
    monkeypatch.setattr(soak, "SHARES", {"listen": 1})
    assert run(server, page(tmp_path), "--minutes", "0.05") == 0
    assert re.search(r"\d x listen,", capsys.readouterr().out)


def heard(clients, request, *answers):
    """What the outcomes are of a client who listens to these answers to one request."""
    waiting = list(answers)

    async def speak(request):
        return waiting.pop(0)

    clients._speak = speak
    for _ in answers:
        asyncio.run(clients._listen(request, random.Random(0)))
    return dict(clients.outcomes)


def test_audio_that_is_heard_again_has_to_be_the_same():
    samples = np.linspace(-1, 1, 100, dtype=np.float32)
    shorter, other = samples[:-1], samples.copy()
    other[50] += 0.01
    answers = (samples, samples + np.float32(1e-4), samples.copy(), shorter, other)
    outcomes = heard(soak.Soak(client=None, given=None), "request", *answers)
    assert outcomes == {"same but for rounding": 1, "same bits": 1, "read otherwise": 2}


@pytest.mark.parametrize(
    ("message", "killed", "outcome"),
    [
        ("full; try again in 0.001 s", False, "told to come back"),
        ("gone", True, "cut off by a death"),
    ],
)
def test_client_that_is_told_to_come_back_or_cut_off_by_a_death_is_no_failure(message, killed, outcome):
    clients = soak.Soak(client=None, given=None)
    if killed:
        clients._killed_s = time.monotonic()
    asyncio.run(clients._come_back("listen", UnavailableError(message), time.monotonic()))
    assert (dict(clients.outcomes), clients.failures) == ({outcome: 1}, [])


def test_server_that_is_away_for_long_is_one_failure():
    async def run(clients):
        await clients._come_back("listen", UnavailableError("gone"), time.monotonic())
        await clients._back("lm", until=time.monotonic())

    clients = soak.Soak(client=None, given=None)
    clients._killed_s = time.monotonic() - 2 * soak.BACK_S
    asyncio.run(run(clients))
    [failure] = clients.failures
    assert "after lm was killed" in failure


def test_client_that_is_cut_off_while_nothing_died_is_a_failure():
    clients = soak.Soak(client=None, given=None)
    asyncio.run(clients._come_back("listen", UnavailableError("gone"), time.monotonic()))
    assert clients.failures == ["listen: gone"]


@pytest.mark.parametrize(
    ("name", "later", "grown"), [("threads", 100, 0), ("threads", 120, 1), ("memory_mib", 1200.0, 1)]
)
def test_what_a_server_holds_has_to_stay(name, later, grown):
    usual = Holding(memory_mib=1000.0, threads=100, descriptors=50, shared_mib=10.0)
    series = [usual] * 6 + [replace(usual, **{name: later})] * 3
    assert len(growths(series)) == grown


@pytest.mark.parametrize(("otherwise", "failures"), [(0, 0), (5, 0), (6, 1)])
def test_few_requests_may_be_read_otherwise(otherwise, failures):
    clients = soak.Soak(client=None, given=None)
    clients.outcomes.update({"listen": 100, "read otherwise": otherwise})
    assert len(clients.read_otherwise()) == failures


def test_bad_input_that_is_spoken_is_a_failure(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(soak, "SHARES", {"bad input": 1})
    assert run(server, page(tmp_path)) == 1
    assert "failed: not refused" in capsys.readouterr().err


def test_work_left_behind_is_a_failure(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(soak, "SHARES", {"listen": 1})
    assert run(server, page(tmp_path, cosyvoice_lm_active_slots=2.0)) == 1
    assert '2 left in cosyvoice_lm_active_slots{model="m"}' in capsys.readouterr().err


def test_server_that_is_not_there_is_a_failure(server, tmp_path, capsys):
    line = ["--url", "localhost:9", "--metrics", page(tmp_path), "--clients", "1", "--minutes", "0.05"]
    assert soak.main(line) == 1
    assert "failed" in capsys.readouterr().err


def test_server_elsewhere_has_no_process_to_kill(tmp_path):
    line = ["--url", "localhost:9", "--metrics", page(tmp_path), "--kill-minutes", "1"]
    with pytest.raises(SystemExit, match="no tritonserver of this machine"):
        soak.main(line)


def test_server_that_is_not_there_for_given_tokens_is_a_failure(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(soak.SHARES, "given tokens", 1)
    line = ["--url", "localhost:9", "--metrics", page(tmp_path), "--clients", "1", "--minutes", "0.05"]
    assert soak.main(line) == 1
    assert "failed: given tokens: localhost:9" in capsys.readouterr().err


def test_server_that_does_not_open_token2wav_is_asked_for_speech_alone(monkeypatch, capsys):
    class Closed:
        async def speak(self, number):
            raise RefusedError("token2wav is unknown here", "not_found")

    monkeypatch.setitem(soak.SHARES, "given tokens", 1)
    clients = soak.Soak(client=None, given=Closed())
    asyncio.run(clients.alone())
    assert "given tokens" not in clients._shares
    assert "nobody brings speech tokens: token2wav is unknown here" in capsys.readouterr().err


def test_page_without_the_gauges_is_told(server, tmp_path):
    (tmp_path / "metrics").write_text("")
    with pytest.raises(SystemExit, match="has no cosyvoice_inflight_utterances"):
        run(server, (tmp_path / "metrics").as_uri())


def spoken_alone(monkeypatch, *heard, within_db=soak.GIVEN_WITHIN_DB):
    """Clients of given tokens, of which each is heard once alone and then as told."""
    waiting = [*[np.linspace(-1, 1, 4000, dtype=np.float32)] * soak.GIVEN, *heard]

    class Given:
        async def speak(self, number):
            return waiting.pop(0)

    async def run(clients):
        await clients.alone()
        for _ in heard:
            await clients._give_tokens(None, random.Random(0))

    monkeypatch.setitem(soak.SHARES, "given tokens", 1)
    clients = soak.Soak(client=None, given=Given(), given_within_db=within_db)
    asyncio.run(run(clients))
    return clients


def test_given_tokens_have_to_sound_as_they_did_alone(monkeypatch):
    alone = np.linspace(-1, 1, 4000, dtype=np.float32)
    clients = spoken_alone(monkeypatch, alone, -alone)
    assert (clients.failures, clients.farthest_db) == ([], 0.0)
    clients = spoken_alone(monkeypatch, alone, alone[:-1], 2 * alone)
    assert len(clients.failures) == 2
    assert clients.farthest_db == np.inf
    clients = spoken_alone(monkeypatch, alone, 2 * alone, within_db=10)
    assert clients.failures == []
    assert 1 < clients.farthest_db < 10


def test_soak_too_short_for_a_death_is_refused(capsys):
    with pytest.raises(SystemExit):
        soak.main(["--minutes", "2", "--kill-minutes", "1.5"])
    assert "--minutes 2: nobody would be killed; more than 2.5" in capsys.readouterr().err


def test_who_is_told_late_of_a_death_is_a_failure():
    clients = soak.Soak(client=None, given=None)
    clients._killed_s = time.monotonic() - 2 * soak.TOLD_S
    error = UnavailableError("gone")
    asyncio.run(clients._come_back("listen", error, clients._killed_s + 1))
    assert (clients.failures, clients.longest_cut_s) == ([], 0.0)
    asyncio.run(clients._come_back("listen", error, clients._killed_s - 1))
    assert clients.longest_cut_s > soak.TOLD_S
    assert "told of a death" in clients.failures[0]

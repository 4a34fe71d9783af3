"""The soak against a real server with fake models, which refuse nothing, and a made metrics page."""

from __future__ import annotations

import re

import pytest

import soak

SEED_OF_THREE_FATES = "5"
"""With it the first requests of three clients have the three fates of a test."""


def page(tmp_path, **values):
    lines = [f'{name}{{model="m"}} {values.get(name, 0.0)}' for name in soak.IN_PROGRESS]
    (tmp_path / "metrics").write_text("\n".join(lines))
    return (tmp_path / "metrics").as_uri()


def run(server, page, *arguments):
    line = ["--url", server.grpc_url, "--metrics", page, "--clients", "3", "--minutes", "0.05"]
    return soak.main([*line, *arguments])


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    monkeypatch.setattr(soak, "SETTLE_S", 0.0)


@pytest.fixture
def slow_speech(monkeypatch):
    """Who leaves does so long before the end: tritonserver 2.51 may abort when both come together."""
    monkeypatch.setattr(soak, "SENTENCES", {"slow": "chunks=40 pause_ms=50"})


@pytest.mark.usefixtures("slow_speech")
def test_clients_of_every_kind_come_and_nothing_fails(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(soak, "SHARES", {"listen": 2, "leave": 1, "leave at once": 1})
    assert run(server, page(tmp_path), "--seed", SEED_OF_THREE_FATES) == 0
    printed = capsys.readouterr()
    assert all(re.search(rf"\d x {name},", printed.out) for name in soak.SHARES)
    assert printed.err == ""


@pytest.mark.parametrize(("otherwise", "failures"), [(0, 0), (5, 0), (6, 1)])
def test_few_requests_may_be_read_otherwise(otherwise, failures):
    clients = soak.Soak(client=None)
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


def test_page_without_the_gauges_is_told(server, tmp_path):
    (tmp_path / "metrics").write_text("")
    with pytest.raises(SystemExit, match="has no cosyvoice_inflight_utterances"):
        run(server, (tmp_path / "metrics").as_uri())

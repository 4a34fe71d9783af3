"""The clients that leave, against a real server with fake models, and a made metrics page."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

import disconnects
from cosyvoice_runtime.process.processes import living
from measuring.work_left import IN_PROGRESS

LEAVERS = 8
SEED_OF_FOUR_FATES = "0"
"""With it eight clients have all four fates."""


@pytest.fixture
def page(tmp_path):
    def write(**values) -> str:
        lines = [f'{name}{{model="m"}} {values.get(name, 0.0)}' for name in IN_PROGRESS]
        (tmp_path / "metrics").write_text("\n".join(lines))
        return (tmp_path / "metrics").as_uri()

    return write


@pytest.fixture(autouse=True)
def slow_speech(monkeypatch):
    """Who leaves does so long before the end: tritonserver 2.51 may abort when both come together."""
    monkeypatch.setattr(disconnects, "SENTENCES", {"slow": "chunks=40 pause_ms=100"})
    monkeypatch.setattr(disconnects, "SPOKEN", ("slow",))
    monkeypatch.setattr(disconnects, "HEARD", ("slow",))
    monkeypatch.setattr(disconnects, "LONGEST_STAY_S", 0.5)
    monkeypatch.setattr(disconnects, "SETTLE_S", 0.0)


def own_server() -> str:
    """Process id of the tritonserver that this process has started."""
    own = [each for each in living() if each.parent == os.getpid()]
    return str(next(each.pid for each in own if Path(each.command[0]).name == "tritonserver"))


def run(server, page: str, output: Path) -> int:
    line = ["--url", server.grpc_url, "--http", server.http_url, "--metrics", page, "--server", own_server()]
    fates = ["--count", str(LEAVERS), "--clients", "4", "--seed", SEED_OF_FOUR_FATES]
    return disconnects.main([*line, *fates, "--output", str(output)])


def test_clients_leave_in_every_way_and_two_hear_the_same_as_alone(server, page, tmp_path):
    assert run(server, page(), tmp_path / "figures.json") == 0
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert set(figures["left"]) == set(disconnects.SHARES)
    assert sum(figures["left"].values()) == LEAVERS
    assert set(figures["heard"]) == {"bit-equal"}
    assert figures["largest_difference"] == 0
    assert figures["before"]["server"] == figures["after"]["server"] == int(own_server())
    assert figures["after"]["shared_memory"] > 0


def test_work_left_behind_is_a_failure(server, page, tmp_path):
    assert run(server, page(cosyvoice_lm_active_slots=2.0), tmp_path / "figures.json") == 1
    failures = json.loads((tmp_path / "figures.json").read_text())["failures"]
    assert failures == ['2 left in cosyvoice_lm_active_slots{model="m"}']


@pytest.mark.parametrize(("otherwise", "failures"), [(0, 0), (5, 0), (6, 1)])
def test_few_sentences_may_be_read_otherwise(otherwise, failures):
    everybody = disconnects.Disconnects.__new__(disconnects.Disconnects)
    everybody.failures = []
    everybody.heard = Counter({"bit-equal": 100 - otherwise, "read otherwise": otherwise})
    assert len(disconnects.failures_of(everybody, {})) == failures

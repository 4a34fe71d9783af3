"""The table of the fleet's drills."""

from __future__ import annotations

import pytest

import fleet
from drills.outcome import Outcome


class Standing:
    """A fleet that nothing happens to."""

    healed = 0

    def heal(self) -> None:
        self.healed += 1


@pytest.fixture
def standing(monkeypatch: pytest.MonkeyPatch) -> Standing:
    """Two drills without servers, of which one shows a fault, and one that lacks a module."""
    outcome = Outcome(requests=6, resumed=2, silences=1, silence_s=0.3, took_s={"until it is back": 1.25})
    drills = [
        fleet.Drill("calm", fleet.EACH, lambda on: outcome),
        fleet.Drill("faulty", (on := fleet.ENVOY,), lambda _: Outcome(faults=[f"cut {on}"])),
        fleet.Drill("absent", fleet.EACH, lambda _: Outcome(faults=["never"]), ("no_such.module",)),
    ]
    monkeypatch.setattr(fleet, "DRILLS", drills)
    monkeypatch.setattr(fleet, "versions", lambda: {"Envoy": "1.40.0"})
    monkeypatch.setattr(fleet, "stages", stages)
    return Standing()


@fleet.contextmanager
def stages(*_):
    yield dict.fromkeys((*fleet.EACH, fleet.BOTH))


def test_drills_are_shown_as_one_table_with_versions(standing, tmp_path, capsys):
    report = fleet.drills(standing, tmp_path, fleet.parse([]))
    told = capsys.readouterr()
    assert (report["faults"], len(report["rows"]), standing.healed) == (1, 3, 3)
    assert "Envoy 1.40.0" in told.out
    row = "| calm | round robin | 6 | 0 | 2 | 0 | 1 (0.3 s) | 0.0 | 0 | until it is back: 1.2 |"
    assert row in told.out
    assert "cut Envoy" in told.err


def test_some_drills_alone_are_done(standing, tmp_path):
    report = fleet.drills(standing, tmp_path, fleet.parse(["--only", "calm"]))
    assert [row["way"] for row in report["rows"]] == list(fleet.EACH)

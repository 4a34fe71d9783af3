"""How the product's plans of turns do in simulated time, which no machine's speed changes."""

from __future__ import annotations

import simulated_turns
from measuring.turn_simulation import OF_FEW, OF_MANY, Division, Figures, Simulation

SECONDS = 8.0


def filled(figures: Figures) -> float:
    return figures.filled["blocks"] / figures.filled["room"]


def run(division: Division, clients: int) -> Figures:
    return Simulation(division, SECONDS, clients).run()


def test_turns_of_many_clients_have_little_room_left():
    assert filled(run(OF_MANY, 64)) > 0.92
    assert filled(run(OF_FEW, 16)) > 0.9


def test_everybody_who_speaks_is_served_to_the_end():
    figures = run(OF_FEW, 4)
    assert figures.utterances > 40
    assert figures.late == 0
    assert max(figures.first_s) < 0.15


def test_runs_of_one_seed_are_alike():
    assert run(OF_MANY, 40) == run(OF_MANY, 40)


def test_command_shows_each_load(capsys):
    simulated_turns.main(["--clients", "2,40", "--rate", "3", "--seconds", "6", "--seeds", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["2 clients", "40 clients", "3 a second"]
    assert all(int(line.split("|")[2]) > 0 for line in lines[2:])

"""How the product's plans of turns do in simulated time, which no machine's speed changes."""

from __future__ import annotations

import simulated_turns
from measuring.turn_simulation import OF_FEW, OF_MANY, Division, Figures, Simulation, some_long

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


def test_who_comes_at_once_leaves_pages_to_those_before():
    figures = Simulation(OF_MANY, SECONDS, clients=32, pages=150).run()
    assert figures.lost == 0
    assert figures.tokens > 25 * 100 * SECONDS / 2


def test_long_answers_do_not_take_everybodys_pages():
    figures = Simulation(OF_MANY, 2 * SECONDS, clients=32, pages=150, lengths=some_long).run()
    assert figures.lost > 0
    assert figures.tokens > 25 * 60 * SECONDS


def test_runs_of_one_seed_are_alike():
    assert run(OF_MANY, 40) == run(OF_MANY, 40)


def test_command_shows_each_load(capsys):
    simulated_turns.main(["--clients", "2,40", "--rate", "3", "--seconds", "6", "--seeds", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["2 clients", "40 clients", "3 a second"]
    assert all(int(line.split("|")[2]) > 0 for line in lines[2:])


def test_command_takes_pages_and_answers(capsys):
    simulated_turns.main(
        ["--clients", "32", "--rate", "", "--pages", "60", "--answers", "some-long", "--seconds", "6"]
    )
    [line] = capsys.readouterr().out.splitlines()[2:]
    assert int(line.split("|")[7].split()[0]) > 0

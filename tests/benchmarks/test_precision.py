"""What half precision changes, of a checkpoint at hand."""

from __future__ import annotations

import re
import sys

import pytest

import precision
from making import make_checkpoint


def measured(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(precision, "SECONDS", 1)
    monkeypatch.setattr(sys, "argv", ["precision.py", *map(str, arguments)])
    precision.main()


def test_a_checkpoint_is_measured_in_place_of_random_weights(tiny_checkpoint, monkeypatch, capsys):
    measured(monkeypatch, "--checkpoint", tiny_checkpoint)
    said = capsys.readouterr().out
    assert str(tiny_checkpoint) in said
    figures = dict(re.findall(r"\| (\w+) \| .* \| (\S+) \| \S+ \|\n", said))
    assert 30 < float(figures["bfloat16"]) < float(figures["float16"])


def test_a_family_that_it_does_not_know_is_sent_to_the_check(tmp_path, monkeypatch, capsys):
    checkpoint = make_checkpoint(tmp_path / "checkpoint", family="cosyvoice300m")
    with pytest.raises(SystemExit):
        measured(monkeypatch, "--checkpoint", checkpoint)
    assert "./run.sh check compares cosyvoice300m" in capsys.readouterr().err

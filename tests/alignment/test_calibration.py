"""The heads of a checkpoint that follow the text, found without true times."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cosyvoice_runtime.alignment.__main__ import main

DEMO = Path(__file__).parents[2] / "demo_voice"
FILE = "alignment_heads.json"


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts"
    path.write_text("The train leaves at seven.\n\nWe could hear the river.\nPut it on the table.\n")
    return path


def copied(checkpoint: Path, place: Path) -> Path:
    shutil.copytree(checkpoint, place, ignore=shutil.ignore_patterns("training", "SHA256SUMS", FILE))
    return place


def test_heads_of_the_demo_voice(tmp_path, texts, capsys):
    demo = copied(DEMO, tmp_path / "demo")
    assert main(["calibrate", str(demo), "--texts", str(texts)]) == 0
    found = json.loads((demo / FILE).read_text())
    assert found["heads"][0] == [1, 1]
    assert 0.5 < found["lead_rows"] < 2.5
    assert "layer 1 head 1" in capsys.readouterr().out


def test_speech_lm_that_follows_no_text_gets_no_file(tmp_path, tiny_checkpoint, texts, capsys):
    tiny = copied(tiny_checkpoint, tmp_path / "tiny")
    assert main(["calibrate", str(tiny), "--texts", str(texts)]) == 1
    assert capsys.readouterr().err.startswith("alignment: ")
    assert not (tiny / FILE).exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--voice", "nobody"], "alignment: voice: 'nobody'"),
        (["--texts", "one"], "alignment: texts: "),
        (["--texts", "none"], "alignment: "),
    ],
)
def test_wrong_options_are_told_in_a_line(tmp_path, tiny_checkpoint, options, problem, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("one").write_text("A single line.\n")
    assert main(["calibrate", str(tiny_checkpoint), *options]) == 1
    error = capsys.readouterr().err
    assert error.startswith(problem)
    assert error.count("\n") == 1

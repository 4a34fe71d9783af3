"""The command line that upstream's users know, with errors instead of silence."""

from __future__ import annotations

import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from fill_template import main

SCRIPT = Path(__file__).parents[2] / "scripts" / "fill_template.py"


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "config.pbtxt"
    path.write_text('max_batch_size: ${max_batch}\ndir: "${model_dir}" again "${model_dir}"\n')
    return path


def fill(*arguments: object) -> subprocess.CompletedProcess[str]:
    """What the command does, without a process of its own."""
    words = [*map(str, arguments)]
    with redirect_stdout(StringIO()) as printed, redirect_stderr(StringIO()) as complained:
        status = main(words)
    return subprocess.CompletedProcess(words, status, printed.getvalue(), complained.getvalue())


def test_in_place_writes_the_file(template):
    command = [sys.executable, SCRIPT, "-i", template, "max_batch:8,model_dir:/models"]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert (answer.returncode, answer.stdout) == (0, "")
    assert template.read_text() == 'max_batch_size: 8\ndir: "/models" again "/models"\n'


def test_without_in_place_the_result_goes_to_stdout(template):
    before = template.read_text()
    assert fill(template, "max_batch:8,model_dir:x").stdout == 'max_batch_size: 8\ndir: "x" again "x"\n'
    assert template.read_text() == before


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("http://host:80/x", "http://host:80/x"),
        (r"a\,b", "a,b"),
        (r"a\\b", r"a\\b"),  # one backslash, escaped for the quotes of the configuration
        ("", ""),
    ],
)
def test_values_with_special_characters(template, written, meant):
    answer = fill(template, f"max_batch:8,model_dir:{written}")
    assert answer.stdout.splitlines()[1] == f'dir: "{meant}" again "{meant}"'


@pytest.mark.parametrize(
    ("substitutions", "message"),
    [
        ("max_batch:8", "no value for ${model_dir}"),
        ("max_batch:8,model_dir:x,engine_dir:y,zeta:z", "no placeholder for ${engine_dir}, ${zeta}"),
        ("max_batch:8,model_dir", "substitution 'model_dir' is not key:value"),
        ("max_batch:8,model_dir:a,model_dir:b", "substitution for ${model_dir} is given twice"),
    ],
)
def test_misfit_is_named_and_nothing_is_written(template, substitutions, message):
    before = template.read_text()
    answer = fill("-i", template, substitutions)
    assert answer.returncode == 1
    assert message in answer.stderr
    assert template.read_text() == before


def test_missing_file_is_named(tmp_path):
    answer = fill("-i", tmp_path / "none.pbtxt", "a:b")
    assert answer.returncode == 1
    assert "none.pbtxt" in answer.stderr

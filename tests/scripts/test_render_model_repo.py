from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cosyvoice_runtime.settings import Settings

SCRIPT = Path(__file__).parents[2] / "scripts" / "render_model_repo.py"


def render(tmp_path: Path, *settings: str) -> subprocess.CompletedProcess[str]:
    model = tmp_path / "templates" / "audio_tokenizer"
    model.mkdir(parents=True, exist_ok=True)
    fields = Settings().audio_tokenizer.placeholders()
    (model / "config.pbtxt").write_text("\n".join(f"{name}: ${{{name}}}" for name in fields))
    locations = ["--templates", str(model.parent), "--output", str(tmp_path / "out")]
    return subprocess.run(
        [sys.executable, str(SCRIPT), *locations, *settings], capture_output=True, text=True
    )


def test_run_twice_says_that_nothing_changed(tmp_path):
    assert "1 files written" in render(tmp_path, "max_batch=2").stdout
    assert "unchanged, nothing to do" in render(tmp_path, "max_batch=2").stdout
    assert "written" in render(tmp_path, "max_batch=3").stdout
    assert "max_batch: 3" in (tmp_path / "out" / "audio_tokenizer" / "config.pbtxt").read_text()


def test_chosen_values_are_told(tmp_path):
    assert "audio_tokenizer.threads: auto is 1" in render(tmp_path, "device=cpu").stderr


def test_unknown_setting_is_an_error(tmp_path):
    answer = render(tmp_path, "max_bach=2")
    assert answer.returncode == 2
    assert "did you mean max_batch?" in answer.stderr
    assert not (tmp_path / "out").exists()

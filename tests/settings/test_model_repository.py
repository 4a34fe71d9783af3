"""Rendering of templates into a model repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings import Machine, Settings
from cosyvoice_runtime.settings.repository import TemplateError, read, render, write

SETTINGS = Settings.read(["speaker_embedding.max_batch=3"]).resolved(Machine(cores=2, gpu=False))
MODEL = "speaker_embedding"


def template(fields: list[str]) -> str:
    lines = [f'parameters {{ key: "{name}" value {{ string_value: "${{{name}}}" }} }}' for name in fields]
    return "\n".join(["max_batch_size: ${max_batch}", *lines]) + "\n"


@pytest.fixture
def templates(tmp_path: Path) -> Path:
    model = tmp_path / "model_repo" / MODEL
    (model / "1" / "__pycache__").mkdir(parents=True)
    (model / "config.pbtxt").write_text(template(list(SETTINGS.for_model(MODEL).placeholders())))
    (model / "probe.json").write_text('{"inputs": {}}')
    (model / "1" / "model.py").write_text('"""Not a template: ${this} stays."""\n')
    (model / "1" / "__pycache__" / "model.pyc").write_bytes(b"\0")
    return model.parent


def test_fields_are_filled_and_code_is_copied(templates):
    files = render(templates, SETTINGS)
    assert sorted(map(str, files)) == [
        f"{MODEL}/1/model.py",
        f"{MODEL}/config.pbtxt",
        f"{MODEL}/probe.json",
    ]
    configuration = files[Path(MODEL, "config.pbtxt")].decode()
    assert configuration.startswith("max_batch_size: 3\n")
    assert "${" not in configuration
    assert b"${this} stays" in files[Path(MODEL, "1/model.py")]


def test_placeholder_without_setting_is_an_error(templates):
    with (templates / MODEL / "config.pbtxt").open("a") as file:
        file.write("${max_bach}")
    with pytest.raises(TemplateError, match=r"speaker_embedding/config\.pbtxt: no value for \$\{max_bach\}"):
        render(templates, SETTINGS)


def test_setting_without_placeholder_is_an_error(templates):
    fields = [name for name in SETTINGS.for_model(MODEL).placeholders() if name != "threads"]
    (templates / MODEL / "config.pbtxt").write_text(template(fields))
    with pytest.raises(TemplateError, match=r"speaker_embedding: no placeholder for \$\{threads\}"):
        render(templates, SETTINGS)


def test_model_without_settings_is_an_error(templates):
    (templates / MODEL).rename(templates / "vocoder")
    with pytest.raises(InvalidInput, match="model: 'vocoder'"):
        render(templates, SETTINGS)


def test_folder_without_models_is_an_error(tmp_path):
    with pytest.raises(TemplateError, match=r"no <model>/config\.pbtxt in it"):
        render(tmp_path, SETTINGS)


def test_quotes_and_backslashes_stay_inside_the_string(templates):
    settings = Settings.read([r'checkpoint_dir=/a"b\c']).resolved(Machine(cores=2, gpu=False))
    configuration = render(templates, settings)[Path(MODEL, "config.pbtxt")].decode()
    assert r'string_value: "/a\"b\\c"' in configuration


def test_second_write_changes_nothing(templates, tmp_path):
    files, output = render(templates, SETTINGS), tmp_path / "out" / "repository"
    assert write(files, output)
    (output / MODEL / "1" / "__pycache__").mkdir()
    (output / MODEL / "1" / "__pycache__" / "model.pyc").write_bytes(b"\0")
    written = output.stat().st_ino
    assert not write(files, output)
    assert output.stat().st_ino == written
    assert read(output) == files


def test_changed_or_stale_output_is_replaced_whole(templates, tmp_path):
    files, output = render(templates, SETTINGS), tmp_path / "repository"
    write(files, output)
    (output / MODEL / "probe.json").write_text("edited")
    (output / "old_model").mkdir()
    (output / "old_model" / "config.pbtxt").touch()
    assert write(files, output)
    assert read(output) == files
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_output_that_is_no_model_repository_is_left_alone(templates, tmp_path):
    output = tmp_path / "home"
    output.mkdir()
    (output / "letter.txt").write_text("dear")
    with pytest.raises(TemplateError, match=r"holds letter\.txt, which is no model"):
        write(render(templates, SETTINGS), output)
    assert (output / "letter.txt").read_text() == "dear"

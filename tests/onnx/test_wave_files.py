"""token2wav's files for ONNX Runtime: what is used as it is, and what is refused and made anew."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cosyvoice_runtime.errors import EngineFileError
from cosyvoice_runtime.onnx.session import GRAPHS, EstimatorFormats, graph_path
from cosyvoice_runtime.token2wav.onnx_export import export_wave
from cosyvoice_runtime.token2wav.onnx_files import require_wave, wave_directory

FLOAT32 = EstimatorFormats()


@pytest.fixture(scope="module")
def exported(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    backend = tmp_path_factory.mktemp("exported")
    export_wave(tiny_checkpoint, backend, FLOAT32)
    return backend


@pytest.fixture
def copied(exported: Path, tmp_path: Path) -> Path:
    return shutil.copytree(exported, tmp_path / "backend")


def test_current_files_are_used_and_left_alone(tiny_checkpoint, copied):
    directory = wave_directory(copied)
    before = {path: path.stat().st_mtime_ns for path in directory.iterdir()}
    assert {path.name for path in before} == {
        *(f"{name}.onnx" for name in GRAPHS),
        "SHA256SUMS",
        "manifest.json",
    }
    assert export_wave(tiny_checkpoint, copied, FLOAT32) == []
    assert {path: path.stat().st_mtime_ns for path in directory.iterdir()} == before
    assert require_wave(tiny_checkpoint, copied, FLOAT32) == directory


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_damaged_graph_is_refused_by_its_name_and_made_anew(tiny_checkpoint, copied, name, damage):
    path = graph_path(wave_directory(copied), name)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    if damage != "gone":
        path.write_bytes(content if damage == "changed" else content[: len(content) // 2])
    with pytest.raises(EngineFileError, match=f"{name}.onnx is missing or damaged; stage 1 makes it"):
        require_wave(tiny_checkpoint, copied, FLOAT32)
    assert export_wave(tiny_checkpoint, copied, FLOAT32) == [f"{path} is missing or damaged"]
    require_wave(tiny_checkpoint, copied, FLOAT32)


def test_graphs_without_checksums_are_refused(tiny_checkpoint, copied):
    (wave_directory(copied) / "SHA256SUMS").unlink()
    with pytest.raises(EngineFileError, match="is missing or damaged"):
        require_wave(tiny_checkpoint, copied, FLOAT32)
    assert len(export_wave(tiny_checkpoint, copied, FLOAT32)) == len(GRAPHS)


def test_nothing_there_is_told(tiny_checkpoint, tmp_path):
    with pytest.raises(EngineFileError, match=r"manifest\.json is missing: .*stage 1"):
        require_wave(tiny_checkpoint, tmp_path, FLOAT32)


def test_graphs_for_other_pages_are_refused_by_the_setting_that_differs(tiny_checkpoint, copied):
    with pytest.raises(EngineFileError, match="option page_format was 'float32' when built, now 'float8'"):
        require_wave(tiny_checkpoint, copied, EstimatorFormats(pages="float8"))


def test_graphs_of_other_formats_are_refused_and_made_anew(tiny_checkpoint, copied):
    changed = [
        f"option {name} was 'float32' when built, now '{now}'"
        for name, now in (("page_format", "float16"), ("weight_format", "int8"))
    ]
    with pytest.raises(EngineFileError, match="; ".join(changed)):
        require_wave(tiny_checkpoint, copied, EstimatorFormats("int8", "float16"))
    before = graph_path(wave_directory(copied), "flow_estimator_cpu").stat().st_size
    assert export_wave(tiny_checkpoint, copied, EstimatorFormats("int8", "float16")) == changed
    assert graph_path(wave_directory(copied), "flow_estimator_cpu").stat().st_size < before
    require_wave(tiny_checkpoint, copied, EstimatorFormats("int8", "float16"))

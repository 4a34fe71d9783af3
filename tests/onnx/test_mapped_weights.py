"""Weights that nobody reads any more leave memory, and only those."""

from __future__ import annotations

from mmap import ACCESS_COPY, PAGESIZE, mmap
from pathlib import Path

from cosyvoice_runtime.lm.onnx.export import FloatArrays, write_lm
from cosyvoice_runtime.lm.onnx.files import LmFiles
from cosyvoice_runtime.lm.onnx.speech_lm import OnnxSpeechLM
from cosyvoice_runtime.onnx.memory import forget_mapped, mappings

PAGES = 64


def test_a_mapped_file_leaves_memory_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "two words.bin"
    path.write_bytes(b"weight" * PAGESIZE)
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_COPY) as mapped:
        content = mapped[:]
        [before] = mappings(path)
        assert before.resident == before.end - before.start == len(content)
        forget_mapped(path)
        [after] = mappings(path)
        assert after == before._replace(resident=0)
        assert mapped[:] == content


def test_what_was_written_into_a_mapping_stays(tmp_path: Path) -> None:
    path = tmp_path / "written.bin"
    path.write_bytes(bytes(PAGES * PAGESIZE))
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_COPY) as mapped:
        mapped[PAGESIZE] = 1
        forget_mapped(path)
        assert mapped[PAGESIZE] == 1
        [mapping] = mappings(path)
        assert mapping.own == PAGESIZE


def test_weights_of_an_open_speech_lm_are_not_in_memory_twice(config, published, tmp_path: Path) -> None:
    files = LmFiles(tmp_path)
    write_lm(config, FloatArrays({name: tensor.numpy() for name, tensor in published.items()}), files, "int8")
    opened = OnnxSpeechLM(config, files, threads=1)
    mapped = [mapping for file in (files.weights, files.prompt_weights) for mapping in mappings(file)]
    assert mapped
    assert not any(mapping.resident for mapping in mapped)
    del opened
    assert not mappings(files.weights)

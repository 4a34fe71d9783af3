"""Sessions share an arena, and freed memory goes back to the system."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from cosyvoice_runtime import onnx_memory
from cosyvoice_runtime.onnx_cpu.session import open_session
from cosyvoice_runtime.voice.onnx_model import OnnxModel, Port
from resident import resident_bytes

BLOCK, BLOCKS = 32 << 10, 4000
"""Blocks that come from the heap, for the C library maps larger ones, and have others' between them."""


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ("n",)) for name in ("x", "y")]
    body = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "negative", ports[:1], ports[1:])
    path = tmp_path / "negative.onnx"
    onnx.save(helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_sessions_compute_in_one_arena(graph: Path) -> None:
    port = Port(("tensor(float)",), ("n",))
    sessions = [open_session(graph, 1), OnnxModel(graph, [port], port, 1)._session]
    for session in sessions:
        options = session.get_session_options()
        assert options.get_session_config_entry("session.use_env_allocators") == "1"
        [found] = session.run(None, {"x": np.arange(3, dtype=np.float32)})
        assert found.tolist() == [0, -1, -2]


@pytest.mark.skipif(onnx_memory._trim() is None, reason="the C library has no malloc_trim")
def test_freed_heap_goes_back_to_the_system() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    before = resident_bytes()
    blocks = [libc.malloc(BLOCK) for _ in range(BLOCKS)]
    for block in blocks:
        ctypes.memset(block, 1, BLOCK)
    for block in blocks[: BLOCKS - 1]:
        libc.free(block)  # the last one, above them all, stays
    held = resident_bytes() - before
    onnx_memory.give_back_heap()
    assert held > BLOCK * BLOCKS // 2
    assert resident_bytes() - before < BLOCK * BLOCKS // 8
    libc.free(blocks[-1])


def test_a_c_library_that_cannot_trim_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_memory, "LIBC", "libc-of-another-kind.so")
    onnx_memory._trim.cache_clear()
    try:
        onnx_memory.give_back_heap()
        assert onnx_memory._trim() is None
    finally:
        onnx_memory._trim.cache_clear()

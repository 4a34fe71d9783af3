"""Sessions share an arena, and freed memory goes back to the system."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cosyvoice_runtime.onnx import memory as onnx_memory
from cosyvoice_runtime.onnx.session import open_session
from cosyvoice_runtime.voice.onnx_model import OnnxModel, Port
from resident import resident_bytes

LAYERS, NUMBERS = 24, 4 << 20
"""So many layers of so many numbers, of which each keeps the last one for later."""
BLOCK, BLOCKS = 32 << 10, 4000
"""Blocks that come from the heap, for the C library maps larger ones, and have others' between them."""


pytestmark = pytest.mark.usefixtures("no_garbage_goes")


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


@pytest.fixture
def keeping_graph(tmp_path: Path) -> Path:
    nodes, kept, x = [], [], "x"
    for layer in range(LAYERS):
        read, keeps, y = (f"{name}.{layer}" for name in ("read", "keeps", "y"))
        nodes.append(helper.make_node("Concat", [x, "one"], [read], axis=0))
        nodes.append(helper.make_node("Slice", [read, "last", "end"], [keeps]))
        nodes.append(helper.make_node("Sin", [read], [y]))
        kept, x = [*kept, keeps], y
    nodes.append(helper.make_node("ReduceSum", [x], ["sum"], keepdims=1))
    numbers = np.ones(1, np.float32), np.array([-1]), np.array([np.iinfo(np.int64).max])
    weights = [
        numpy_helper.from_array(value, name)
        for name, value in zip(("one", "last", "end"), numbers, strict=True)
    ]
    x_port = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n",))
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1,)) for name in ("sum", *kept)]
    body = helper.make_graph(nodes, "keeping", [x_port], made, weights)
    path = tmp_path / "keeping.onnx"
    onnx.save(helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_what_layers_keep_for_later_does_not_hold_what_it_is_cut_from(keeping_graph: Path) -> None:
    session, x = open_session(keeping_graph, 1), np.zeros(NUMBERS, np.float32)
    little = {"x": x[:1]}
    session.run(None, little, onnx_memory.giving_back_arena())
    before = resident_bytes()
    session.run(None, {"x": x})
    held = resident_bytes() - before
    session.run(None, little, onnx_memory.giving_back_arena())
    assert held < LAYERS * x.nbytes // 3


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

"""The preflight's list of TensorRT's symbols: complete, and true of a real library of that family."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from cosyvoice_runtime import tensorrt as compiled
from cosyvoice_runtime.preflight.checks import Symbol, Verdict, check_symbols, overloads
from cosyvoice_runtime.preflight.tensorrt_llm import TENSORRT, TENSORRT_USED
from cuda_fake import FakeCuda
from tensorrt_fake import fake_tensorrt


def failures(used=TENSORRT_USED) -> dict[str, str]:
    return {
        outcome.check: f"{outcome.verdict.value} {outcome.text}"
        for outcome in check_symbols(used)
        if outcome.verdict is not Verdict.PASS
    }


@pytest.mark.parametrize("version", ["10.14.1.48", "11.4.0.106"])
def test_stand_in_has_them(monkeypatch, version):
    monkeypatch.setitem(sys.modules, TENSORRT, fake_tensorrt(FakeCuda(), version))
    assert failures() == {}


def test_real_library_has_them(monkeypatch):
    monkeypatch.setitem(sys.modules, TENSORRT, pytest.importorskip("tensorrt_rtx_bindings"))
    assert failures() == {}


def test_overloads_that_pybind11_numbers_are_read():
    trt = pytest.importorskip("tensorrt_rtx_bindings")
    found = overloads(trt.ICudaEngine.create_execution_context)
    assert len(found) > 1
    assert any("strategy" in names for names in found)


def test_parameter_or_method_that_is_gone_fails(monkeypatch):
    monkeypatch.setitem(sys.modules, TENSORRT, pytest.importorskip("tensorrt_rtx_bindings"))
    wrong = [Symbol(TENSORRT, "Builder.create_network", "kinds"), Symbol(TENSORRT, "Runtime.load")]
    assert failures(wrong) == {
        "tensorrt.Builder.create_network": "FAIL takes no kinds",
        "tensorrt.Runtime.load": "FAIL does not exist",
    }


def test_every_method_that_the_engines_call_is_listed():
    """Whatever the fake offers and the code of the engines names is in the list."""
    fake = fake_tensorrt(FakeCuda())
    methods = [symbol.name.split(".") for symbol in TENSORRT_USED if "." in symbol.name]
    owners = [getattr(fake, owner) for owner, _ in methods]
    offered = {name for owner in owners for name in vars(owner) if not name.startswith("_")}
    sources = Path(compiled.__file__).parent.glob("*.py")
    nodes = [node for path in sources for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    named = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    listed = {method for _, method in methods}
    listed |= {name for symbol in TENSORRT_USED for name in symbol.attributes.split()}
    shared = {"cuda", "inputs", "outputs", "shapes", "check", "serialize"}  # names of other objects as well
    assert (offered & named) - shared <= listed

"""What is used of TensorRT, and what its stand-in offers, against the bindings of both releases."""

from __future__ import annotations

import ctypes
import enum
import inspect
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from cosyvoice_runtime.lm.engines.tensorrt_llm import LIBRARIES
from cosyvoice_runtime.preflight.tensorrt_llm import TENSORRT_USED
from cuda_fake import FakeCuda
from empty_library import write_library
from tensorrt_bindings import RELEASES, ask
from tensorrt_fake import fake_tensorrt

CHECK = """
from cosyvoice_runtime.preflight.checks import check_symbols
from cosyvoice_runtime.preflight.tensorrt_llm import TENSORRT_USED
print(json.dumps([[outcome.check, outcome.verdict.value] for outcome in check_symbols(TENSORRT_USED)]))
"""
DESCRIBE = """
from cosyvoice_runtime.preflight.checks import overloads
kinds = {name: kind for name, kind in vars(trt).items() if isinstance(kind, type)}
enums = {
    name: {member: int(value) for member, value in kind.__members__.items()}
    for name, kind in kinds.items() if hasattr(kind, "__members__")
}
methods = {
    f"{name}.{method}": [sorted(names) for names in overloads(getattr(kind, method))]
    for name, kind in kinds.items() for method in dir(kind)
    if not method.startswith("_") and callable(getattr(kind, method))
}
print(json.dumps({"enums": enums, "methods": methods}))
"""
NUMPY = """
import numpy
arrays = [numpy.arange(12, dtype=numpy.float32).reshape(3, 4)]
print(json.dumps([trt.Weights(array).numpy().tolist() for array in arrays]))
"""


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def described(release: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Members of all enums, and parameters of each overload of all methods."""
    return ask(release, DESCRIBE, tmp_path_factory.mktemp("libraries"))


@pytest.fixture(scope="module")
def fake(release: str) -> Any:
    return fake_tensorrt(FakeCuda(), release)


def test_pinned_release_is_one_of_them():
    assert [release for release in RELEASES if release.startswith(LIBRARIES["tensorrt"])]


def test_release_has_every_symbol_parameter_and_enum_that_is_used(release: str, tmp_path: Path):
    outcomes = ask(release, CHECK, tmp_path)
    assert len(outcomes) > 30
    assert {check: verdict for check, verdict in outcomes if verdict != "pass"} == {}


def test_stand_in_has_no_enum_member_that_the_release_lacks(described, fake):
    """Their numbers count where they are shifted into a mask."""
    kinds = {name: kind for name, kind in vars(fake).items() if isinstance(kind, type)}
    offered = {name: kind for name, kind in kinds.items() if issubclass(kind, enum.Enum)}
    assert len(offered) == 6
    for name, kind in offered.items():
        assert set(kind.__members__) <= described["enums"][name].keys(), name
    flags = described["enums"]["NetworkDefinitionCreationFlag"]
    assert int(fake.NetworkDefinitionCreationFlag.STRONGLY_TYPED) == flags["STRONGLY_TYPED"]


def test_stand_in_takes_no_parameter_that_the_release_does_not_take(described, fake):
    for name in [symbol.name for symbol in TENSORRT_USED if "." in symbol.name]:
        taken = inspect.signature(attrgetter(name)(fake)).parameters
        assert any(set(taken) <= set(names) for names in described["methods"][name]), name


def test_weights_come_from_arrays_of_the_pinned_numpy(tmp_path: Path):
    assert ask(RELEASES[0], NUMPY, tmp_path) == [[float(value) for value in range(12)]]


def test_library_without_the_function_is_told_apart(tmp_path: Path):
    """The empty library has what it was given and no more: a release that links to more can't be imported."""
    write_library(tmp_path / "some.so", ["first", "second"])
    library = ctypes.CDLL(str(tmp_path / "some.so"))
    assert (library.first(), library.second()) == (0, 0)
    with pytest.raises(AttributeError, match="third"):
        _ = library.third

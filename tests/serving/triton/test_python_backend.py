"""The stand-in for Triton's Python backend, against what the server's own package brings."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import triton_python_backend_utils as fake

VERSION = "{}.{}".format(*sys.version_info)
CLASSES = (fake.TritonError, fake.Tensor, fake.InferenceResponse, fake.ResponseSender, fake.InferenceRequest)


@pytest.fixture(scope="module")
def server() -> Path:
    """Folder of the installed tritonserver."""
    spec = find_spec("pytriton")
    assert spec is not None, "nvidia-pytriton is missing: scripts/environment.py --test installs it"
    return Path(next(iter(spec.submodule_search_locations))) / "tritonserver"


@pytest.fixture(scope="module")
def stub(server: Path) -> bytes:
    """The program of a model's process, where the classes, methods and enums are defined by their names."""
    return (server / "python_backend_stubs" / VERSION / "triton_python_backend_stub").read_bytes()


def defines(stub: bytes, name: str) -> bool:
    """Whether the name ends a text in the program; a linker lets one text be the end of another."""
    return name.encode() + b"\0" in stub


@pytest.mark.parametrize("kind", CLASSES)
def test_methods_and_members_are_those_of_the_backend(stub, kind):
    names = [name for name, value in vars(kind).items() if callable(value) or isinstance(value, int)]
    names = [name for name in names if not name.startswith("_")]
    assert names
    assert [name for name in names if not defines(stub, name)] == []


def test_name_that_the_backend_lacks_is_told_apart(stub):
    assert not defines(stub, "requested_output_name")

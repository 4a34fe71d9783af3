"""A launch finds what was compiled for it, and the Triton language is asked for nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cosyvoice_runtime.gpu.kernels import launch
from cosyvoice_runtime.gpu.kernels.launch import Launcher, cdiv, launched, next_power_of_2

STREAM = 77


class Compiled:
    """A compiled kernel that notes its launches."""

    global_scratch_size = profile_scratch_size = 0
    launch_cooperative_grid, launch_pdl = False, True
    function, packed_metadata = "function", "metadata"
    arg_annotations, kernel_signature = "annotations", b"signature"

    def __init__(self) -> None:
        self.run = self
        self.launches: list[tuple[Any, ...]] = []

    def launch(self, *arguments: Any) -> None:
        self.launches.append(arguments)


class Language:
    """The Triton language: compiles by type and alignment of tensors, and the other arguments."""

    def __init__(self) -> None:
        self.compiled: list[Compiled] = []
        self.scratch = 0

    def run(self, *_arguments: Any, grid: tuple[int, ...], warmup: bool, **_options: Any) -> Compiled:
        assert grid
        assert not warmup
        self.compiled.append(Compiled())
        self.compiled[-1].global_scratch_size = self.scratch
        return self.compiled[-1]


@pytest.fixture(params=["3.6.0", "3.7.1"])
def version(request, monkeypatch) -> str:
    """The Triton language's."""
    monkeypatch.setattr(launch.triton, "__version__", request.param)
    return request.param


@pytest.fixture
def device(monkeypatch, version):
    """The number of the current one."""
    now = SimpleNamespace(number=0)
    active = SimpleNamespace(
        get_current_device=lambda: now.number, get_current_stream=lambda device: STREAM + device
    )
    monkeypatch.setattr(launch, "driver", SimpleNamespace(active=active))
    return now


@pytest.fixture
def language() -> Language:
    return Language()


@pytest.fixture
def kernel(device, language) -> Any:
    return Launcher(language)


def test_first_launch_is_the_languages_and_later_ones_go_to_what_it_compiled(kernel, language, version):
    x, y = torch.zeros(16), torch.zeros(16)
    for _ in range(3):
        kernel[2, 3](x, y, 5, 0.5, num_warps=4)
    [compiled] = language.compiled
    begin, own = (2, 3, 1, STREAM, "function", False, True), (x.data_ptr(), y.data_ptr(), 5, 0.5)
    expected = {
        "3.6.0": (*begin, None, None, "metadata", None, None, None, *own),
        "3.7.1": (*begin, "metadata", *[None] * 5, "annotations", b"signature", own),
    }
    assert compiled.launches == [expected[version]] * 2


@pytest.mark.parametrize(
    ("x", "number", "warps"),
    [
        (torch.zeros(16, dtype=torch.int32), 5, 4),
        (torch.zeros(17)[1:], 5, 4),
        (torch.zeros(16), 6, 4),
        (torch.zeros(16), 5, 8),
    ],
    ids=["another type", "not aligned", "another number", "another option"],
)
def test_launch_that_may_be_compiled_otherwise_is_the_languages(x, number, warps, kernel, language):
    for _ in range(2):
        kernel[1,](torch.zeros(16), 5, num_warps=4)
        kernel[1,](x, number, num_warps=warps)
    assert [len(compiled.launches) for compiled in language.compiled] == [1, 1]


def test_each_device_has_its_own(kernel, language, device):
    for device.number in (0, 1, 0, 1):
        kernel[1,](torch.zeros(16), num_warps=4)
    assert [compiled.launches[0][3] for compiled in language.compiled] == [STREAM, STREAM + 1]


def test_tensors_of_one_type_and_alignment_share_what_was_compiled(kernel, language, version):
    tensors = [torch.zeros(size) for size in (16, 64, 1024)]
    for tensor in tensors:
        kernel[1,](tensor, num_warps=4)
    [compiled] = language.compiled
    pointers = [tensor.data_ptr() for tensor in tensors[1:]]
    own = [(pointer,) for pointer in pointers] if version == "3.7.1" else pointers
    assert [each[-1] for each in compiled.launches] == own


def test_kernel_that_needs_memory_at_every_launch_is_the_languages(kernel, language):
    language.scratch = 128
    for _ in range(3):
        kernel[1,](torch.zeros(16), num_warps=4)
    assert [compiled.launches for compiled in language.compiled] == [[], [], []]


def test_no_more_is_remembered_than_there_may_be(kernel, language, monkeypatch):
    monkeypatch.setattr(launch, "MOST", 4)
    for number in (*range(9), 8):
        kernel[1,](torch.zeros(16), number, num_warps=4)
    assert len(language.compiled) == 9
    assert len(language.compiled[-1].launches) == 1


def test_interpreted_kernel_is_left_as_it_is():
    interpreted = object()
    assert launched(interpreted) is interpreted


@pytest.mark.parametrize(("version", "ours"), [("3.6.0", True), ("3.7.1", True), ("3.8.0", False)])
def test_launcher_of_a_version_nobody_knows_is_the_languages(version, ours, monkeypatch, caplog):
    class Jitted(Language):
        pass

    monkeypatch.setattr(launch, "JITFunction", Jitted)
    monkeypatch.setattr(launch.triton, "__version__", version)
    caplog.set_level("INFO")
    assert isinstance(launched(Jitted()), Launcher) is ours
    assert (version in caplog.text) is not ours


@pytest.mark.parametrize(("total", "each", "parts"), [(1, 4, 1), (4, 4, 1), (5, 4, 2)])
def test_parts(total, each, parts):
    assert cdiv(total, each) == parts


@pytest.mark.parametrize(("number", "power"), [(1, 1), (2, 2), (3, 4), (50, 64), (64, 64)])
def test_power_of_two(number, power):
    assert next_power_of_2(number) == power


def test_a_tensor_behind_other_arguments_is_refused(kernel):
    x = torch.zeros(16)
    with pytest.raises(TypeError, match="not among the first 1 arguments"):
        kernel[1,](x, 5, x)
    kernel[1,](x, 5)
    with pytest.raises(TypeError, match="not among the first 1 arguments"):
        kernel[1,](x, x, 5)

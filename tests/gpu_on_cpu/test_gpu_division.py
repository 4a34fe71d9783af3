"""A divided GPU: steps go on beside turns, and where it can't be divided they take shifts."""

from __future__ import annotations

import dataclasses
import logging
import sys
import types

import pytest
import torch

from cosyvoice_runtime.gpu.partitions import division as gpu_division
from cosyvoice_runtime.gpu.partitions import partition as gpu_parts
from cosyvoice_runtime.gpu.partitions.division import (
    FEW,
    FEW_AGAIN,
    FIRST_LANES_OF_FEW,
    ROOMY_BYTES,
    STILL,
    GpuDivision,
    share_gpu,
)
from cosyvoice_runtime.gpu.partitions.partition import (
    GpuPart,
    GpuParts,
    GpuPartsError,
    steps_part,
)
from cosyvoice_runtime.gpu.partitions.shared_gpu import GpuShifts

NO_PARTS = GpuParts(None, None, ())  # type: ignore[arg-type]
OF_MANY, OF_FEW = GpuPart(None, 32, None), GpuPart(None, 48, None)  # type: ignore[arg-type]
TWO_DIVISIONS = GpuParts(OF_MANY, OF_FEW, (OF_MANY,), GpuParts(OF_FEW, OF_MANY, (OF_FEW,)))


def test_step_does_not_wait_for_a_turn_and_knows_of_it():
    gpu = GpuDivision(NO_PARTS)
    assert not gpu.turning
    with gpu.turn(), gpu.step(urgent=False):
        assert gpu.turning
    with pytest.raises(RuntimeError), gpu.turn():
        raise RuntimeError("a turn failed")
    assert not gpu.turning


def test_what_the_speech_lm_leaves_is_of_its_latest_engine_and_taken_once():
    gpu = GpuDivision(TWO_DIVISIONS)
    first, second = (lambda rest: None), (lambda rest: None)
    assert gpu.leave([first])
    assert gpu.leave([second])
    assert [*gpu.take_later()] == [second]
    assert [*gpu.take_later()] == []
    assert not gpu.leave([first])


def test_shifts_leave_nothing():
    assert not GpuShifts().leave([lambda rest: None])
    assert [*GpuShifts().take_later()] == []


def test_turn_may_begin_before_another_ends():
    gpu = GpuDivision(NO_PARTS)
    first, second = gpu.turn(), gpu.turn()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gpu.turning
    second.__exit__(None, None, None)
    assert not gpu.turning


def test_steps_have_a_part_beside_turns_and_the_whole_gpu_otherwise():
    gpu = GpuDivision(dataclasses.replace(TWO_DIVISIONS, of_few=None))
    gpu.divide_for_few()
    assert gpu.steps is None
    with gpu.turn():
        assert gpu.steps is OF_MANY
        assert not gpu.few(1)
        assert gpu.steps is OF_MANY


def test_gpu_is_divided_otherwise_for_many_until_they_are_few_by_far():
    gpu = GpuDivision(TWO_DIVISIONS)
    seen = []
    with gpu.turn():
        assert not gpu.few(1)  # whose lanes are not ready yet
        gpu.divide_for_few()
        assert gpu.steps is OF_MANY  # nobody has asked since
        for utterances in (1, FEW, FEW + 1, FEW, FEW_AGAIN + 1, FEW_AGAIN, FEW):
            few = gpu.few(utterances)
            seen.append(few)
            assert gpu.steps is (OF_FEW if few else OF_MANY)
    assert seen == [True, True, False, False, False, True, True]


def test_steps_stand_still_beside_first_chunks_while_few_speak():
    gpu = GpuDivision(NO_PARTS)
    with gpu.first_chunk(STILL):
        with pytest.raises(RuntimeError), gpu.first_chunk(1):
            raise RuntimeError("a turn failed")
        assert gpu.stands_still
    assert not gpu.stands_still
    with gpu.first_chunk(STILL + 1):
        assert not gpu.stands_still
        with gpu.first_chunk(STILL):
            assert gpu.stands_still
        assert not gpu.stands_still


def test_end_of_each_first_chunk_for_which_steps_stand_is_told_when_it_is_seen():
    told, gpu = [], GpuDivision(NO_PARTS)
    gpu.when_free(lambda: told.append(gpu.stands_still))
    with gpu.first_chunk(STILL), gpu.first_chunk(STILL):
        pass
    assert told == [True, False]
    with gpu.first_chunk(STILL + 1):
        pass
    assert told == [True, False]


def test_few_have_several_lanes_for_urgent_chunks_on_the_part_for_steps(dividing):
    dividing(132)
    parts = share_gpu(0, 0.25, share_of_few=0.37).parts
    assert [part.multiprocessors for part in parts.first] == [32]
    assert [part.multiprocessors for part in parts.of_few.first] == [48] * FIRST_LANES_OF_FEW
    own = [parts.of_few.steps, *parts.of_few.first]
    assert len({stream for part in own for stream in (part.stream, part.second)}) == 2 * len(own)


def test_shifts_know_no_few():
    assert not GpuShifts().few(1)
    assert GpuShifts().steps is None
    with GpuShifts().first_chunk(1):
        assert not GpuShifts().stands_still


def test_divided_gpu_is_shared_at_the_same_time(monkeypatch):
    parts = GpuParts(OF_MANY, OF_FEW, (OF_MANY,))
    monkeypatch.setattr(gpu_division, "divide", lambda device, share: parts)
    shared = share_gpu(1, 0.25)
    assert isinstance(shared, GpuDivision)
    assert shared.parts is parts


@pytest.mark.parametrize(
    ("share_of_few", "memory", "turns_of_few"),
    [
        (0.37, ROOMY_BYTES, 84),
        (0.25, ROOMY_BYTES, None),
        (0.29, ROOMY_BYTES, None),
        (0.0, ROOMY_BYTES, None),
        (0.37, ROOMY_BYTES - 1, None),
    ],
    ids=["two divisions", "the same share", "the same parts", "none", "little memory"],
)
def test_gpu_with_room_is_divided_twice(dividing, caplog, share_of_few, memory, turns_of_few):
    dividing(132, memory)
    with caplog.at_level(logging.INFO):
        parts = share_gpu(0, 0.25, share_of_few=share_of_few).parts
    assert parts.turns.multiprocessors == 100
    assert (parts.of_few and parts.of_few.turns.multiprocessors) == turns_of_few
    assert ("84 for batches" in caplog.text) == (turns_of_few is not None)
    assert ("it has less than 40 GiB" in caplog.text) == (memory < ROOMY_BYTES)


def test_gpu_that_is_not_divided_twice_is_divided_once(monkeypatch, dividing, caplog):
    divide = dividing(132)

    def once(device, share, first_lanes=1):
        if share > 0.25:
            raise GpuPartsError("enough")
        return divide(device, share, first_lanes)

    monkeypatch.setattr(gpu_division, "divide", once)
    assert share_gpu(0, 0.25, share_of_few=0.37).parts.of_few is None
    assert "one division of the GPU, however many speak: enough" in caplog.text


@pytest.mark.parametrize(("share", "level"), [(0.0, logging.INFO), (0.25, logging.WARNING)])
def test_gpu_that_is_not_divided_is_shared_in_shifts_and_the_log_says_why(monkeypatch, caplog, share, level):
    def refuse(device: torch.device, share: float) -> GpuParts:
        raise GpuPartsError("too old")

    monkeypatch.setattr(gpu_division, "divide", refuse)
    with caplog.at_level(logging.INFO):
        assert isinstance(share_gpu(0, share), GpuShifts)
    [record] = caplog.records
    assert record.levelno == level
    assert "shifts" in record.message


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(GpuPartsError, match="cuda-bindings"):
        gpu_parts.divide(torch.device("cuda", 0), 0.25)


def test_driver_without_a_function_is_too_old(monkeypatch):
    class Driver:
        def __getattr__(self, name):
            raise RuntimeError(f'Function "{name}" not found')

    bindings = types.ModuleType("cuda.bindings")
    bindings.driver = Driver()
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    gpu = types.SimpleNamespace(major=9, name="a GPU", multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    assert isinstance(share_gpu(0, 0.25), GpuShifts)
    with pytest.raises(GpuPartsError, match=r"too old.*cuDeviceGet"):
        gpu_parts.divide(torch.device("cuda", 0), 0.25)


@pytest.mark.parametrize(
    ("multiprocessors", "major", "share", "part"),
    [
        *((132, 9, 0.25, 32), (132, 9, 0.4, 48), (142, 9, 0.25, 32), (114, 9, 0.01, 8)),
        *((108, 8, 0.25, 26), (58, 8, 0.25, 14), (58, 8, 0.01, 4), (40, 7, 0.25, 10), (170, 12, 0.25, 40)),
    ],
)
def test_part_for_steps_has_a_number_that_a_gpu_can_give(multiprocessors, major, share, part):
    assert steps_part(multiprocessors, share, major) == part


def test_parts_are_the_whole_gpu(dividing):
    parts = dividing(132)(GPU, 0.25)
    [first] = parts.first
    assert parts.steps.multiprocessors == first.multiprocessors == 32
    assert parts.turns.multiprocessors == 100


GPU = torch.device("cuda", 0)


@pytest.fixture
def dividing(monkeypatch):
    """``divide`` on a GPU of so many multiprocessors, by a driver that gives multiples of 8."""

    def on(multiprocessors: int, memory: int = ROOMY_BYTES):
        bindings = types.ModuleType("cuda.bindings")
        bindings.driver = Driver(multiprocessors)
        monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
        monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
        gpu = types.SimpleNamespace(major=9, name="a GPU", multi_processor_count=multiprocessors)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (memory, memory))
        monkeypatch.setattr(torch.cuda, "ExternalStream", lambda stream, device: stream)
        return gpu_parts.divide

    return on


class Driver:
    """Divides a GPU as CUDA's does."""

    CUdevResourceType = types.SimpleNamespace(CU_DEV_RESOURCE_TYPE_SM=1)
    CUgreenCtxCreate_flags = types.SimpleNamespace(CU_GREEN_CTX_DEFAULT_STREAM=1)
    CUstream_flags = types.SimpleNamespace(CU_STREAM_NON_BLOCKING=1)

    def __init__(self, multiprocessors: int) -> None:
        self.whole = _resource(multiprocessors)
        self.streams = 0

    def cuDeviceGet(self, number):  # noqa: N802
        return 0, number

    def cuDeviceGetDevResource(self, device, kind):  # noqa: N802
        return 0, self.whole

    def cuDevSmResourceSplitByCount(self, parts, whole, flags, each):  # noqa: N802
        count = min(parts, whole.sm.smCount // each)
        return 0, [_resource(each)] * count, count, _resource(whole.sm.smCount - count * each)

    def cuDevResourceGenerateDesc(self, resources, count):  # noqa: N802
        return 0, resources

    def cuGreenCtxCreate(self, *_):  # noqa: N802
        return 0, 1

    def cuGreenCtxStreamCreate(self, *_):  # noqa: N802
        self.streams += 1
        return 0, self.streams


def _resource(multiprocessors: int) -> types.SimpleNamespace:
    return types.SimpleNamespace(sm=types.SimpleNamespace(smCount=multiprocessors))

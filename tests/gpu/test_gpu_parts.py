"""Steps of the speech LM that change between a GPU and a part of it, as turns of token2wav begin and end."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from cosyvoice_runtime.engine.batches.router import Preparation
from cosyvoice_runtime.gpu.partitions.division import GpuDivision
from cosyvoice_runtime.gpu.partitions.partition import GpuPart, GpuParts, GpuPartsError, divide, steps_part
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.engine import LmEngine, prepare_engine
from cosyvoice_runtime.settings import Machine, TensorrtLlmSettings

DEVICE = torch.device("cuda", 0)
SLOTS, POSITIONS = 6, 512


class OftenTurning(GpuDivision):
    """Steps that have the whole GPU or a part by turns, with every change from one to another.

    The part of few is left alone until it is ready, as ever: its graphs are captured in its stream.
    """

    looks = 0

    @property
    def steps(self) -> GpuPart | None:
        assert self.parts.of_few is not None
        many = self.parts.steps
        few = self.parts.of_few.steps if self.few(1) else many
        self.looks += 1
        return (None, many, few, many, None, few)[self.looks % 6]


@pytest.fixture(scope="module")
def parts() -> GpuParts:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    try:
        return dataclasses.replace(divide(DEVICE, 0.25), of_few=divide(DEVICE, 0.37, first_lanes=2))
    except GpuPartsError as error:
        pytest.skip(str(error))


@contextmanager
def engine(checkpoint: Path, dtype: str, shared: SharedGpu | None = None) -> Iterator[LmEngine]:
    settings = TensorrtLlmSettings(
        checkpoint_dir=checkpoint,
        engine="torch",
        device="cuda",
        dtype=dtype,
        max_slots=SLOTS,
        max_tokens=200,
        max_sequence_tokens=POSITIONS,
        kv_cache_tokens=SLOTS * POSITIONS,
    )
    opened = prepare_engine(settings.resolved(Machine(cores=1, gpu=True)), shared)()
    try:
        yield opened
    finally:
        opened.close()


def spoken(engine: LmEngine) -> list[list[int]]:
    """Tokens of utterances that begin at different steps."""
    found: dict[object, list[int]] = {}
    running, steps = 0, 0
    while running or len(found) < SLOTS:
        if steps % 4 == 0 and len(found) < SLOTS:
            options = SamplingOptions("ras", min_tokens=50, max_tokens=80, seed=len(found))
            prompt = Prompt(list(range(1, 10 + 30 * len(found))))
            found[engine.add(prompt, options)] = []
            running += 1
        for progress in engine.step():
            found[progress.handle] += progress.tokens
            running -= progress.finish_reason is not None
        steps += 1
    return list(found.values())


def spoken_on_parts(
    checkpoint: Path, parts: GpuParts, dtype: str, meanwhile: bool = False
) -> list[list[int]]:
    """
    Args:
        meanwhile: the second part's graphs are captured while utterances are spoken, not before.
    """
    gpu = OftenTurning(parts)
    with engine(checkpoint, dtype, gpu) as shared:
        gc.collect()  # graphs of engines before: freeing one ends a capture
        preparation = Preparation(gpu.take_later(), gpu.divide_for_few)
        preparation.start()
        try:
            if not meanwhile:
                preparation._thread.join()
            tokens = spoken(shared)
            preparation._thread.join()
        finally:
            preparation.close()
        assert gpu.few(1)
        if meanwhile:
            assert spoken(shared) == tokens
    assert gpu.looks > 3
    return tokens


def test_parts_are_the_whole_gpu(parts):
    count = torch.cuda.get_device_properties(DEVICE).multi_processor_count
    [first] = parts.first
    assert (
        parts.steps.multiprocessors
        == first.multiprocessors
        == steps_part(count, 0.25, torch.cuda.get_device_capability()[0])
    )
    assert parts.steps.multiprocessors + parts.turns.multiprocessors == count


def test_tokens_do_not_depend_on_where_steps_are_made(checkpoint, parts):
    """In half precision they do, now and then: tiles of a part add in another order."""
    with engine(checkpoint, "float32") as alone:
        expected = spoken(alone)
    assert spoken_on_parts(checkpoint, parts, "float32") == expected


def test_graphs_of_a_part_may_be_captured_while_others_are_replayed(checkpoint, parts):
    with engine(checkpoint, "float32") as alone:
        expected = spoken(alone)
    assert spoken_on_parts(checkpoint, parts, "float32", meanwhile=True) == expected


def test_the_same_turns_give_the_same_tokens_in_half_precision(checkpoint, parts):
    """No step reads what another has not written yet."""
    first, *again = (spoken_on_parts(checkpoint, parts, "bfloat16") for _ in range(3))
    assert again == [first] * 2

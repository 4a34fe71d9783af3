from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from capture_fake import ComputedAgain
from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.flow.kernels.choice import fused_solver
from cosyvoice_runtime.flow.kernels.fused_dit import DiTTiles
from cosyvoice_runtime.flow.solvers import EULER, SOLVERS
from cosyvoice_runtime.flow.torch.call_inputs import BatchShape, PagedInputs
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.graphed_calls import CallBuckets
from cosyvoice_runtime.flow.torch.paged_call import PagedCall
from cosyvoice_runtime.flow.torch.pages import PagePool
from cosyvoice_runtime.flow.torch.stream import FlowStream
from cosyvoice_runtime.flow.voice_flow import TokenSpan
from cosyvoice_runtime.gpu.kernels.tiles import LEAN, UNET_TILES, UNSPLIT, Tile, Tiles
from small_flow import CONFIG, COSYVOICE3, random_flow, random_prompt, random_tokens
from small_places import random_places
from streams import check_captured

TILES = Tiles(
    qkv=Tile(16, 16),
    attention=Tile(0, 0),
    out=Tile(16, 16),
    widen=Tile(32, 16, repeat=2),
    narrow=Tile(16, 16, 32),
    conv=Tile(32, 16),
    euler=Tile(16, 0),
    joint=Tile(0, 16),
    apart=True,
    pages_per_split=2,
    max_splits=3,
)
DIT_TILES = DiTTiles(
    norm=Tile(4, 0),
    enter=Tile(16, 16, 16),
    conv=Tile(32, 0),
    qkv=Tile(16, 16, 16),
    out=Tile(16, 16),
    widen=Tile(32, 16, 16),
    narrow=Tile(16, 16, 32),
    leave=Tile(16, 16, 32),
    pages_per_split=2,
    max_splits=3,
)


@dataclass(frozen=True)
class SolverKind:
    """Of a family: its flow, and the kernels that take its steps."""

    config: FlowConfig
    tiles: Tiles | DiTTiles

    def flow(self, num_steps: int | None, solver: str = EULER) -> Flow:
        return random_flow(num_steps=num_steps, config=self.config, solver=solver)

    def without_guidance(self) -> SolverKind:
        return replace(self, config=replace(self.config, cfg_rate=0.0))

    def fused(self, flow: Flow) -> Any:
        return fused_solver(flow)


COSYVOICE2_STEPS = SolverKind(CONFIG, TILES)
COSYVOICE3_STEPS = SolverKind(COSYVOICE3, DIT_TILES)
FAMILIES = pytest.mark.parametrize(
    "family", [COSYVOICE2_STEPS, COSYVOICE3_STEPS], ids=["cosyvoice2", "cosyvoice3"]
)
UNGUIDED = pytest.mark.parametrize("guided", [True, False], ids=["guided", "without guidance"])


def spans_of(starts: list[int], counts: list[int]) -> list[TokenSpan]:
    return [
        TokenSpan(random_prompt(30, row), start, count, np.array(random_tokens(count + 3, row)))
        for row, (start, count) in enumerate(zip(starts, counts, strict=True))
    ]


@FAMILIES
@pytest.mark.parametrize(
    ("starts", "counts", "guided"),
    [
        ([100], [25], True),
        ([0, 75], [25, 7], True),
        ([50, 0], [1, 30], True),
        ([25], [3], True),
        ([0, 75], [25, 7], False),
    ],
)
@torch.inference_mode()
def test_fused_steps_equal_the_plain_ones(starts, counts, guided, family):
    family = family if guided else family.without_guidance()
    flow = family.flow(num_steps=1)
    pool = PagePool(flow, 20)
    for pages in (pool.token_pages, pool.frame_pages, pool.estimator_pages):
        pages[2:].normal_()
    spans = spans_of(starts, counts)
    shape = BatchShape.of(spans, 25)
    held = [pool.acquire(start // 25 + -(-count // 25)) for start, count in zip(starts, counts, strict=True)]
    pool.estimator_pages[2:].normal_()
    for tails in (pool.token_tails, pool.frame_tails, pool.estimator_tails):
        tails[2:].normal_()
    inputs = PagedInputs(flow, shape, spans, held)
    pages_before, tails_before = pool.estimator_pages.clone(), pool.estimator_tails.clone()
    plain = PagedCall(flow, pool, inputs)
    expected = plain.run()
    pages_expected, tails_expected = pool.estimator_pages.clone(), pool.estimator_tails.clone()
    pool.estimator_pages.copy_(pages_before)
    pool.estimator_tails.copy_(tails_before)
    fused = PagedCall(flow, pool, inputs)
    started = fused.start()
    places = fused.solver_places(started)
    family.fused(flow).solve(fused.mel, started.conditions, places, tiles=family.tiles)
    places.keep_tails(pool.estimator_tails)
    for row, count in enumerate(counts):
        torch.testing.assert_close(
            fused.mel[row, : 2 * count], expected[row, : 2 * count], atol=1e-4, rtol=1e-4
        )
    torch.testing.assert_close(pool.estimator_tails, tails_expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(pool.estimator_pages[2:], pages_expected[2:], atol=1e-4, rtol=1e-4)


@FAMILIES
@pytest.mark.parametrize(("starts", "counts"), [([100], [25]), ([0, 75], [25, 7]), ([50, 0], [1, 30])])
@torch.inference_mode()
def test_fused_steps_keep_and_see_the_codes_of_the_plain_ones(starts, counts, family):
    flow = family.flow(num_steps=1)
    flow.codes_pages = True
    pool, spans = PagePool(flow, 20), spans_of(starts, counts)
    held = [pool.acquire(start // 25 + -(-count // 25)) for start, count in zip(starts, counts, strict=True)]
    pool.estimator_pages[2:].random_(-127, 128)
    pool.estimator_scales[2:].uniform_(0.001, 0.02)
    inputs = PagedInputs(flow, BatchShape.of(spans, 25), spans, held)
    before = pool.estimator_pages.clone(), pool.estimator_scales.clone()
    expected = PagedCall(flow, pool, inputs).run()
    kept = pool.estimator_pages.clone(), pool.estimator_scales.clone()
    pool.estimator_pages.copy_(before[0])
    pool.estimator_scales.copy_(before[1])
    call = PagedCall(flow, pool, inputs)
    started = call.start()
    family.fused(flow).solve(call.mel, started.conditions, call.solver_places(started), tiles=family.tiles)
    for row, count in enumerate(counts):
        apart = (call.mel[row, : 2 * count] - expected[row, : 2 * count]).norm()
        assert (
            apart / expected[row, : 2 * count].norm() < 3e-4
        )  # a number may fall to the code beside its own
    torch.testing.assert_close(pool.estimator_scales[2:], kept[1][2:], atol=1e-4, rtol=2e-3)
    codes_apart = (pool.estimator_pages[2:].int() - kept[0][2:].int()).abs()
    assert codes_apart.max() <= 1
    assert codes_apart.float().mean() < 1e-3


@FAMILIES
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("num_steps", [1, 2, 4, 7])
@torch.inference_mode()
def test_any_number_of_fused_steps_of_any_solver_equals_the_plain_ones(num_steps, solver, family):
    check_all_steps(family.flow(num_steps, solver), family)


@FAMILIES
@UNGUIDED
@pytest.mark.parametrize("solver", SOLVERS)
@torch.inference_mode()
def test_fused_steps_of_a_distilled_flow_equal_the_plain_ones(solver, guided, family):
    family = replace(family, config=replace(family.config, times=(0.0, 0.3, 0.8)))
    family = family if guided else family.without_guidance()
    check_all_steps(family.flow(None, solver), family)


def check_all_steps(flow: Flow, family: SolverKind) -> None:
    """Compare the mel after all steps, after a second of finished speech of chance."""
    pool, spans = PagePool(flow, 2), spans_of([25], [3])
    for pages in (pool.estimator_pages, pool.estimator_tails):
        pages[2:].normal_()
    inputs = PagedInputs(flow, BatchShape.of(spans, 25), spans, [pool.acquire(2)])
    expected = PagedCall(flow, pool, inputs).run()
    call = PagedCall(flow, pool, inputs)
    started = call.start()
    family.fused(flow).solve(call.mel, started.conditions, call.solver_places(started), tiles=family.tiles)
    torch.testing.assert_close(call.mel, expected, atol=1e-4, rtol=1e-4)


@FAMILIES
@torch.inference_mode()
def test_the_first_of_two_steps_is_that_of_the_plain_way(family):
    flow = family.flow(num_steps=2)
    pool, spans = PagePool(flow, 8), spans_of([0], [5])
    inputs = PagedInputs(flow, BatchShape.of(spans, 25), spans, [pool.acquire(1)])
    plain, fused = (PagedCall(flow, pool, inputs) for _ in range(2))
    plain.step(plain.start())
    started = fused.start()
    places = fused.solver_places(started)
    family.fused(flow).solve(fused.mel, started.conditions, places, steps=1, tiles=family.tiles)
    torch.testing.assert_close(fused.mel[0, :10], plain.mel[0, :10], atol=1e-4, rtol=1e-4)


@FAMILIES
def test_captured_calls_with_fused_steps_speak_a_whole_utterance(family):
    flow = family.flow(num_steps=1)
    stream = FlowStream(flow, num_pages=20)
    buckets = CallBuckets(rows=(1,), blocks=(1,), before=(1, 4))
    capture = ComputedAgain()
    assert stream.capture(buckets, capture, family.fused(flow)) == 2
    assert stream.fused
    assert capture.warm_ups == 1  # the steps, which take longest
    check_captured(stream, random_prompt(30, 1), random_tokens(12, 3))


@FAMILIES
def test_a_solver_for_a_part_of_the_gpu_packs_no_weights_of_its_own(family):
    whole = family.fused(family.flow(num_steps=1))
    part = whole.on(8)
    kept = vars(whole).keys() - {"_multiprocessors"}
    assert kept
    assert {name for name in kept if vars(part)[name] is not vars(whole)[name]} == set()


def test_a_solver_for_a_part_of_the_gpu_takes_the_tiles_of_that_part():
    solver = COSYVOICE2_STEPS.fused(COSYVOICE2_STEPS.flow(num_steps=1))
    places = random_places([1] * 16, [50] * 16, page_frames=50)
    programs = places.rows * solver._estimator.layout.heads
    assert solver.on(132)._tiles(places) is UNSPLIT
    assert solver.on(programs // 2)._tiles(places) is UNET_TILES.of(32 * 50 / (programs // 2))
    assert solver.on(-(-programs // 3))._tiles(places).joint == LEAN


@torch.inference_mode()
def test_ten_steps_in_half_precision_stay_near_single():
    """Weights are rounded, too; few programs, because the interpreter pays for each."""
    flow, truth = (random_flow(dtype, 10, config=COSYVOICE3) for dtype in (torch.float16, torch.float32))
    layer = Tile(128, 32, 32)
    tiles = DiTTiles(
        norm=Tile(128, 0), enter=layer, conv=Tile(128, 0), qkv=layer, out=layer, widen=layer, narrow=layer,
        leave=Tile(64, 32, 32),
    )  # fmt: skip
    mels = {}
    for each in (flow, truth):
        pool, [span] = PagePool(each, 1), spans_of([0], [25])
        shape = BatchShape.of([span], 25)
        inputs = PagedInputs(each, shape, [span], [pool.acquire(1)])
        call = PagedCall(each, pool, inputs)
        if each is flow:
            started = call.start(masked=False)
            solver = fused_solver(each)
            solver.solve(call.mel, started.conditions, call.solver_places(started), tiles=tiles)
        else:
            call.run()
        mels[each] = call.mel
    assert (mels[flow] - mels[truth]).norm() / mels[truth].norm() < 1e-3

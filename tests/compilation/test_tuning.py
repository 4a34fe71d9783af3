"""The tuner compiles what it tries without a GPU, and keeps the fastest tiles of each kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tune_kernels
from compile_kernels import CARDS
from cosyvoice_runtime.compilation.forms import Form
from cosyvoice_runtime.gpu.kernels.rows import ADA, read_row, write_row
from cosyvoice_runtime.gpu.kernels.tiles import Tile
from measuring.sizes import FAMILIES
from measuring.tiles_to_try import UNET
from tune_kernels import Work, compile_all, tuned, with_tiles, work_of


@pytest.mark.parametrize(("family", "capability"), [("cosyvoice2", (8, 7)), ("cosyvoice3", (11, 0))])
def test_each_amount_has_work_and_its_kernels_are_compiled(family, capability, monkeypatch):
    """No other test of this process has found forms for these compute capabilities."""
    taken: list[Form] = []

    class NoCompiler:
        def __init__(self, *_: object) -> None:
            self.take = taken.append

        def finish(self) -> None:
            """Wait for nothing."""

    monkeypatch.setattr(tune_kernels, "ForkedCompiler", NoCompiler)
    gpu = CARDS["L4"].limits._replace(capability=capability)
    every = work_of(FAMILIES[family]["tiny"], ADA, gpu.multiprocessors)
    flow = "unet" if family == "cosyvoice2" else "dit"
    assert {work.place[0] for work in every} == {flow, "steps", "part_steps"}
    few = [next(work for work in every if work.of_steps is of_steps) for of_steps in (False, True)]
    compile_all(FAMILIES[family]["tiny"], ADA, gpu, few)
    assert {"_step_qkv", "_step_gated", "_step_head"} <= {form.name for form in taken}
    assert len({form.name for form in taken}) > 8


def test_the_fastest_value_of_each_field_is_kept_and_what_has_no_room_is_left_out(capsys):
    start = ADA.unet.of(1.0)
    slow, fast, none = Tile(16, 64), Tile(32, 64), Tile(128, 128)
    assert fast in UNET["qkv"]

    def timed(tiles):
        if none in (tiles.qkv, tiles.widen):
            raise MemoryError("out of resource")
        return 4.0 - (tiles.qkv == fast) - 0.3 * (tiles.widen == fast)

    tried = {"qkv": [slow, fast, none], "widen": [slow, fast]}
    work = Work("flow", ("unet", 1.9), 1, replace(start, qkv=slow, widen=slow), tried)
    best = tuned(work, timed)
    assert (best.qkv, best.widen) == (fast, fast)
    told = capsys.readouterr().out
    assert "flow: 4.000 -> 2.700 ms" in told
    assert "left out: Tile(rows=128, columns=128" in told


def test_tiles_that_gain_less_than_noise_are_not_taken():
    start = ADA.unet.of(1.0)
    work = Work("flow", ("unet", 1.9), 1, start, {"early": [not start.early]})
    assert tuned(work, lambda tiles: 1.0 if tiles == start else 0.995) == start


@pytest.mark.parametrize("place", [("unet", 1.9), ("unet", None), ("steps", 16), ("part_steps", None)])
def test_a_tuned_row_is_read_as_it_was_written(place, tmp_path):
    field, limit = place
    old = getattr(ADA, field)
    tiles = replace(old.more if limit is None else old.up_to[limit], max_splits=7)
    row = with_tiles(ADA, place, tiles)
    write_row(tmp_path / "row", row)
    assert read_row(tmp_path / "row") == row
    changed = getattr(row, field)
    assert (changed.more if limit is None else changed.up_to[limit]) == tiles

"""The row of each kind of GPU."""

from __future__ import annotations

import pytest
import torch

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.gpu.kernels.rows import (
    ADA,
    AMPERE,
    BLACKWELL,
    HOPPER,
    INTERPRETED,
    KIB,
    ROWS,
    RTX_BLACKWELL,
    read_row,
    row_named,
    row_of,
    row_on,
    write_row,
)


@pytest.mark.parametrize(
    ("capability", "shared_kib", "row", "chained"),
    [
        *(((8, 0), 163, AMPERE, False), ((8, 6), 99, ADA, False), ((8, 9), 99, ADA, False)),
        *(((9, 0), 227, HOPPER, True), ((10, 0), 227, BLACKWELL, True), ((10, 3), 227, BLACKWELL, True)),
        *(((12, 0), 99, RTX_BLACKWELL, True), ((12, 1), 99, RTX_BLACKWELL, True)),
        *(((8, 7), 163, ADA, False), ((11, 0), 227, BLACKWELL, True), ((13, 0), 128, RTX_BLACKWELL, True)),
    ],
)
def test_a_gpu_has_the_newest_row_that_fits_it(capability, shared_kib, row, chained):
    found = row_of(capability, shared_kib * KIB)
    assert (found.name, found.unet, found.dit, found.steps) == (row.name, row.unet, row.dit, row.steps)
    assert found.chained is chained


def test_what_fits_no_row_is_an_error():
    with pytest.raises(ValueError, match="no kernels fit compute capability"):
        row_of((8, 6), 64 * KIB)


def test_rows_are_found_by_the_capability_that_they_begin_with():
    assert [row_named("{}.{}".format(*row.capability)) for row in ROWS] == [*ROWS]
    with pytest.raises(ValueError, match=r"8\.9 is none of 8\.0, 8\.6, 9\.0"):
        row_named("8.9")


def test_the_interpreter_has_hoppers_tiles_and_no_dependent_launches():
    row = row_on(torch.device("cpu"))
    assert row is INTERPRETED
    assert (row.unet, row.chained) == (HOPPER.unet, False)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_comes_out_of_its_file_as_it_went_in(row, tmp_path):
    write_row(tmp_path / "row.json", row)
    assert read_row(tmp_path / "row.json") == row


@pytest.mark.parametrize("text", [None, "{}", '{"name": 3}', "no JSON"])
def test_what_is_no_row_is_refused_by_its_setting(text, tmp_path):
    if text is not None:
        (tmp_path / "row.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"token2wav\.kernels_file"):
        read_row(tmp_path / "row.json")

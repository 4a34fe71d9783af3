"""Files of numbers, as prometheus_client reads them and as the next process goes on with them."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.mmap_dict import MmapedDict, mmap_key

from cosyvoice_runtime.metrics.metrics import FIRST_SIZE, NumberFile, number_key

LABELS = {"model": "a", "ending": 'é " \\'}


def read_by_the_library(path: Path) -> dict[str, float]:
    return {key: value for key, value, *_ in MmapedDict.read_all_values_from_file(str(path))}


def test_keys_are_those_of_the_library():
    expected = mmap_key("family", "name", list(LABELS), list(LABELS.values()), "About it.")
    assert number_key("family", "name", LABELS, "About it.") == expected


@given(st.dictionaries(st.text(max_size=40), st.floats(allow_nan=False), max_size=20), st.integers(0, 20))
def test_the_library_and_the_next_process_read_what_was_written(tmp_path_factory, numbers, cut):
    path = tmp_path_factory.mktemp("numbers") / "gauge.db"
    items = list(numbers.items())
    for part in (items[:cut], items[cut:]):
        file = NumberFile(path)
        for key, value in part:
            assert file.read(key) == 0.0
            file.write(key, value)
    assert read_by_the_library(path) == numbers
    file = NumberFile(path)
    assert {key: file.read(key) for key in numbers} == numbers


def test_new_file_is_one_without_numbers(tmp_path):
    NumberFile(tmp_path / "gauge.db")
    assert read_by_the_library(tmp_path / "gauge.db") == {}


def test_file_grows(tmp_path):
    keys = [f"{number} {'x' * 1000}" for number in range(200)]
    file = NumberFile(tmp_path / "gauge.db")
    for number, key in enumerate(keys):
        file.write(key, number)
    file.write(keys[0], -1.0)
    assert (tmp_path / "gauge.db").stat().st_size > 2 * FIRST_SIZE
    expected = {key: float(number) for number, key in enumerate(keys)} | {keys[0]: -1.0}
    assert read_by_the_library(tmp_path / "gauge.db") == expected

"""Products in whole numbers against the same arithmetic in numpy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from cosyvoice_runtime.onnx.graph import FLOAT, Graph
from cosyvoice_runtime.onnx.runtime_graph import MOST, IntegerProducts, quantised_rows
from cosyvoice_runtime.onnx.session import open_session

ROWS, INSIDE, OUT = 9, 50, 24


@pytest.fixture(scope="module")
def weight():
    return np.random.default_rng(0).standard_normal((OUT, INSIDE)).astype(np.float32)


@pytest.fixture(scope="module")
def product(weight, tmp_path_factory):
    graph = Graph("product", "float32")
    x = graph.input("x", FLOAT, ("rows", INSIDE))
    graph.output("y", IntegerProducts(graph).product("layer", weight, x), ("rows", OUT))
    path = tmp_path_factory.mktemp("product") / "product.onnx"
    onnx.save(graph.model(), path)
    session = open_session(path, threads=1)
    return lambda rows: session.run(None, {"x": rows})[0]


@pytest.fixture
def rows():
    """Of very different sizes; one is zero."""
    sizes = 10.0 ** np.arange(-4, ROWS - 4)
    values = np.random.default_rng(1).standard_normal((ROWS, INSIDE)) * sizes[:, None]
    values[3] = 0
    return values.astype(np.float32)


def test_whole_numbers_are_multiplied_without_saturation(product, weight, rows):
    steps, scales = quantised_rows(weight)
    size = np.maximum(np.abs(rows).max(axis=1, keepdims=True), np.float32(1e-20)) * np.float32(1 / MOST)
    whole = np.rint(rows / size).astype(np.int64)
    expected = (whole @ steps.T.astype(np.int64)) * scales * size
    np.testing.assert_allclose(product(rows), expected, rtol=1e-5, atol=0)


def test_largest_values_of_one_sign_do_not_saturate(product, weight):
    """Pairs of such products exceed 16 bits, in which CPUs without VNNI would add them."""
    steps, scales = quantised_rows(weight)
    rows = np.where(steps >= 0, 1, -1).astype(np.float32)
    expected = MOST * np.abs(steps.astype(np.int64)).sum(axis=1) * scales / MOST
    np.testing.assert_allclose(np.diag(product(rows)), expected, rtol=1e-5)


def test_a_row_depends_on_no_other(product, rows):
    together = product(rows)
    for place in range(ROWS):
        np.testing.assert_array_equal(product(rows[place : place + 1])[0], together[place])


def test_each_row_loses_less_than_a_hundredth(product, weight, rows):
    exact = rows @ weight.T
    error = np.sqrt(((product(rows) - exact) ** 2).mean(axis=1))
    spoken = np.delete(np.arange(ROWS), 3)
    assert (error[spoken] < 0.015 * np.sqrt((exact**2).mean(axis=1))[spoken]).all()
    assert error[3] == 0

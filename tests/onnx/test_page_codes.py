"""Numbers in pages of 8 bits, and weights that keep keys and values among them."""

from __future__ import annotations

import numpy as np
import pytest

from cosyvoice_runtime.flow.onnx.estimator_graph import PageScales, largest, scale
from cosyvoice_runtime.flow.onnx.pages import LARGEST, page_code

CHANNELS, INNER = 24, 16


def kept(numbers):
    code = page_code("float8")
    page, room = np.empty(numbers.shape, code.pages), np.empty(numbers.shape, code.room)
    code.write(numbers, page)
    code.read(page, room)
    return room


@pytest.fixture
def every():
    """Every float16 up to the largest, of both signs."""
    positive = np.arange(np.float16(LARGEST).view(np.uint16) + 1, dtype=np.uint16).view(np.float16)
    return np.stack([positive, -positive])


def test_a_number_in_8_bits_is_off_by_half_a_step(every):
    exact, rounded = every.astype(np.float64), kept(every).astype(np.float64)
    step = np.maximum(2.0 ** np.floor(np.log2(np.maximum(np.abs(exact), 2.0**-14))), 2.0**-14) / 16
    assert (np.abs(rounded - exact) <= step / 2).all()
    assert len(np.unique(rounded)) == 255


def test_a_kept_number_is_kept_as_it_is(every):
    once = kept(every)
    np.testing.assert_array_equal(kept(once).view(np.uint16), once.view(np.uint16))


def test_cleared_pages_are_zeros():
    code = page_code("float8")
    room = np.ones((2, 3), code.room)
    code.read(np.zeros((2, 3), code.pages), room)
    np.testing.assert_array_equal(room, 0)


@pytest.mark.parametrize("name", ["float32", "float16"])
def test_other_formats_keep_what_is_there(name):
    code, random = page_code(name), np.random.default_rng(0)
    numbers = random.standard_normal((2, 3)).astype(name)
    page, room = np.empty((2, 3), code.pages), np.empty((2, 3), code.room)
    code.write(numbers, page)
    code.read(page, room)
    np.testing.assert_array_equal(room, numbers)
    assert page.dtype == room.dtype == numbers.dtype


def normed(x):
    centred = x - x.mean()
    return centred / np.sqrt((centred**2).mean())


def test_no_product_with_a_normed_vector_is_larger_than_the_bound_which_one_reaches():
    random = np.random.default_rng(0)
    matrix = random.standard_normal((INNER, CHANNELS))
    weight, bias = random.standard_normal((2, CHANNELS))
    most = largest(matrix, weight, bias)
    rows = [*(row * weight for row in matrix), *(-row * weight for row in matrix)]  # the worst for each
    vectors = [normed(row) for row in (*rows, *random.standard_normal((200, CHANNELS)))]
    reached = max(np.abs(matrix @ (vector * weight + bias)).max() for vector in vectors)
    np.testing.assert_allclose(reached, most, rtol=1e-6)


def test_divided_keys_and_values_give_what_attention_gave():
    random = np.random.default_rng(0)
    weights = {
        "a.norm_attention.weight": random.standard_normal(CHANNELS).astype(np.float32),
        "a.norm_attention.bias": random.standard_normal(CHANNELS).astype(np.float32),
        "a.qkv.weight": random.standard_normal((3 * INNER, CHANNELS)).astype(np.float32),
        "a.out.weight": random.standard_normal((CHANNELS, INNER)).astype(np.float32),
        "a.widen.weight": random.standard_normal((4, CHANNELS)).astype(np.float32),
    }
    scaled, of_keys = PageScales.of(weights)
    queries, keys, values = np.split(weights["a.qkv.weight"], 3)
    new_queries, new_keys, new_values = np.split(scaled["a.qkv.weight"], 3)
    np.testing.assert_array_equal(new_queries, queries)
    np.testing.assert_array_equal(new_keys * np.float32(of_keys["a"]), keys)
    factor = scaled["a.out.weight"] / weights["a.out.weight"]
    assert (factor == factor[0, 0]).all()
    np.testing.assert_array_equal(new_values * factor[0, 0], values)
    assert scaled["a.widen.weight"] is weights["a.widen.weight"]
    norm = weights["a.norm_attention.weight"], weights["a.norm_attention.bias"]
    for part in (new_keys, new_values):
        assert LARGEST / 4 < largest(part, *norm) < LARGEST


def test_scales_are_powers_of_two():
    assert np.log2(scale(1.0)) % 1 == 0
    assert scale(2.0) == 2 * scale(1.0)
    assert scale(0.0) == 1

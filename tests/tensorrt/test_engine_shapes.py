from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.tensorrt.shapes import LARGEST_TENSOR, FlowShape, Shapes, VocoderShape
from making.architecture import FULL

SHAPES = Shapes(FULL, max_rows=8, max_tokens=1500)
FLOW = st.builds(FlowShape, rows=st.integers(1, 20), new=st.integers(1, 1500), past=st.integers(1, 1500))
WINDOWS = st.builds(VocoderShape, rows=st.integers(1, 20), frames=st.integers(1, 6030))


def covered(sizes: dict[str, int], profile: dict[str, tuple[int, int, int]]) -> bool:
    return all(profile[name][0] <= size <= profile[name][2] for name, size in sizes.items())


@pytest.mark.parametrize(("rows", "tokens"), [(8, 1500), (1, 250), (64, 3750)])
def test_profiles_are_ordered_and_captured_shapes_lie_in_the_first(rows: int, tokens: int) -> None:
    shapes = replace(SHAPES, max_rows=rows, max_tokens=tokens)
    for profiles in shapes.profiles().values():
        assert all(low <= best <= high for profile in profiles for low, best, high in profile.values())
    encoder, estimator, decoder = (profiles[0] for profiles in shapes.profiles().values())
    for graph in shapes.flow_graphs:
        assert covered(shapes.encoder(graph), encoder)
        assert covered(shapes.estimator(graph), estimator)
    for window in shapes.vocoder_graphs:
        assert covered(shapes.decoder(window), decoder)


@pytest.mark.parametrize(("rows", "tokens"), [(8, 1500), (64, 1500), (8, 3750)])
def test_no_tensor_of_the_published_model_outgrows_tensorrt(rows: int, tokens: int) -> None:
    config = FULL.flow.estimator
    layers = config.num_stages * config.blocks_per_stage
    for profile in replace(SHAPES, max_rows=rows, max_tokens=tokens).profiles()["flow_estimator"]:
        batch, new, past, every = (profile[name][2] for name in ("batch", "new", "past", "all"))
        assert batch * config.num_heads * new * every < LARGEST_TENSOR  # attention scores
        assert layers * batch * past * config.num_heads * config.head_dim < LARGEST_TENSOR  # all keys


def test_a_flow_without_guidance_has_a_row_for_each_utterance() -> None:
    unguided = Shapes(replace(FULL, flow=replace(FULL.flow, cfg_rate=0.0)), max_rows=8, max_tokens=1500)
    for shapes, rows in ((SHAPES, 2), (unguided, 1)):
        assert shapes.estimator(FlowShape(3, 25, 200))["batch"] == 3 * rows
        assert shapes.profiles()["flow_estimator"][0]["batch"] == (rows, rows, 8 * rows)


@given(FLOW)
def test_a_call_of_the_flow_is_padded_to_what_some_profile_covers(shape: FlowShape) -> None:
    fit = SHAPES.fit_flow(shape)
    assert fit.new >= shape.new
    assert fit.past >= shape.past
    assert fit.rows >= min(shape.rows, 1)
    encoder, estimator, _ = SHAPES.profiles().values()
    assert any(covered(SHAPES.encoder(fit), profile) for profile in encoder)
    assert any(covered(SHAPES.estimator(fit), profile) for profile in estimator)
    part = replace(shape, rows=min(shape.rows, fit.rows))  # a call of more rows is split
    graphs = [graph for graph in SHAPES.flow_graphs if graph.holds(part)]
    assert fit in graphs if graphs else (fit.new, fit.past) == (shape.new, shape.past)


@given(WINDOWS)
def test_a_call_of_the_decoder_is_padded_to_what_some_profile_covers(shape: VocoderShape) -> None:
    fit = SHAPES.fit_vocoder(shape)
    assert fit.frames >= shape.frames
    assert any(covered(SHAPES.decoder(fit), profile) for profile in SHAPES.profiles()["hift_decoder"])
    part = replace(shape, rows=min(shape.rows, fit.rows))
    graphs = [graph for graph in SHAPES.vocoder_graphs if graph.holds(part)]
    assert fit in graphs if graphs else fit.frames == shape.frames


def test_the_smallest_captured_shape_is_chosen() -> None:
    assert SHAPES.fit_flow(FlowShape(1, 25, 75)) == FlowShape(1, 25, 100)
    assert SHAPES.fit_flow(FlowShape(3, 25, 150)) == FlowShape(4, 25, 200)
    assert SHAPES.fit_flow(FlowShape(8, 100, 75)) == FlowShape(8, 100, 75)
    assert SHAPES.fit_vocoder(VocoderShape(1, 44)) == VocoderShape(1, 80)


def test_long_utterances_run_one_at_a_time_and_large_batches_in_parts() -> None:
    assert SHAPES.fit_flow(FlowShape(5, 101, 75)) == FlowShape(1, 101, 75)
    assert SHAPES.fit_flow(FlowShape(20, 60, 75)) == FlowShape(8, 60, 75)
    assert SHAPES.fit_vocoder(VocoderShape(2, 300)) == VocoderShape(1, 300)

"""The flow on ONNX Runtime against torch's: batches of uneven lengths and pasts, and too few pages."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from small_runtime import FLOWS, flows

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.flow.onnx.flow import MOST_BLOCKS, OnnxFlow, OnnxFlowStream
from cosyvoice_runtime.flow.solvers import ADAMS_BASHFORTH, SOLVERS, accumulated_times
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.solver import _accumulated, time_steps
from cosyvoice_runtime.onnx.session import EstimatorFormats
from examples import examples
from small_flow import CONFIG, random_prompt, random_tokens
from streams import UTTERANCES, pieces_of, spoken

TOLERANCE = 1e-4
HALF_TOLERANCE = 5e-4
EIGHT_BITS_TOLERANCE = 0.02
ONE_STEP = 1e-3
"""Of half precision: sums in another order may be rounded to the next number."""
Both = tuple[Flow, OnnxFlow]


@pytest.fixture(scope="module", params=FLOWS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    return flows(tmp_path_factory.mktemp("flow"), request.param)


@pytest.fixture(scope="module")
def both_of_cosyvoice2(tmp_path_factory: pytest.TempPathFactory) -> Both:
    return flows(tmp_path_factory.mktemp("flow"))


@pytest.fixture(scope="module")
def both_with_half_pages(both: Both, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Of the family of ``both``."""
    [family] = (name for name, (config, _) in FLOWS.items() if config is both[1].config)
    return flows(tmp_path_factory.mktemp("flow-half"), family, formats=EstimatorFormats(pages="float16"))


@pytest.fixture(scope="module")
def both_with_pages_in_8_bits(tmp_path_factory: pytest.TempPathFactory) -> Both:
    return flows(tmp_path_factory.mktemp("flow-float8"), formats=EstimatorFormats(pages="float8"))


@pytest.fixture(scope="module")
def both_in_8_bits(tmp_path_factory: pytest.TempPathFactory) -> Both:
    return flows(tmp_path_factory.mktemp("flow-int8"), formats=EstimatorFormats(weights="int8"))


def assert_mels_of_torch(flow: Flow, prompts, tokens, mels, tolerance: float = TOLERANCE) -> None:
    for prompt, row, mel in zip(prompts, tokens, mels, strict=True):
        [expected] = flow.generate([prompt], [row])
        np.testing.assert_allclose(mel, expected.numpy(), atol=tolerance, rtol=0)


def test_a_call_sees_of_its_own_blocks_what_later_calls_see(both_with_half_pages):
    """What is rounded for the pages is rounded before attention: otherwise the cut would be heard."""
    _, flow = both_with_half_pages
    session, random = flow.estimator, np.random.default_rng(0)
    frames = CONFIG.blockwise.chunk_frames
    shapes = session.shapes
    names = [name for name in shapes if name.startswith(("keys", "values"))]
    _, heads, _, size = shapes["keys.0"]
    x = random.standard_normal((2, 2 * frames, CONFIG.mel_bins)).astype(np.float32)
    conditions = random.standard_normal((2, 2 * frames, shapes["conditions"][2])).astype(np.float32)

    def run(before: int, count: int, tails, held):
        every, own = np.arange(before + count), slice(before, before + count)
        hidden = every // frames > every[own, None] // frames
        rooms = {name: np.empty((1, heads, len(every), size), np.float16) for name in names}
        for name, room in rooms.items():
            room[:, :, :before] = held[name][:, :, :before]
        outputs = {
            "velocity": np.empty_like(x[:, own]),
            "new_tails": np.empty_like(tails),
            **{name.replace(".", "_after."): room for name, room in rooms.items()},
        }
        inputs = {
            "x": x[:, own].copy(),
            "conditions": conditions[:, own].copy(),
            "time_biases": flow.time_biases[0],
            "bias": np.where(hidden, np.float16(-30000), np.float16(0))[None, None],
            "last": np.array([before + count - 1], np.int32),
            "total": np.array([before + count], np.int32),
            "starts": np.full(2, before, np.int64),
            "tails": tails,
        }
        session.bound(inputs | rooms, outputs).run()
        return outputs["velocity"], outputs["new_tails"], rooms

    start = np.zeros(shapes["tails"], np.float32)
    whole, _, of_whole = run(0, 2 * frames, start, {name: np.empty((1, heads, 0, size)) for name in names})
    first, tails, of_first = run(0, frames, start, {name: np.empty((1, heads, 0, size)) for name in names})
    second, _, of_second = run(frames, frames, tails, of_first)
    for name in names:
        np.testing.assert_allclose(of_second[name], of_whole[name], atol=ONE_STEP, rtol=ONE_STEP)
    np.testing.assert_allclose(np.concatenate([first, second], axis=1), whole, atol=5e-5, rtol=0)


def test_adams_bashforth_gives_torchs_mel_from_pages_and_without(tmp_path):
    flow, onnx_flow = flows(tmp_path, solver=ADAMS_BASHFORTH)
    prompts = [random_prompt(31, seed) for seed in range(3)]
    tokens = [random_tokens(length, length) for length in (20, 60, 83)]
    for pages in (60, 3):
        stream = OnnxFlowStream(onnx_flow, num_pages=pages)
        mels = spoken(stream, prompts, [pieces_of(row, [10, 40]) for row in tokens])
        assert bool(stream.recomputing) == (pages == 3)
        assert_mels_of_torch(flow, prompts, tokens, mels)
    with pytest.raises(AssertionError, match="Not equal"):
        assert_mels_of_torch(flows(tmp_path)[0], prompts, tokens, mels)


@pytest.mark.parametrize("family", FLOWS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_distilled_flow_gives_torchs_mel_from_pages_and_without(tmp_path, family, solver):
    """It has times of its own, and no guidance."""
    distilled = {"times": (0.0, 0.3, 0.8), "cfg_rate": 0.0}
    flow, onnx_flow = flows(tmp_path, family, num_steps=None, solver=solver, **distilled)
    assert onnx_flow.num_steps == flow.solver.num_steps == 3
    assert onnx_flow.estimator.shapes["x"][0] == 1
    prompts = [random_prompt(31, seed) for seed in range(2)]
    tokens = [random_tokens(length, length) for length in (20, 83)]
    for pages in (60, 3):
        stream = OnnxFlowStream(onnx_flow, num_pages=pages)
        mels = spoken(stream, prompts, [pieces_of(row, [10, 40]) for row in tokens])
        assert bool(stream.recomputing) == (pages == 3)
        assert_mels_of_torch(flow, prompts, tokens, mels)


def test_weights_that_the_transformer_does_not_have_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match=r"weight_format: .* is not accepted; float32 with CosyVoice3"):
        flows(tmp_path, "cosyvoice3", formats=EstimatorFormats("int8"))


def assert_rounded(flow, streams, tolerance: float, least: float, most: float) -> None:
    """The second stream's mels are those of torch within the tolerance, and so far from the first one's."""
    prompts = [random_prompt(31, seed) for seed in range(3)]
    tokens = [random_tokens(length, length) for length in (20, 60, 83)]
    mels = [spoken(stream, prompts, [pieces_of(row, [10, 40]) for row in tokens]) for stream in streams]
    assert_mels_of_torch(flow, prompts, tokens, mels[1], tolerance)
    for exact, rounded in zip(*mels, strict=True):
        assert least < np.abs(exact - rounded).mean() < most


def test_half_pages_take_half_the_memory_and_change_the_mel_by_rounding(both, both_with_half_pages):
    flow, onnx_flow = both_with_half_pages
    streams = OnnxFlowStream(both[1], num_pages=60), OnnxFlowStream(onnx_flow, num_pages=60)
    assert streams[1].pool.estimator.nbytes == streams[0].pool.estimator.nbytes / 2
    saved = (streams[0].pool.estimator.nbytes - streams[1].pool.estimator.nbytes) / len(
        streams[0].pool.estimator
    )
    assert streams[1].pool.page_bytes == streams[0].pool.page_bytes - saved
    assert_rounded(flow, streams, HALF_TOLERANCE, 1e-7, 1e-4)


def test_pages_in_8_bits_are_refused_of_the_transformer(tmp_path):
    with pytest.raises(InvalidInput, match=r"page_format: .float8. is not accepted; float32 or float16 with"):
        flows(tmp_path, "cosyvoice3", formats=EstimatorFormats(pages="float8"))


def test_pages_in_8_bits_take_a_quarter_of_the_memory_and_change_the_mel_by_rounding(
    both_of_cosyvoice2, both_with_pages_in_8_bits
):
    flow, onnx_flow = both_with_pages_in_8_bits
    streams = [OnnxFlowStream(each, num_pages=60) for each in (both_of_cosyvoice2[1], onnx_flow)]
    assert streams[1].pool.estimator.nbytes == streams[0].pool.estimator.nbytes / 4
    saved = 3 * streams[1].pool.estimator[0].nbytes
    assert streams[1].pool.page_bytes == streams[0].pool.page_bytes - saved
    assert_rounded(flow, streams, EIGHT_BITS_TOLERANCE, 1e-5, 2e-3)


@settings(max_examples=examples(10, fresh=40))
@given(UTTERANCES)
def test_wherever_it_is_cut_a_mel_with_pages_in_8_bits_is_that_of_the_whole(
    both_with_pages_in_8_bits, utterances
):
    """Also of utterances side by side, of more blocks than a call takes, and of those that find no page."""
    _, onnx_flow = both_with_pages_in_8_bits
    prompts = [random_prompt(prompt, seed) for seed, ((prompt, _), _) in enumerate(utterances)]
    tokens = [random_tokens(length, seed) for seed, ((_, length), _) in enumerate(utterances)]
    whole = [
        spoken(OnnxFlowStream(onnx_flow, 10), [a], [[b]])[0] for a, b in zip(prompts, tokens, strict=True)
    ]
    for pages in (60, 3):
        queues = [pieces_of(row, cuts) for row, (_, cuts) in zip(tokens, utterances, strict=True)]
        cut = spoken(OnnxFlowStream(onnx_flow, pages), prompts, queues)
        for mel, own in zip(cut, whole, strict=True):
            np.testing.assert_allclose(mel, own, atol=ONE_STEP, rtol=0)


def test_in_8_bits_mels_are_near_torchs_and_near_those_of_another_cut(both_in_8_bits):
    flow, onnx_flow = both_in_8_bits
    prompts = [random_prompt(31, seed) for seed in range(3)]
    tokens = [random_tokens(length, length) for length in (20, 60, 83)]
    whole = [
        spoken(OnnxFlowStream(onnx_flow, 60), [a], [[b]])[0] for a, b in zip(prompts, tokens, strict=True)
    ]
    queues = [pieces_of(row, [10, 40]) for row in tokens]
    cut = spoken(OnnxFlowStream(onnx_flow, num_pages=60), prompts, queues)
    for mel, own in zip(cut, whole, strict=True):
        np.testing.assert_allclose(mel, own, atol=0.1, rtol=0)
        assert np.abs(mel - own).mean() < 0.01
    assert_mels_of_torch(flow, prompts, tokens, whole, tolerance=0.1)
    with pytest.raises(AssertionError, match="Not equal"):
        assert_mels_of_torch(flow, prompts, tokens, whole)


@settings(max_examples=examples(10, fresh=40))
@given(UTTERANCES)
def test_any_batch_of_streams_gives_torchs_mel_of_whole_utterances(both, utterances):
    prompts = [random_prompt(prompt, seed) for seed, ((prompt, _), _) in enumerate(utterances)]
    tokens = [random_tokens(length, seed) for seed, ((_, length), _) in enumerate(utterances)]
    queues = [pieces_of(row, cuts) for row, (_, cuts) in zip(tokens, utterances, strict=True)]
    mels = spoken(OnnxFlowStream(both[1], num_pages=60), prompts, queues)
    assert_mels_of_torch(both[0], prompts, tokens, mels)


def test_utterances_that_find_no_page_recompute_the_same_mel(both):
    stream = OnnxFlowStream(both[1], num_pages=3)
    prompts = [random_prompt(31, seed) for seed in range(3)]
    tokens = [random_tokens(70, seed) for seed in range(3)]
    mels = spoken(stream, prompts, [pieces_of(row, [25, 50]) for row in tokens])
    assert stream.recomputing == 3
    assert_mels_of_torch(both[0], prompts, tokens, mels)


def test_rows_that_recompute_side_by_side_give_what_each_gives_alone(both, monkeypatch):
    stream = OnnxFlowStream(both[1], num_pages=1)
    lengths = [(31, 70), (0, 26), (12, 3), (50, 40)]
    spans = []
    for seed, (prompt_length, count) in enumerate(lengths):
        state = stream.open(random_prompt(prompt_length, seed))
        state.push(random_tokens(count, seed), last=True)
        spans.append(state.whole(state.next_span()))
    alone = [stream.recomputed([span])[0] for span in spans]
    rows = []
    bound = both[1].estimator.bound
    monkeypatch.setattr(
        both[1],
        "estimator",
        SimpleNamespace(bound=lambda inputs, *to: rows.append(len(inputs["x"])) or bound(inputs, *to)),
    )
    for mel, own in zip(stream.recomputed(spans), alone, strict=True):
        np.testing.assert_array_equal(mel, own)
    assert set(rows) == {2}  # one utterance, with guidance and without


@pytest.mark.parametrize("prompt_length", [0, 27, 28, 60, 78])
def test_utterances_share_the_pages_of_their_voice(both, prompt_length):
    stream = OnnxFlowStream(both[1], num_pages=12)
    prompt, tokens = random_prompt(prompt_length, 1), random_tokens(30, 1)
    prefix = stream.prefix(prompt)
    shared = max(prompt_length - CONFIG.lookahead_tokens, 0) // 25
    assert 12 - stream.pool.free_pages == shared
    mels = spoken(stream, [prefix] * 3, [[tokens] for _ in range(3)])
    assert_mels_of_torch(both[0], [prompt] * 3, [tokens] * 3, mels)
    stream.close(prefix)
    assert stream.pool.free_pages == 12


def test_more_than_a_call_takes_is_computed_in_several(both):
    stream = OnnxFlowStream(both[1], num_pages=30)
    prompt, tokens = random_prompt(10, 2), random_tokens(25 * MOST_BLOCKS + 60, 2)
    mels = spoken(stream, [prompt], [[tokens]])
    assert stream.calls == 2
    assert_mels_of_torch(both[0], [prompt], [tokens], mels)


@pytest.mark.parametrize("steps", [1, 4, 6, 10, 100])
def test_times_are_torchs(steps):
    for ours, torchs in zip(accumulated_times(steps), _accumulated(time_steps(steps)), strict=True):
        np.testing.assert_allclose(ours, torchs.numpy(), atol=2e-7, rtol=0)


def test_biases_of_the_times_are_torchs(both):
    torchs = both[0].solver.time_biases.transpose(0, 1).numpy()
    np.testing.assert_allclose(both[1].time_biases, torchs, atol=1e-4, rtol=0)


def test_what_is_recomputed_goes_through_the_estimator_in_parts(both, monkeypatch):
    flow, onnx_flow = both
    stream = OnnxFlowStream(onnx_flow, num_pages=1)
    prompt, tokens = random_prompt(31, 0), random_tokens(25 * 2 * MOST_BLOCKS + 12, 0)
    state = stream.open(prompt)
    state.push(tokens, last=True)
    frames = []
    bound = onnx_flow.estimator.bound
    monkeypatch.setattr(
        onnx_flow,
        "estimator",
        SimpleNamespace(bound=lambda inputs, *to: frames.append(inputs["x"].shape[1]) or bound(inputs, *to)),
    )
    assert_mels_of_torch(flow, [prompt], [tokens], stream.advance([state]))
    assert stream.recomputing == 1
    assert max(frames) == MOST_BLOCKS * CONFIG.blockwise.chunk_frames

"""The flow's graphs against the torch modules: batch sizes, lengths and pasts vary, chunk masks included."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from dense_past import DensePast
from torch import Tensor

from cosyvoice_runtime.flow.export.encoder import encoder_graph
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.layers import NoPast, visible_keys
from cosyvoice_runtime.tensorrt.graph_files import flow_graphs
from module_weights import weights_of
from onnx_network import OnnxNetwork
from small_flow import CONFIG, COSYVOICE3, random_flow

TOLERANCE = {"float32": 1e-4, "float16": 3e-2}
CONFIGS = {"cosyvoice2": CONFIG, "cosyvoice3": COSYVOICE3}
RATE, LOOKAHEAD = CONFIG.frames_per_token, CONFIG.lookahead_tokens
START = torch.zeros(2, dtype=torch.int64)
SHAPES = [([1], 1), ([2], 1), ([25], 25), ([25, 25, 25], 75), ([60, 31], 30), ([1, 26, 50], 7)]
"""New tokens of each row, and tokens before them."""


@pytest.fixture(scope="module")
def flow() -> Flow:
    return random_flow()


@pytest.fixture(scope="module", params=CONFIGS)
def any_flow(request: pytest.FixtureRequest) -> Flow:
    """Of each family with blocks."""
    return random_flow(config=CONFIGS[request.param])


@pytest.fixture(scope="module", params=TOLERANCE)
def dtype(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def encoder(flow, dtype: str, tmp_path_factory: pytest.TempPathFactory) -> OnnxNetwork:
    return network(
        encoder_graph(weights_of(flow.network.encoder), CONFIG, dtype), tmp_path_factory.mktemp("encoder")
    )


@pytest.fixture(scope="module")
def estimator(any_flow, dtype: str, tmp_path_factory: pytest.TempPathFactory) -> OnnxNetwork:
    return network(velocity_graph(any_flow, dtype), tmp_path_factory.mktemp("estimator"))


def velocity_graph(flow: Flow, dtype: str) -> onnx.ModelProto:
    config = flow.config
    weights = weights_of(flow.network.estimator)
    return flow_graphs(config).estimator(weights, config.estimator, config.mel_bins, dtype)


def network(model: onnx.ModelProto, directory: Path) -> OnnxNetwork:
    onnx.save(model, directory / "model.onnx")
    return OnnxNetwork(directory / "model.onnx")


def run(compiled: OnnxNetwork, inputs: dict[str, Tensor], dtype: str) -> dict[str, Tensor]:
    narrow = getattr(torch, dtype)
    asked = {name: x for name, x in inputs.items() if name in compiled.inputs}
    given = {name: x.to(narrow) if x.dtype == torch.float32 else x for name, x in asked.items()}
    return {name: x.float() for name, x in compiled.run(given).items()}


def mask(counts: list[int], past: int, chunk: int, unused: int) -> Tensor:
    """Chunk-causal, with ``unused`` frames at the start of the first row's past and without padded keys."""
    new = max(counts)
    key, query = torch.arange(past + new) - past, torch.arange(new)
    exists = (key < torch.tensor(counts)[:, None]).clone()
    exists[0, :unused] = False
    causal = key // chunk <= query[:, None] // chunk
    return (exists[:, None] & causal)[:, None]


def same_where_valid(actual: Tensor, expected: Tensor, counts: list[int], dtype: str, axis: int = 1) -> None:
    for row, count in enumerate(counts):
        got, want = (x.select(axis - 1, row).narrow(axis - 1, 0, count) for x in (actual, expected))
        assert (got - want).abs().max() <= TOLERANCE[dtype] * max(1, want.abs().max())


def same_past(actual: dict[str, Tensor], past: DensePast, prefix: str, counts: list[int], dtype: str) -> None:
    for name, want in past.outputs(prefix).items():
        if name.endswith("tails"):
            assert (actual[name] - want).abs().max() <= TOLERANCE[dtype] * max(1, want.abs().max())
        else:
            same_where_valid(actual[name], want, counts, dtype, axis=2)


@pytest.mark.parametrize(("counts", "past"), SHAPES)
def test_estimator_equals_torch_and_hands_on_the_same_past(any_flow, estimator, dtype, counts, past) -> None:
    flow = any_flow
    generator = torch.Generator().manual_seed(sum(counts))
    counts, past = [RATE * count for count in counts], RATE * past
    rows, new, bins = len(counts), max(counts), CONFIG.mel_bins
    x, mu, condition = (torch.randn(rows, new, bins, generator=generator) for _ in range(3))
    speaker = torch.randn(rows, bins, generator=generator)
    visible = mask(counts, past, CONFIG.estimator.chunk_frames, unused=past // 3)
    biases = flow.solver.time_biases[:, 1:2]
    before = DensePast(flow.network.estimator.layout, rows, past, counts, seed=1, unused=past // 3)
    expected = flow.network.estimator(x, mu, speaker, condition, biases, visible, before)
    inputs = {
        "x": x, "mu": mu, "condition": condition, "speaker": speaker, "time_biases": biases[:, 0],
        "visible": visible, "ends": torch.tensor(counts), "starts": before.starts, **before.inputs(),
    }  # fmt: skip
    actual = run(estimator, inputs, dtype)
    same_where_valid(actual["velocity"], expected, counts, dtype)
    same_past(actual, before, "", counts, dtype)


@pytest.mark.parametrize(("counts", "past"), SHAPES)
def test_encoder_equals_torch_and_hands_on_the_same_past(flow, encoder, dtype, counts, past) -> None:
    generator = torch.Generator().manual_seed(sum(counts))
    rows, new = len(counts), max(counts)
    x = torch.randn(rows, new + LOOKAHEAD, CONFIG.token_width, generator=generator)
    ends = torch.tensor(counts)
    present = torch.arange(new + LOOKAHEAD) < (ends + LOOKAHEAD * (torch.arange(rows) % 2))[:, None]
    chunk = CONFIG.encoder.chunk_tokens
    visible = mask(counts, past, chunk, unused=past // 3)
    frame_counts = [RATE * count for count in counts]
    visible_frames = mask(frame_counts, RATE * past, RATE * chunk, unused=RATE * (past // 3))
    network = flow.network.encoder
    tokens = DensePast(network.token_layout, rows, past, counts, seed=2)
    frames = DensePast(network.frame_layout, rows, RATE * past, frame_counts, seed=3)
    expected = network(x, present, visible, visible_frames, tokens, frames)
    inputs = {
        "x": x, "present": present, "visible_tokens": visible, "visible_frames": visible_frames, "ends": ends,
        **tokens.inputs("token_"), **frames.inputs("frame_"),
    }  # fmt: skip
    actual = run(encoder, inputs, dtype)
    same_where_valid(actual["hidden"], expected, frame_counts, dtype)
    same_past(actual, tokens, "token_", counts, dtype)
    same_past(actual, frames, "frame_", frame_counts, dtype)


def test_a_hidden_past_of_zeros_is_the_start_of_an_utterance(any_flow, estimator, dtype) -> None:
    frames, bins = 60, CONFIG.mel_bins
    x = torch.randn(2, frames, bins, generator=torch.Generator().manual_seed(5))
    visible = visible_keys([60, 40], CONFIG.estimator.chunk_frames, torch.device("cpu"))
    biases, layout = any_flow.solver.time_biases[:, :1], any_flow.network.estimator.layout
    expected = any_flow.network.estimator(x, x, x[:, 0], x, biases, visible, NoPast())
    nothing = torch.zeros(layout.attentions, 2, 1, layout.heads, layout.head_dim)
    inputs = {
        "x": x, "mu": x, "condition": x, "speaker": x[:, 0], "time_biases": biases[:, 0],
        "visible": torch.nn.functional.pad(visible, (1, 0)), "ends": torch.tensor([60, 40]),
        "starts": START[:2],
        "keys": nothing, "values": nothing, "tails": torch.zeros(2, layout.tail_size),
    }  # fmt: skip
    same_where_valid(run(estimator, inputs, dtype)["velocity"], expected, [60, 40], dtype)


def test_the_mask_input_decides_what_is_seen(any_flow, estimator, dtype) -> None:
    """A frame of the second chunk changes the first one only where the mask says so: nothing is baked in."""
    frames, bins, layout = 100, CONFIG.mel_bins, any_flow.network.estimator.layout
    x = torch.randn(1, frames, bins, generator=torch.Generator().manual_seed(6))
    changed = x.clone()
    changed[0, 70] += 5
    nothing = torch.zeros(layout.attentions, 1, 1, layout.heads, layout.head_dim)

    def first_chunk(x: Tensor, visible: Tensor) -> Tensor:
        inputs = {
            "x": x, "mu": x, "condition": x, "speaker": x[:, 0], "visible": visible,
            "time_biases": any_flow.solver.time_biases[:, 0], "ends": torch.tensor([frames]),
            "starts": START[:1],
            "keys": nothing, "values": nothing, "tails": torch.zeros(1, layout.tail_size),
        }  # fmt: skip
        return run(estimator, inputs, dtype)["velocity"][:, :50]

    causal = mask([frames], 1, 50, unused=1)
    everything = torch.ones_like(causal)
    assert torch.equal(first_chunk(x, causal), first_chunk(changed, causal))
    assert not torch.equal(first_chunk(x, everything), first_chunk(changed, everything))


def test_rows_of_which_nothing_is_visible_stay_finite_and_alone(any_flow, estimator, dtype) -> None:
    frames, bins, layout = 50, CONFIG.mel_bins, any_flow.network.estimator.layout
    x = torch.randn(2, frames, bins, generator=torch.Generator().manual_seed(7))
    nothing = torch.zeros(layout.attentions, 2, 1, layout.heads, layout.head_dim)
    visible = mask([frames, frames], 1, 50, unused=1)
    hidden = visible.clone()
    hidden[1] = False
    inputs = {
        "x": x, "mu": x, "condition": x, "speaker": x[:, 0],
        "time_biases": any_flow.solver.time_biases[:, 0], "ends": torch.tensor([frames, 0]),
        "starts": START[:2],
        "keys": nothing, "values": nothing, "tails": torch.zeros(2, layout.tail_size),
    }  # fmt: skip
    beside = run(estimator, {**inputs, "visible": hidden}, dtype)
    alone = run(estimator, {**inputs, "visible": visible}, dtype)
    assert all(output.isfinite().all() for output in beside.values())
    assert torch.allclose(beside["velocity"][0], alone["velocity"][0], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_same_weights_give_the_same_bytes(config) -> None:
    flow = random_flow(config=config)
    assert len({velocity_graph(flow, "float16").SerializeToString() for _ in range(2)}) == 1

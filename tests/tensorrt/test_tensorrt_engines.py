"""Building and running engines against a strict stand-in for TensorRT 10.14 and 11."""

from __future__ import annotations

import inspect
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from small_engines import SHAPES, engines, write_graphs
from torch import Tensor

from cosyvoice_runtime.errors import EngineFileError
from cosyvoice_runtime.flow.torch.stream import FlowStream
from cosyvoice_runtime.gpu.cuda_graphs import EagerCalls
from cosyvoice_runtime.tensorrt.engine import Cuda, TensorRTEngine
from cosyvoice_runtime.tensorrt.engine_files import GraphPorts, build_engine
from cosyvoice_runtime.tensorrt.network import FittedNetwork, TensorRTNetwork, Tensors
from cosyvoice_runtime.tensorrt.shapes import VocoderShape
from cuda_fake import FakeCuda, FakeStream
from onnx_network import OnnxNetwork
from small_flow import random_flow, random_prompt, random_tokens
from small_hift import PUBLISHED, random_mel, small_hift
from tensorrt_fake import fake_tensorrt

VERSIONS = ["10.14.1.48", "11.4.1"]


@pytest.fixture
def cuda() -> FakeCuda:
    return FakeCuda()


@pytest.fixture(params=VERSIONS)
def trt(request: pytest.FixtureRequest, cuda: FakeCuda) -> Any:
    return fake_tensorrt(cuda, request.param)


@pytest.fixture(scope="module")
def decoder_graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_graphs(tmp_path_factory.mktemp("graphs"))[2]


@pytest.fixture
def engine(trt: Any, cuda: FakeCuda, decoder_graph: Path, tmp_path: Path) -> TensorRTEngine:
    return built(trt, cuda, decoder_graph, tmp_path)


def built(trt: Any, cuda: FakeCuda, graph: Path, directory: Path) -> TensorRTEngine:
    with cuda.current():
        plan, _ = build_engine(trt, graph, SHAPES.profiles()[graph.stem], b"")
    path = directory / f"{graph.stem}.engine"
    path.write_bytes(plan)
    return TensorRTEngine(trt, path, cuda)


def decoder_inputs(rows: int, frames: int, seed: int = 0) -> dict[str, Tensor]:
    mel = torch.stack([random_mel(frames, seed + row) for row in range(rows)])
    hift = small_hift(PUBLISHED, torch.float32)
    return {"mel": mel, "source": hift.source(hift.f0(mel)), "frames": torch.full((rows,), frames)}


def captured(decoder_graph: Path, *windows: VocoderShape) -> list[dict[str, tuple[int, ...]]]:
    ports = GraphPorts.read(decoder_graph)
    return [ports.input_shapes(SHAPES.decoder(window)) for window in windows]


def same_as_onnx(network: TensorRTNetwork, graph: Path, inputs: Tensors) -> None:
    assert torch.equal(network.run(inputs)["wave"], OnnxNetwork(graph).run(inputs)["wave"])


def test_the_builder_is_told_types_profiles_and_full_float32(
    trt: Any, cuda: FakeCuda, decoder_graph: Path
) -> None:
    with cuda.current():
        plan, timings = build_engine(trt, decoder_graph, SHAPES.profiles()["hift_decoder"], b"")
    content = json.loads(plan)
    assert "TF32" not in content["flags"]
    assert content["previews"] == ["RUNTIME_ACTIVATION_RESIZE_10_10"]
    assert [profile["mel"][2] for profile in content["profiles"]] == [
        [4, 80, SHAPES.widest_windows.frames],
        [1, 80, SHAPES.longest_window.frames],
    ]
    assert timings == b"fake H100:timed"


def test_timings_are_kept_for_the_same_gpu_and_dropped_for_another(
    cuda: FakeCuda, decoder_graph: Path, caplog: pytest.LogCaptureFixture
) -> None:
    profiles = SHAPES.profiles()["hift_decoder"]
    here, elsewhere = fake_tensorrt(cuda), fake_tensorrt(cuda, device="fake L4")
    with cuda.current():
        _, timings = build_engine(here, decoder_graph, profiles, b"")
        build_engine(here, decoder_graph, profiles, timings)
        assert not caplog.records
        build_engine(elsewhere, decoder_graph, profiles, timings)
    assert "another GPU or version" in caplog.text


def test_what_is_no_graph_is_refused_with_the_parsers_words(trt: Any, tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"no graph")
    with pytest.raises(EngineFileError, match=r"broken\.onnx: Error parsing"):
        build_engine(trt, path, [], b"")


def test_an_engine_of_another_version_or_a_damaged_one_is_refused(
    cuda: FakeCuda, decoder_graph: Path, tmp_path: Path
) -> None:
    engine = built(fake_tensorrt(cuda, "10.14.1.48"), cuda, decoder_graph, tmp_path)
    newer = fake_tensorrt(cuda, "11.4.1")
    with pytest.raises(EngineFileError, match=r"TensorRT 11\.4\.1 can't load this engine"):
        TensorRTEngine(newer, engine.path, cuda)
    engine.path.write_bytes(b"half an engine")
    with pytest.raises(EngineFileError, match="can't load this engine"):
        TensorRTEngine(newer, engine.path, cuda)
    with pytest.raises(EngineFileError, match="missing"):
        TensorRTEngine(newer, tmp_path / "absent.engine", cuda)


@pytest.mark.parametrize(("rows", "frames"), [(1, 1), (1, 80), (4, 33), (1, 400)])
def test_any_shape_of_a_profile_runs_in_order_with_the_caller(
    engine: TensorRTEngine, cuda: FakeCuda, decoder_graph: Path, rows: int, frames: int
) -> None:
    network = TensorRTNetwork(engine)
    cuda.events.clear()
    same_as_onnx(network, decoder_graph, decoder_inputs(rows, frames))
    assert cuda.events == ["engine 1 waits for caller", "run on engine 1", "caller waits for engine 1"]


def test_shapes_that_no_profile_covers_are_refused(engine: TensorRTEngine) -> None:
    network = TensorRTNetwork(engine)
    with pytest.raises(EngineFileError, match="built for other shapes"):
        network.run(decoder_inputs(2, 400))
    assert network.run(decoder_inputs(1, 5))["wave"].shape == (1, 5 * PUBLISHED.hop)


def test_captured_shapes_are_replayed_with_the_inputs_of_each_call(
    engine: TensorRTEngine, cuda: FakeCuda, decoder_graph: Path
) -> None:
    windows = VocoderShape(1, 80), VocoderShape(4, 20)
    network = TensorRTNetwork(engine, captured(decoder_graph, *windows))
    assert cuda.events.count("capture on engine 1") == 2
    cuda.events.clear()
    same_as_onnx(network, decoder_graph, decoder_inputs(1, 80))
    copied_and_run = [
        "engine 1 waits for caller", "replay on engine 1", "caller waits for engine 1", "event on caller",
    ]  # fmt: skip
    assert cuda.events == copied_and_run
    cuda.events.clear()
    same_as_onnx(network, decoder_graph, decoder_inputs(4, 20, seed=7))
    assert cuda.events == [copied_and_run[0], "engine 1 waits for event on caller", *copied_and_run[1:]]


def test_results_outlive_the_next_call(engine: TensorRTEngine, decoder_graph: Path) -> None:
    network = TensorRTNetwork(engine, captured(decoder_graph, VocoderShape(1, 80)))
    first, second = decoder_inputs(1, 80, seed=1), decoder_inputs(1, 80, seed=2)
    wave = network.run(first)["wave"]
    network.run(second)
    assert torch.equal(wave, OnnxNetwork(decoder_graph).run(first)["wave"])


def test_captured_and_other_shapes_alternate(engine: TensorRTEngine, decoder_graph: Path) -> None:
    """Memory of other shapes may grow; what was captured keeps its own."""
    network = TensorRTNetwork(engine, captured(decoder_graph, VocoderShape(1, 80), VocoderShape(2, 80)))
    for rows, frames in ((1, 5), (1, 80), (4, 90), (2, 80), (1, 300), (1, 80), (1, 5)):
        same_as_onnx(network, decoder_graph, decoder_inputs(rows, frames, seed=frames))


def test_calls_without_a_graph_are_counted_where_others_have_one(
    engine: TensorRTEngine, decoder_graph: Path
) -> None:
    eager = EagerCalls()
    network = TensorRTNetwork(engine, captured(decoder_graph, VocoderShape(1, 80)), eager=eager)
    for frames in (80, 5, 80, 300):
        network.run(decoder_inputs(1, frames))
    assert eager.count == 2
    uncaptured = TensorRTNetwork(engine, eager=eager)
    uncaptured.run(decoder_inputs(1, 5))
    assert eager.count == 2


def test_inputs_of_another_type_are_refused(engine: TensorRTEngine) -> None:
    network = TensorRTNetwork(engine)
    inputs = decoder_inputs(1, 10)
    with pytest.raises(ValueError, match=r"mel: contiguous torch\.float32 expected, got torch\.float64"):
        network.run({**inputs, "mel": inputs["mel"].double()})
    assert network.run(inputs)["wave"].isfinite().all()  # the engine is free again


def test_calls_of_many_threads_run_one_at_a_time(
    engine: TensorRTEngine, cuda: FakeCuda, decoder_graph: Path
) -> None:
    network = TensorRTNetwork(engine, captured(decoder_graph, VocoderShape(1, 20)))
    reference = OnnxNetwork(decoder_graph)
    cases = [decoder_inputs(1, frames, seed=frames) for frames in (20, 11, 20, 7, 20, 30)]
    expected = [reference.run(case)["wave"] for case in cases]
    wrong: list[int] = []
    cuda.events.clear()

    def work(number: int) -> None:
        for turn in range(8):
            case = (number + turn) % len(cases)
            if not torch.equal(network.run(cases[case])["wave"], expected[case]):
                wrong.append(case)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    begun = [event for event in cuda.events if event.endswith(("waits for caller", "waits for engine 1"))]
    assert begun == ["engine 1 waits for caller", "caller waits for engine 1"] * 48


def test_rows_of_a_batch_that_is_too_long_run_alone(engine: TensorRTEngine, decoder_graph: Path) -> None:
    ports = GraphPorts.read(decoder_graph)
    network = FittedNetwork(TensorRTNetwork(engine), ports)
    inputs = decoder_inputs(5, 300)
    waves = network.run(inputs, SHAPES.decoder(VocoderShape(1, 300)))["wave"]
    alone = [
        OnnxNetwork(decoder_graph).run({name: x[row : row + 1] for name, x in inputs.items()})
        for row in range(5)
    ]
    assert torch.equal(waves, torch.cat([each["wave"] for each in alone]))


def test_the_flow_streams_through_captured_engines_as_through_torch(
    trt: Any, cuda: FakeCuda, tmp_path: Path
) -> None:
    """Pages in, padding to captured shapes, replay, pages out."""
    shapes = {"flow_encoder": SHAPES.encoder, "flow_estimator": SHAPES.estimator}

    def network(path: Path) -> TensorRTNetwork:
        sizes = shapes.get(path.stem)
        wanted = [sizes(shape) for shape in SHAPES.flow_graphs] if sizes else []
        ports = GraphPorts.read(path)
        return TensorRTNetwork(
            built(trt, cuda, path, tmp_path), [ports.input_shapes(each) for each in wanted]
        )

    flow, reference = random_flow(compiled=engines(tmp_path, network, padded=True)), random_flow()
    cuda.events.clear()
    mels = []
    for each in (flow, reference):
        flow_stream = FlowStream(each, num_pages=20)
        states = [flow_stream.open(random_prompt(length, seed=length)) for length in (40, 10)]
        for row, state in enumerate(states):
            state.push(random_tokens(70, seed=row))
        mels.append(flow_stream.advance(states))
        for row, state in enumerate(states):
            state.push(random_tokens(9, seed=row), last=True)
        mels[-1] += flow_stream.advance(states)
    for actual, expected in zip(*mels, strict=True):
        assert (actual - expected).abs().max() < 1e-4
    replays = cuda.events.count("replay on engine 1") + cuda.events.count("replay on engine 2")
    assert replays == 1 + reference.solver.num_steps  # the last 9 tokens; 100 at once are no captured shape


def test_the_stand_in_for_cuda_has_the_calls_of_the_real_one() -> None:
    calls = {call for call in vars(Cuda) if not call.startswith("_")}
    assert calls <= set(dir(FakeCuda))
    assert {call for call in vars(FakeStream) if not call.startswith("_")} - {"submit", "flush"} <= set(
        dir(torch.cuda.Stream)
    )
    inspect.signature(torch.cuda.graph).bind(None, stream=None, capture_error_mode="thread_local")

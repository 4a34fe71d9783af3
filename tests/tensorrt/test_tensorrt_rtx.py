"""Every graph parsed and built with all its profiles by TensorRT-RTX, whose builder needs no GPU.

It shares parser and interface with TensorRT 11; that TensorRT 10.14 builds them too is not shown here.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from small_engines import VOCODERS, shapes_of, write_graphs

import tensorrt_fake
from cosyvoice_runtime.tensorrt import extractor_graphs as extractors
from cosyvoice_runtime.tensorrt.engine_files import build_engine
from cuda_fake import FakeCuda
from onnx_graphs import write_encoder, write_tokenizer

trt = pytest.importorskip("tensorrt_rtx_bindings")
pytestmark = pytest.mark.filterwarnings("ignore:Use Deprecated in TensorRT-RTX")  # timing caches

fake = tensorrt_fake.fake_tensorrt(FakeCuda())
FEW_BLOCKS = {
    "resblock_kernels": (3,), "resblock_dilations": ((1, 3),), "source_dilations": ((1,), (3,), (1,))
}  # fmt: skip
"""All stages of the decoder, and of each only what is not repeated: building takes a third of the time."""


@pytest.mark.parametrize(
    ("family", "dtype"), [*((family, "float16") for family in VOCODERS), (next(iter(VOCODERS)), "float32")]
)
def test_graphs_of_the_networks_build_with_all_profiles(family: str, dtype: str, tmp_path: Path) -> None:
    few_blocks = replace(VOCODERS[family], **FEW_BLOCKS)
    for path in write_graphs(tmp_path, dtype, family, few_blocks):
        assert no_input_is_read_as_a_shape(path)
        profiles = shapes_of(family).profiles()[path.stem]
        # Graphs in float32 have the same shapes; building takes as long for each profile.
        plan, timings = build_engine(trt, path, profiles if dtype == "float16" else profiles[:1], b"")
        assert plan
        assert timings


@pytest.mark.parametrize(
    ("name", "write"), [("speech_tokenizer", write_tokenizer), ("speaker_encoder", write_encoder)]
)
def test_graphs_of_the_extractors_build_with_a_free_batch(name: str, write, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.onnx"
    assert extractors.prepare(name, write(tmp_path / "shipped.onnx"), path)
    plan, _ = build_engine(trt, path, [extractors.PROFILE], b"")
    assert plan


@pytest.mark.parametrize(
    ("name", "stand_in"),
    [
        ("Builder", fake.Builder),
        ("OnnxParser", fake.OnnxParser),
        ("Runtime", fake.Runtime),
        ("IBuilderConfig", tensorrt_fake._Config),
        ("IOptimizationProfile", tensorrt_fake.Profile),
        ("ITimingCache", tensorrt_fake.TimingCache),
        ("ICudaEngine", tensorrt_fake.FakeEngine),
        ("IExecutionContext", tensorrt_fake.FakeContext),
    ],
)
def test_the_stand_in_has_no_calls_that_tensorrt_lacks(name: str, stand_in: type) -> None:
    calls = {call for call in vars(stand_in) if not call.startswith("_")}
    assert calls - {"check"} <= set(dir(getattr(trt, name)))


def no_input_is_read_as_a_shape(path: Path) -> bool:
    """TensorRT would want such an input in host memory."""
    log = trt.Logger(trt.Logger.ERROR)
    network = trt.Builder(log).create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, log)
    assert parser.parse(path.read_bytes())
    return not any(network.get_input(index).is_shape_tensor for index in range(network.num_inputs))

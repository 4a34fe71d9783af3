"""From the training weights to a checkpoint directory in the published layout, in half precision."""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from cosyvoice_runtime.checkpoint import hyperpyyaml
from cosyvoice_runtime.checkpoint.checksums import write_checksums
from cosyvoice_runtime.checkpoint.fresh_directory import fresh_directory
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.schema import Schema, flow_schema, vocoder_schema
from cosyvoice_runtime.flow.torch.flow import FlowNetwork
from cosyvoice_runtime.flow.weights import own_name
from cosyvoice_runtime.vocoder.torch.hift import HiFT
from cosyvoice_runtime.vocoder.weights import DIRECTION, GAIN
from demo_voice.training.flow import with_phases
from demo_voice.training.lm import SpeechLMNetwork
from demo_voice.training.sizes import DEMO
from demo_voice.training.speaker_encoder import SpeakerEncoderNetwork
from demo_voice.training.speech_tokenizer import SpeechTokenizerNetwork
from demo_voice.training.text_tokenizer import Bpe, load_or_train
from demo_voice.training.trainer import restore
from demo_voice.training.voices import add_voices
from making.architecture import yaml_tree

OPSET = 17
KEPT = ("README.md", "held_out.json")
"""Files of an earlier export that are not made by this one."""

State = Mapping[str, Tensor]


def export(kept: Path, directory: Path) -> None:
    """Write a checkpoint from what is kept of the training; stages without weights stay untrained."""
    tokenizer, encoder = SpeechTokenizerNetwork(), SpeakerEncoderNetwork()
    lm, flow, hift = SpeechLMNetwork(DEMO.speech_lm), FlowNetwork(DEMO.flow), HiFT(DEMO.vocoder)
    restore(kept / "speech_tokenizer.pt", network=tokenizer)
    restore(kept / "speaker_encoder.pt", network=encoder)
    restore(kept / "lm.pt", network=lm)
    restore(kept / "flow.pt", network=flow)
    restore(kept / "vocoder.pt", hift=hift)
    with_phases(flow)
    bpe = load_or_train(kept / "bpe.json", [])
    with fresh_directory(directory, force=True) as building:
        write_checkpoint(building, bpe, tokenizer, encoder, lm, flow, hift)
        add_voices(building)
        for name in KEPT:
            if (directory / name).exists():
                shutil.copy(directory / name, building)
        write_checksums(building, Layout(building).names())


def write_checkpoint(
    directory: Path,
    bpe: Bpe,
    tokenizer: SpeechTokenizerNetwork,
    encoder: SpeakerEncoderNetwork,
    lm: SpeechLMNetwork,
    flow: FlowNetwork,
    hift: HiFT,
) -> None:
    """Every file of the published layout."""
    bpe.write(directory / "CosyVoice-BlankEN", DEMO.speech_lm)
    hyperpyyaml.write(directory / "cosyvoice2.yaml", yaml_tree(DEMO))
    write_onnx(
        directory / "speech_tokenizer_v2.onnx",
        tokenizer,
        {"feats": torch.zeros(1, 128, 200), "feats_length": torch.tensor([200], dtype=torch.int32)},
        {
            "feats": {0: "batch", 2: "frames"},
            "feats_length": {0: "batch"},
            "indices": {0: "batch", 1: "tokens"},
        },
        "indices",
    )
    write_onnx(
        directory / "campplus.onnx",
        encoder,
        {"input": torch.zeros(1, 200, 80)},
        {"input": {0: "batch", 1: "frames"}, "output": {0: "batch"}},
        "output",
    )
    _save(directory / "llm.pt", lm.published())
    _save(directory / "flow.pt", published_flow(flow.state_dict(), flow_schema(DEMO.flow)))
    _save(directory / "hift.pt", published_vocoder(hift.state_dict(), vocoder_schema(DEMO.vocoder)))


def published_flow(state: State, schema: Schema) -> dict[str, Tensor]:
    """The flow's state dict under the published names: fused projections split, matrices as convolutions."""
    split = {}
    for name, tensor in state.items():
        match = re.fullmatch(r"(.*\.)qkv\.(weight|bias)", name)
        if match:
            for part, piece in zip("qkv", tensor.chunk(3), strict=True):
                split[f"{match[1]}{part}.{match[2]}"] = piece
        else:
            split[name] = tensor
    return {name: _shaped(split[own_name(name)], shape) for name, shape in schema.items()}


def _shaped(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    if len(shape) < 3:
        return tensor
    outputs, inputs, taps = shape
    return tensor.reshape(outputs, taps, inputs).transpose(1, 2).contiguous()


def published_vocoder(state: State, schema: Schema) -> dict[str, Tensor]:
    """The vocoder's state dict under the published names, weights divided into gain and direction."""
    plain = {name.removeprefix("decoder."): tensor for name, tensor in state.items()}
    tensors = {}
    for name in schema:
        if name.endswith(GAIN):
            weight = plain[name.removesuffix(GAIN) + ".weight"]
            tensors[name] = torch.linalg.vector_norm(weight, dim=(1, 2), keepdim=True)
        elif name.endswith(DIRECTION):
            tensors[name] = plain[name.removesuffix(DIRECTION) + ".weight"]
        else:
            tensors[name] = plain[name]
    return tensors


def write_onnx(
    path: Path,
    network: nn.Module,
    inputs: Mapping[str, Tensor],
    dynamic: Mapping[str, Mapping[int, str]],
    output: str,
) -> None:
    """Export with weights in half precision, which the graph casts to float32 when it is loaded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter announces its successor
        torch.onnx.export(
            network.eval().cpu().float(),
            tuple(inputs.values()),
            str(path),
            input_names=list(inputs),
            output_names=[output],
            dynamic_axes={name: dict(axes) for name, axes in dynamic.items()},
            opset_version=OPSET,
            dynamo=False,
        )
    model = onnx.load(path)
    _halve_weights(model.graph)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def _halve_weights(graph: onnx.GraphProto) -> None:
    casts = []
    for weight in graph.initializer:
        if weight.data_type == TensorProto.FLOAT and np.prod(weight.dims) > 64:
            name = weight.name
            halved = numpy_helper.from_array(numpy_helper.to_array(weight).astype(np.float16), f"{name}.half")
            weight.CopyFrom(halved)
            casts.append(helper.make_node("Cast", [f"{name}.half"], [name], to=TensorProto.FLOAT))
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def _save(path: Path, tensors: State) -> None:
    halved: dict[int, Tensor] = {}
    for tensor in tensors.values():
        halved.setdefault(tensor.data_ptr(), tensor.detach().cpu().half())
    # Tied tensors stay one tensor, which torch.save writes once.
    torch.save(
        {name: halved[tensor.data_ptr()].reshape(tensor.shape) for name, tensor in tensors.items()}, path
    )

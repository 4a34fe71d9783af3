"""The speech LM's files for ONNX Runtime: a graph of its operators, and its weights in another file.

The graph takes embeddings and gives the logits after the last position of each sequence, and its queries of
heads that follow the text. Keys and values are inputs and outputs of every layer: bound to the same memory,
the cache is written in place.

B: sequences, S: positions fed at once, P: positions of the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from cosyvoice_runtime.checkpoint.alignment_heads import AlignmentHeads
from cosyvoice_runtime.checkpoint.checksums import write_checksums
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.fresh_directory import renew_directory
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.lm_rows import layer_tensors, outer_tensors
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.checkpoint.tensors import load_tensors
from cosyvoice_runtime.errors import CheckpointError, InvalidInput
from cosyvoice_runtime.lm.onnx.files import (
    BLOCKS,
    EMBEDDINGS,
    KINDS,
    LAST,
    LOGITS,
    ROWS,
    TOTAL,
    WEIGHT_FORMATS,
    LmFiles,
    past_name,
    present_name,
    query_name,
    wanted_manifest,
    why_not_usable,
)
from cosyvoice_runtime.lm.onnx.rotary import rotary
from cosyvoice_runtime.lm.prompt import TABLES
from cosyvoice_runtime.onnx.graph import FAR, FLOAT, NUMPY_TYPES, UINT8, Value
from cosyvoice_runtime.onnx.runtime_graph import INT32, IntegerProducts, RuntimeGraph
from cosyvoice_runtime.settings.model import MANIFEST

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]
Heads = Sequence[tuple[int, int]]
"""Layer and head of each."""

BLOCK = 32
"""Weights of a row that share a scale."""
MIDDLE = 128
"""The 8-bit value of 0, which the runtime assumes where no zero points are given."""
INT8_PRODUCTS = 4
"""``accuracy_level`` by which 8-bit weights meet activations in 8 bits, quantised block by block."""
HEAD_MULTIPLE = 16
"""The runtime rotates only heads whose width is a multiple of this."""
ALIGNMENT = 4096
"""Alignment of a weight in its file, which is mapped into memory."""


class SpeechGraph(RuntimeGraph):
    """A graph whose arrays go to a file as they come, so that memory holds one of them at a time.

    Args:
        file: gets the weights.
        weight_format: format of the matrices, one of `files.WEIGHT_FORMATS`.
    """

    def __init__(self, file: BinaryIO, weight_format: str) -> None:
        super().__init__("speech_lm", "float32")
        self._file = file
        self._format = weight_format

    def begin(self, x: Value) -> None:
        """Give the next layers the positions of ``x [B, S, C]``."""
        if self._format == ROWS:
            self._integers, self._sequences = IntegerProducts(self), self.size(x, 0)

    def weight(self, name: str, array: Array | None = None, onnx_type: int | None = None) -> Value:
        """A weight in the file, in the given type."""
        assert array is not None
        assert onnx_type is not None
        return self.outside(name, array.astype(NUMPY_TYPES[onnx_type]), onnx_type)

    def outside(self, name: str, array: Array, onnx_type: int) -> Value:
        """An array in the file."""
        self._file.write(bytes(-self._file.tell() % ALIGNMENT))
        stored = TensorProto(name=name, data_type=onnx_type, dims=array.shape)
        stored.data_location = TensorProto.EXTERNAL
        external = {
            "location": Path(self._file.name).name,
            "offset": self._file.tell(),
            "length": array.nbytes,
        }
        for key, value in external.items():
            stored.external_data.add(key=key, value=str(value))
        self._file.write(np.ascontiguousarray(array).data)
        self._constants[name] = stored
        return Value(self, name, onnx_type)

    def vector(self, name: str, array: Array) -> Value:
        return self.outside(name, array.astype(np.float32), FLOAT)

    def linear(self, name: str, weight: Array, x: Value, bias: Array | None = None) -> Value:
        """``x @ weight.T + bias``, weight [out, in]."""
        if self._format == BLOCKS:
            return self._quantised(name, weight, x, bias)
        product = (
            self._in_steps(name, weight, x)
            if self._format == ROWS
            else x @ self.outside(f"{name}.weight", weight.astype(np.float32).T, FLOAT)
        )
        return product if bias is None else product + self.vector(f"{name}.bias", bias)

    def _in_steps(self, name: str, weight: Array, x: Value) -> Value:
        out, inside = weight.shape
        product = self._integers.product(name, weight, self.reshape(x, (-1, inside)))
        return self.reshape(product, self.concat([self._sequences, self.integers(-1, out)], 0))

    def _quantised(self, name: str, weight: Array, x: Value, bias: Array | None) -> Value:
        values, scales = quantised(weight)
        return self.runtime(
            "MatMulNBits",
            x,
            self.outside(f"{name}.weight", values, UINT8),
            self.outside(f"{name}.scales", scales, FLOAT),
            None,
            None,
            None if bias is None else self.vector(f"{name}.bias", bias),
            N=weight.shape[0],
            K=weight.shape[1],
            bits=8,
            block_size=BLOCK,
            accuracy_level=INT8_PRODUCTS,
        )


def quantised(weight: Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    """Each block of a row as 8-bit multiples of its own scale, the largest of which is 127.

    Returns:
        [out, blocks, BLOCK] around MIDDLE, and scales [out, blocks], of a weight [out, in].
    """
    rows, columns = weight.shape
    padded = np.pad(weight.astype(np.float32), ((0, 0), (0, -columns % BLOCK)))
    blocks = padded.reshape(rows, -1, BLOCK)
    scales = np.abs(blocks).max(axis=2) / np.float32(127)
    steps = np.rint(blocks / np.where(scales > 0, scales, np.float32(1))[:, :, None])
    return (steps + MIDDLE).astype(np.uint8), scales


def matrix_bytes(config: SpeechLMConfig) -> int:
    """Bytes of the layers' matrices in float32."""
    attention = config.head_dim * (2 * config.num_heads + 2 * config.num_kv_heads)
    return 4 * config.num_layers * config.hidden_size * (attention + 3 * config.intermediate_size)


def write_graph(
    config: SpeechLMConfig, tensors: Tensors, weight_format: str, file: BinaryIO, heads: Heads = ()
) -> onnx.ModelProto:
    """Write the weights to ``file``, and return the graph.

    Args:
        tensors: arrays by their published names.
        weight_format: one of `files.WEIGHT_FORMATS`.
        heads: whose queries are outputs.

    Raises:
        CheckpointError: the runtime can't rotate heads of this width.
    """
    if config.head_dim % HEAD_MULTIPLE:
        raise CheckpointError(
            f"heads of the speech LM have {config.head_dim} values; "
            f"engine onnx needs a multiple of {HEAD_MULTIPLE}"
        )
    graph = SpeechGraph(file, weight_format)
    _Body(graph, config, tensors, heads).write()
    return graph.unchecked_model()


class _Body:
    """The decoder's layers and head, from tensors by their published names."""

    def __init__(self, graph: SpeechGraph, config: SpeechLMConfig, tensors: Tensors, heads: Heads) -> None:
        self._graph = graph
        self._heads = heads
        self._config = config
        self._tensors = tensors
        self._outer = outer_tensors(config, tensors)

    def write(self) -> None:
        graph, config = self._graph, self._config
        x = graph.input(EMBEDDINGS, FLOAT, ("B", "S", config.hidden_size))
        graph.begin(x)
        rotation = [graph.input(LAST, INT32, ("B",)), graph.input(TOTAL, INT32, (1,))]
        cosines, sines = rotary(config, np.arange(config.max_positions))
        rotation += [graph.vector("rotary.cosines", cosines), graph.vector("rotary.sines", sines)]
        added: Value | None = None
        for index in range(config.num_layers):
            added, x = self._layer(index, rotation, x, added)
        normed, _ = self._norm("norm", self._outer["norm.weight"], x, added)
        logits = graph.linear("head", self._outer["head.weight"], normed, self._outer.get("head.bias"))
        graph.output(LOGITS, logits, ("B", 1, config.speech_rows))

    def _layer(self, index: int, rotation: list[Value], x: Value, added: Value | None) -> tuple[Value, Value]:
        """The MLP's product, and the sum that it is added to; of the last position alone in the last layer.

        Args:
            rotation: inputs with the positions and their rotation.
            x, added: the results of the layer before; the first layer has nothing to add.
        """
        graph, name = self._graph, f"layers.{index}"
        layer = layer_tensors(self._tensors, index, np.concatenate)
        normed, x = self._norm(f"{name}.attention_norm", layer["attention_norm.weight"], x, added)
        mixed = self._attention(index, layer, rotation, normed)
        if index + 1 == self._config.num_layers:
            mixed, x = self._last(mixed), self._last(x)
            graph.begin(x)
        output = graph.linear(f"{name}.output", layer["attention.output.weight"], mixed)
        normed, x = self._norm(f"{name}.mlp_norm", layer["mlp_norm.weight"], x, output)
        both = graph.linear(f"{name}.gate_up", layer["mlp.gate_up.weight"], normed)
        gate, up = graph.node("Split", both, outputs=2, axis=-1, num_outputs=2)
        opened = graph.runtime("QuickGelu", gate, alpha=1.0) * up
        return graph.linear(f"{name}.down", layer["mlp.down.weight"], opened), x

    def _attention(self, index: int, layer: Tensors, rotation: list[Value], normed: Value) -> Value:
        graph, config = self._graph, self._config
        weight, bias = layer["attention.qkv.weight"], layer["attention.qkv.bias"]
        qkv = graph.linear(f"layers.{index}.qkv", weight, normed, bias)
        self._give_queries(index, qkv)
        shape = ("B", config.num_kv_heads, "P", config.head_dim)
        memory = [(past_name(index, kind), present_name(index, kind)) for kind in KINDS]
        return graph.attention(
            (qkv, None, None),
            memory,
            shape,
            rotation,
            num_heads=config.num_heads,
            kv_num_heads=config.num_kv_heads,
            do_rotary=1,
        )

    def _give_queries(self, index: int, qkv: Value) -> None:
        """Make the last position's queries of some heads outputs, which are cut out of ``qkv [B, S, C]``."""
        graph, size = self._graph, self._config.head_dim
        for layer, head in self._heads:
            if layer == index:
                start, end = graph.integers(-1, head * size), graph.integers(FAR, (head + 1) * size)
                query = graph.node("Slice", qkv, start, end, graph.integers(1, 2))
                graph.bound_output(query_name(layer, head), query, ("B", 1, size))

    def _norm(self, name: str, scale: Array, x: Value, added: Value | None) -> tuple[Value, Value]:
        """Norm of a sum, and the sum."""
        graph, weight = self._graph, self._graph.vector(name, scale)
        epsilon = self._config.rms_norm_eps
        if added is None:
            return graph.node("SimplifiedLayerNormalization", x, weight, axis=-1, epsilon=epsilon), x
        parts = (x, added, weight)
        normed, mean, deviation, total = graph.runtime(
            "SkipSimplifiedLayerNormalization", *parts, outputs=4, epsilon=epsilon
        )
        graph.leave_out(mean, deviation)
        return normed, total

    def _last(self, x: Value) -> Value:
        return self._graph.slice(x, 1, -1, np.iinfo(np.int64).max)


PROMPT_BYTES = 64 << 20
"""Most memory for a second copy of the matrices, in float32, in which prompts are faster and exact."""


def export_lm(checkpoint_dir: Path, directory: Path, weight_format: str) -> list[str]:
    """Write the directory unless it holds the same already, undamaged.

    Args:
        directory: absent, empty, or with an earlier export, which is replaced.
        weight_format: one of WEIGHT_FORMATS.

    Returns:
        why it was written, a sentence each; empty if nothing had changed.

    Raises:
        CheckpointError: the checkpoint is damaged, or of sizes that the runtime can't take.
        InvalidInput: an unknown format, or ``directory`` holds something else.
    """
    if weight_format not in WEIGHT_FORMATS:
        raise InvalidInput("weight_format", weight_format, f"one of {', '.join(WEIGHT_FORMATS)}")
    wanted = wanted_manifest(Layout(checkpoint_dir), weight_format)

    def write(building: Path) -> None:
        layout, config = Layout(checkpoint_dir), load_config(checkpoint_dir)
        tensors = FloatArrays(load_tensors(layout, "llm", config))
        known = AlignmentHeads.of(layout, config.speech_lm)
        heads = () if known is None else known.heads
        write_lm(config.speech_lm, tensors, LmFiles(building), weight_format, heads)
        wanted.write(building)

    return renew_directory(directory, lambda: why_not_usable(directory, wanted), write, MANIFEST)


class FloatArrays(Mapping[str, npt.NDArray[np.float32]]):
    """Tensors of a checkpoint as float32, each widened when it is asked for."""

    def __init__(self, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        self._tensors = tensors

    def __getitem__(self, name: str) -> npt.NDArray[np.float32]:
        return self._tensors[name].astype(np.float32, copy=False)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def write_lm(
    config: SpeechLMConfig, tensors: Tensors, files: LmFiles, weight_format: str, heads: Heads = ()
) -> None:
    """Write the files of a network with these published tensors; raises as `write_graph`."""
    graphs = [(files.model, files.weights, weight_format)]
    if weight_format != "float32" and matrix_bytes(config) <= PROMPT_BYTES:
        graphs.append((files.prompt_model, files.prompt_weights, "float32"))
    for model, weights, each in graphs:
        with weights.open("wb") as file:
            onnx.save(write_graph(config, tensors, each, file, heads), model)
    outer = outer_tensors(config, tensors)
    for table in TABLES:
        rows = outer[f"{table.value}_embedding.weight"]
        np.save(files.table(table), rows)
    write_checksums(files.directory, [path.name for path in files.directory.iterdir()])

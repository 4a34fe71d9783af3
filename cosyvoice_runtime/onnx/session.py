"""Sessions of ONNX Runtime on the CPU, and the names and files of token2wav's graphs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import onnxruntime

from cosyvoice_runtime.arrays import Array, Floats
from cosyvoice_runtime.errors import EngineFileError
from cosyvoice_runtime.onnx.cpu_features import adds_in_32_bits, cpu_flags
from cosyvoice_runtime.onnx.memory import give_back_heap, share_arena

FLOW_ENCODER = "flow_encoder_cpu"
FLOW_ESTIMATOR = "flow_estimator_cpu"
FLOW_TIMES = "flow_times_cpu"
HIFT_F0 = "hift_f0_cpu"
HIFT_DECODER = "hift_decoder_cpu"
GRAPHS = FLOW_ENCODER, FLOW_ESTIMATOR, FLOW_TIMES, HIFT_F0, HIFT_DECODER


class EstimatorFormats(NamedTuple):
    """Number formats of the flow's estimator.

    Attributes:
        weights: of the matrices, ``float32`` or ``int8``.
        pages: of keys and values that later calls read, ``float32``, ``float16`` or ``float8``.
    """

    weights: str = "float32"
    pages: str = "float32"


def graph_path(directory: Path, name: str) -> Path:
    """File of a graph of token2wav."""
    return directory / f"{name}.onnx"


def open_session(path: Path, threads: int, own_layouts: bool = False) -> onnxruntime.InferenceSession:
    """Open a graph.

    Args:
        threads: number of threads of one operation.
        own_layouts: let channels lie as the runtime's convolutions over two axes want them.

    Raises:
        EngineFileError: the file is missing or no readable model.
    """
    if not path.is_file():
        raise EngineFileError(f"{path} is missing")
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if own_layouts else level.ORT_ENABLE_EXTENDED
    # A plan of memory for every length that comes would take more than it saves.
    options.enable_mem_pattern = False
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    # By default what a layer keeps for later is cut out at the end, and all that it is cut from lies there.
    options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Waiting threads would otherwise burn the cores that the other networks of the process need.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Packed weights lie in memory of their own, and not in an arena that grows by powers of two.
    options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    share_arena(options)
    if not adds_in_32_bits(cpu_flags()):
        options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's own errors share no narrower base
        raise EngineFileError(f"{path}: not a readable ONNX model ({error})") from error
    give_back_heap()
    return session


class NamedSession:
    """A session whose inputs and outputs go by their names.

    Attributes:
        shapes: of the inputs; a size that is free has a name.
        properties: metadata of the graph.
    """

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self.shapes: dict[str, list[int | str]] = {port.name: port.shape for port in session.get_inputs()}
        self.properties: dict[str, str] = session.get_modelmeta().custom_metadata_map
        self._outputs = [port.name for port in session.get_outputs()]

    def bound(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> BoundRun:
        """Runs that read those of the inputs that the graph has, and write the outputs."""
        return BoundRun(self._session, {name: inputs[name] for name in self.shapes}, outputs)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Floats]:
        """All outputs, of those inputs that the graph has."""
        known = {name: inputs[name] for name in self.shapes}
        return dict(zip(self._outputs, self._session.run(self._outputs, known), strict=True))


class BoundRun:
    """Runs of a session over memory that is written anew between them.

    Args:
        inputs, outputs: contiguous arrays by the names of all ports, in the types of these. One may be both,
            where the graph writes behind what it reads.
    """

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
    ) -> None:
        self._session, self._binding = session, session.io_binding()
        self._held = [*inputs.values(), *outputs.values()]
        for bind, arrays in ((self._binding.bind_input, inputs), (self._binding.bind_output, outputs)):
            for name, array in arrays.items():
                bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

    def run(self) -> None:
        self._session.run_with_iobinding(self._binding)

"""Sessions of ONNX Runtime on the CPU."""

from __future__ import annotations

from pathlib import Path

import onnxruntime

from cosyvoice_runtime.errors import EngineFileError


def open_session(path: Path, threads: int, own_layouts: bool = False) -> onnxruntime.InferenceSession:
    """
    Args:
        threads: of one operation.
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
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Waiting threads would otherwise burn the cores that the other networks of the process need.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Packed weights lie in memory of their own, and not in an arena that grows by powers of two.
    options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's own errors share no narrower base
        raise EngineFileError(f"{path}: not a readable ONNX model ({error})") from error

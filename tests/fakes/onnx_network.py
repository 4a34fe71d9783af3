"""A compiled network on ONNX Runtime, in place of TensorRT's."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
import torch
from torch import Tensor

from cosyvoice_runtime.errors import EngineFileError
from cosyvoice_runtime.tensorrt.engine_files import Inputs
from cosyvoice_runtime.tensorrt.network import whole


class OnnxNetwork:
    """
    Raises:
        EngineFileError: the file is missing or no readable model.
    """

    def __init__(self, path: Path, threads: int = 1) -> None:
        if not path.is_file():
            raise EngineFileError(f"{path} is missing")
        options = onnxruntime.SessionOptions()
        # One level more changes memory layouts, and there 1.31 dies of a segmentation fault on the encoder in
        # float16.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the runtime's own errors share no narrower base
            raise EngineFileError(f"{path}: not a readable ONNX model ({error})") from error
        self.inputs = {given.name for given in self._session.get_inputs()}
        self._outputs = [output.name for output in self._session.get_outputs()]

    def run(self, inputs: Inputs) -> dict[str, Tensor]:
        arrays = {name: whole(value).contiguous().numpy() for name, value in inputs.items()}
        results = self._session.run(self._outputs, arrays)
        return {name: torch.from_numpy(array) for name, array in zip(self._outputs, results, strict=True)}

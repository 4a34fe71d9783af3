"""One real inference that shows whether a model works: readiness stays true when its process is dead."""

from __future__ import annotations

import json
import queue
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype, triton_to_np_dtype

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.supervisor.errors import PreflightError

FILE_NAME = "probe.json"
BUSY = re.compile("try again later|Exceeds maximum queue size")
"""How a model, or Triton's queue before it, refuses what is too much; streams lose the status."""

ProbeFunction = Callable[[str, float], None]
"""Called with gRPC ``host:port`` and a timeout in seconds; raises :class:`ProbeError`."""


class ProbeError(CosyVoiceError):
    """A model gave no answer, or an error."""


@dataclass(frozen=True)
class Probe:
    """A request with fixed inputs.

    ``<model>/probe.json`` in the model repository holds it::

        {"inputs": {"target_text": {"datatype": "BYTES", "shape": [1, 1], "data": ["hi"]},
                    "reference_wav": {"datatype": "FP32", "shape": [1, 16000], "data": 0.01}}}

    ``data`` is a list in row-major order, repeated until the shape is full, or one value for all elements.
    """

    model: str
    inputs: Mapping[str, np.ndarray[Any, Any]]

    @classmethod
    def read(cls, path: Path) -> Probe:
        """
        Raises:
            PreflightError: the file holds no probe.
        """
        try:
            inputs = json.loads(path.read_text(encoding="utf-8"))["inputs"]
            return cls(path.parent.name, {name: _array(value) for name, value in inputs.items()})
        except (ValueError, KeyError, TypeError) as error:
            raise PreflightError([f"{path} is no probe ({error!r})"]) from error

    def __call__(self, url: str, timeout_s: float) -> None:
        """Send the request and wait for its last response.

        A refusal for want of room is an answer as well: whoever is busy works.

        Raises:
            ProbeError: another error, no output at all, or no end within the timeout.
        """
        responses: queue.Queue[tuple[Any, Any]] = queue.Queue()
        ended = False
        client = triton.InferenceServerClient(url)
        try:
            client.start_stream(callback=lambda result, error: responses.put((result, error)))
            client.async_stream_infer(
                self.model,
                [_input(name, array) for name, array in self.inputs.items()],
                enable_empty_final_response=True,
            )
            self._read(responses, time.monotonic() + timeout_s)
            ended = True
        except InferenceServerException as error:
            if not BUSY.search(error.message()):
                raise ProbeError(f"{self.model}: {error.message()}") from error
            ended = True
        finally:
            # Triton 24.10 may abort when a stream is cancelled just as it ends.
            client.stop_stream(cancel_requests=not ended)
            client.close()

    def _read(self, responses: queue.Queue[tuple[Any, Any]], deadline: float) -> None:
        outputs = 0
        while True:
            try:
                result, error = responses.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise ProbeError(f"{self.model}: no end of the answer in time") from None
            if error is not None:
                raise error
            response = result.get_response()
            outputs += len(response.outputs)
            if response.parameters["triton_final_response"].bool_param:
                break
        if not outputs:
            raise ProbeError(f"{self.model}: an answer without any output")


def read_probes(repository: Path) -> dict[str, ProbeFunction]:
    """The probe of every model that has one."""
    return {path.parent.name: Probe.read(path) for path in sorted(repository.glob(f"*/{FILE_NAME}"))}


def _array(value: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    dtype = triton_to_np_dtype(value["datatype"])
    data = value["data"]
    if dtype == np.object_:
        data = [text.encode() for text in data] if isinstance(data, list) else data.encode()
    return np.resize(np.array(data, dtype), value["shape"])


def _input(name: str, array: np.ndarray[Any, Any]) -> triton.InferInput:
    tensor = triton.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
    tensor.set_data_from_numpy(array)
    return tensor

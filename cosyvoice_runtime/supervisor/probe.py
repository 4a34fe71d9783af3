"""One real inference that shows whether a model works: readiness stays true when its process is dead."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import np_to_triton_dtype, serialize_byte_tensor, triton_to_np_dtype

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.supervisor.errors import PreflightError
from cosyvoice_runtime.supervisor.guarded_call import Check, guarded, keep_waiting

FILE_NAME = "probe.json"
BUSY = grpc.StatusCode.UNAVAILABLE
"""How a model, or Triton's queue before it, refuses what is too much."""
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    # A connection of its own: a shared one waits before it tries again to reach a server that was restarted.
    ("grpc.use_local_subchannel_pool", 1),
)
STATUS_OF_STREAMS = (("triton_grpc_error", "true"),)
"""Makes Triton end a stream with the status of an error, which it keeps to itself otherwise."""

ProbeFunction = Callable[[str, float, Check], None]
"""Called with gRPC ``host:port``, a timeout in seconds and a check that ends the waiting with what it raises;
raises :class:`ProbeError`."""


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

    def __call__(self, url: str, timeout_s: float, check: Check = keep_waiting) -> None:
        """Send the request and wait for its last response.

        A refusal for want of room is an answer as well: whoever is busy works.

        Args:
            url: ``host:port`` of gRPC.
            check: ends the waiting with what it raises.

        Raises:
            ProbeError: another error, no output at all, or no end within the timeout.
        """
        deadline = time.monotonic() + timeout_s
        with grpc.insecure_channel(url, CHANNEL_OPTIONS) as channel:
            server = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            try:
                decoupled = self._is_decoupled(server, timeout_s, check)
            except grpc.RpcError as error:
                raise self._failure(error) from error
            infer = self._stream if decoupled else self._call
            try:
                outputs = infer(server, max(0.0, deadline - time.monotonic()), check)
            except grpc.RpcError as error:
                if error.code() is BUSY:
                    return
                raise self._failure(error) from error
        if not outputs:
            raise ProbeError(f"{self.model}: an answer without any output")

    def _is_decoupled(self, server: Any, timeout_s: float, check: Check) -> bool:
        """Only a stream can ask a decoupled model, and only a plain call always gets an error's status."""
        request = service_pb2.ModelConfigRequest(name=self.model)
        call = server.ModelConfig.future(request, timeout=timeout_s)
        with guarded(check, call.cancel):
            return call.result().config.model_transaction_policy.decoupled

    def _call(self, server: Any, timeout_s: float, check: Check) -> int:
        """Number of outputs."""
        call = server.ModelInfer.future(self._request(), timeout=timeout_s)
        with guarded(check, call.cancel):
            return len(call.result().outputs)

    def _stream(self, server: Any, timeout_s: float, check: Check) -> int:
        """Number of outputs in all responses."""
        call = server.ModelStreamInfer(iter([self._request()]), timeout=timeout_s, metadata=STATUS_OF_STREAMS)
        with guarded(check, call.cancel):
            return self._count_outputs(call)

    def _count_outputs(self, responses: Iterable[Any]) -> int:
        outputs = 0
        for response in responses:
            if response.error_message:  # Triton refused the request before the model saw it
                raise ProbeError(f"{self.model}: {response.error_message}")
            outputs += len(response.infer_response.outputs)
        return outputs

    def _request(self) -> Any:
        return service_pb2.ModelInferRequest(
            model_name=self.model,
            inputs=[_tensor(name, array) for name, array in self.inputs.items()],
            raw_input_contents=[_content(array) for array in self.inputs.values()],
        )

    def _failure(self, error: grpc.RpcError) -> ProbeError:
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return ProbeError(f"{self.model}: no end of the answer in time")
        return ProbeError(f"{self.model}: {error.details()}")


def read_probes(repository: Path) -> dict[str, ProbeFunction]:
    """The probe of every model that has one."""
    return {path.parent.name: Probe.read(path) for path in sorted(repository.glob(f"*/{FILE_NAME}"))}


def _array(value: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    dtype = triton_to_np_dtype(value["datatype"])
    data = value["data"]
    if dtype == np.object_:
        data = [text.encode() for text in data] if isinstance(data, list) else data.encode()
    return np.resize(np.array(data, dtype), value["shape"])


def _tensor(name: str, array: np.ndarray[Any, Any]) -> Any:
    datatype = np_to_triton_dtype(array.dtype)
    return service_pb2.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=array.shape)


def _content(array: np.ndarray[Any, Any]) -> bytes:
    """Elements in row-major order, texts with their length before them."""
    return serialize_byte_tensor(array).item() if array.dtype == np.object_ else array.tobytes()

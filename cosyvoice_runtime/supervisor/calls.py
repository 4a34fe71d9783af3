"""The supervisor's calls to tritonserver: loads and unloads of models, metrics, and probes."""

from __future__ import annotations

import http.client
import json
import re
import select
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import np_to_triton_dtype, serialize_byte_tensor, triton_to_np_dtype

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.errors import CosyVoiceError, split_status
from cosyvoice_runtime.process.headers import PROBE_HEADER
from cosyvoice_runtime.process.listening import DIRECT
from cosyvoice_runtime.supervisor.errors import PreflightError

CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 10.0
LIVE_TIMEOUT_S = 5.0
LOOK_INTERVAL_S = 5.0
QUEUED = re.compile(r'^nv_inference_pending_request_count\{model="([^"]+)".*\} (\d+)$', re.MULTILINE)


class ControlError(CosyVoiceError):
    """The server refused a call, or did not answer."""


class Control:
    """Loads and unloads models, and reads metrics.

    To load models is to run code. These calls go through the server's own sockets, which no other user
    reaches; the gateways pass none of them on. HTTP has several threads, where the gRPC of Triton 2.51
    answers no other such call while a model loads. The end of the server, and of its models' processes, which
    inherit its sockets, ends each call.

    Args:
        http: the server's HTTP socket.
        metrics: the server's metrics socket.
    """

    def __init__(self, http: Path, metrics: Path) -> None:
        self._http = http
        self._metrics = metrics

    def live(self, tries: int = 1) -> bool:
        """Whether the server answers at least one of several health requests.

        Each comes by a connection of its own, as Triton may give one to a thread that waits for a load's end.
        """
        for _ in range(tries):
            with suppress(ControlError):
                _call(self._http, "GET", "/v2/health/live", LIVE_TIMEOUT_S)
                return True
        return False

    def load(self, model: str, timeout_s: float, meanwhile: Callable[[], None] | None = None) -> None:
        """Load a model and wait until it is ready.

        Args:
            meanwhile: called every few seconds.

        Raises:
            ControlError: the load failed; the text is the model's own error.
        """
        _call(self._http, "POST", f"/v2/repository/models/{model}/load", timeout_s, meanwhile)

    def unload(self, model: str, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Refuse new requests to a model, whose requests in flight finish."""
        _call(self._http, "POST", f"/v2/repository/models/{model}/unload", timeout_s)

    def metrics(self) -> str:
        """The text of Triton's metrics page."""
        return _call(self._metrics, "GET", "/metrics", ANSWER_TIMEOUT_S).decode()

    def queued_requests(self) -> Counter[str]:
        """The requests in Triton's queue by model."""
        counts: Counter[str] = Counter()
        for model, count in QUEUED.findall(self.metrics()):
            counts[model] += int(count)
        return counts


def _call(
    path: Path, method: str, target: str, timeout_s: float, meanwhile: Callable[[], None] | None = None
) -> bytes:
    """Send a request without a body to a Unix socket, and return the body of the answer.

    Raises:
        ControlError: there is no answer, or it is an error, whose text is raised.
    """
    connection = http.client.HTTPConnection("localhost")
    try:
        with closing(connection), socket.socket(socket.AF_UNIX) as stream:
            stream.settimeout(min(timeout_s, CONNECT_TIMEOUT_S))
            stream.connect(str(path))
            stream.settimeout(timeout_s)
            connection.sock = stream
            connection.request(method, target)
            if meanwhile is not None:
                _call_until_readable(stream, timeout_s, meanwhile)
            response = connection.getresponse()
            body = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise ControlError(f"no answer to {target}: {error!r}") from error
    if response.status != 200:
        raise ControlError(json.loads(body)["error"] if body.startswith(b"{") else f"HTTP {response.status}")
    return body


def _call_until_readable(stream: socket.socket, timeout_s: float, meanwhile: Callable[[], None]) -> None:
    listening = select.poll()  # select() supports file numbers below 1,024 only.
    listening.register(stream, select.POLLIN)
    deadline = time.monotonic() + timeout_s
    while not listening.poll(1000 * LOOK_INTERVAL_S):
        if time.monotonic() > deadline:
            raise TimeoutError
        meanwhile()


FILE_NAME = "probe.json"
BUSY = "UNAVAILABLE"
"""The status with which a model, or Triton's queue for it, refuses a request above its limits."""
CHANNEL_OPTIONS = (
    DIRECT,
    ("grpc.max_receive_message_length", -1),
    # Each probe has its own connection: a shared one delays its retry after a restart of the server.
    ("grpc.use_local_subchannel_pool", 1),
)
WAVEFORM = "waveform"
LOUD = 0.9, 1.0
"""The range in which the peak of clipped samples lies."""
CLIPPED = 0.5
"""The share of samples at the peak above which speech is lost."""
REMEDY = "./run.sh check compares every stage with float32; server.probe_numbers=false starts all the same"
ProbeFunction = Callable[[str, float], None]
"""A probe takes the gRPC ``host:port`` and a timeout in seconds; it raises :class:`ProbeError`."""


class ProbeError(CosyVoiceError):
    """The model gave no answer, or an error."""


class ProbeSilentError(ProbeError):
    """The model gave no answer in time."""


@dataclass(frozen=True)
class Probe:
    """A request with fixed inputs.

    ``<model>/probe.json`` in the model repository holds it::

        {"inputs": {"target_text": {"datatype": "BYTES", "shape": [1, 1], "data": ["hi"]},
                    "reference_wav": {"datatype": "FP32", "shape": [1, 16000], "data": 0.01}}}

    ``data`` is a list in row-major order, repeated until the shape is full, or one value for all elements.

    Attributes:
        key: tells the entry models that this is no client, whose capacity it must not take; empty for none.
        numbers: whether the numbers in the answer are checked (:func:`fault`).
    """

    model: str
    inputs: Mapping[str, np.ndarray[Any, Any]]
    key: str = ""
    numbers: bool = False

    @classmethod
    def read(cls, path: Path, key: str = "", numbers: bool = False) -> Probe:
        """Read the probe of a model; a PreflightError tells that the file holds none."""
        try:
            inputs = json.loads(path.read_text(encoding="utf-8"))["inputs"]
            return cls(
                path.parent.name, {name: _array(value) for name, value in inputs.items()}, key, numbers
            )
        except (ValueError, KeyError, TypeError) as error:
            raise PreflightError([f"{path} is no probe ({error!r})"]) from error

    def __call__(self, url: str, timeout_s: float) -> None:
        """Send the request and wait for its last response, or for the end of the server.

        A refusal for want of capacity is an answer as well: a model that is busy works.

        Args:
            url: the gRPC ``host:port``.

        Raises:
            ProbeError: the answer is an error, is empty, takes too long, or has wrong numbers.
        """
        try:
            with grpc.insecure_channel(url, CHANNEL_OPTIONS) as channel:
                responses = self._infer(service_pb2_grpc.GRPCInferenceServiceStub(channel), timeout_s)
        except grpc.RpcError as error:
            raise self._failure(error) from error
        if responses is None:
            return
        if not any(len(response.outputs) for response in responses):
            raise ProbeError(f"{self.model}: an answer without any output")
        wrong = fault(responses) if self.numbers else None
        if wrong:
            raise ProbeError(f"{self.model}: {wrong}")

    def _infer(self, server: Any, timeout_s: float) -> list[Any] | None:
        """The responses; None if the request was refused."""
        deadline = time.monotonic() + timeout_s
        request = service_pb2.ModelConfigRequest(name=self.model)
        config = server.ModelConfig(request, timeout=timeout_s).config
        # A decoupled model needs a stream; only a unary call reports the status of Triton's own errors.
        infer = self._stream if config.model_transaction_policy.decoupled else self._call
        try:
            return infer(server, max(0.0, deadline - time.monotonic()))
        except grpc.RpcError as error:
            if error.code().name == BUSY:
                return None
            raise

    def _call(self, server: Any, timeout_s: float) -> list[Any]:
        return [server.ModelInfer(self._request(), timeout=timeout_s, metadata=self._metadata())]

    def _stream(self, server: Any, timeout_s: float) -> list[Any] | None:
        # The header triton_grpc_error is not sent, because Triton 24.10 crashes in one of a thousand streams
        # that it ends with a gRPC status. The models write their status at the start of the message.
        call = server.ModelStreamInfer(iter([self._request()]), timeout=timeout_s, metadata=self._metadata())
        responses = [self._response(response) for response in call]
        return None if None in responses else responses

    def _response(self, response: Any) -> Any | None:
        if not response.error_message:
            return response.infer_response
        status, message = split_status(response.error_message)
        if status != BUSY:
            raise ProbeError(f"{self.model}: {message}")
        return None

    def _request(self) -> Any:
        return service_pb2.ModelInferRequest(
            model_name=self.model,
            inputs=[_tensor(name, array) for name, array in self.inputs.items()],
            raw_input_contents=[_content(array) for array in self.inputs.values()],
        )

    def _metadata(self) -> list[tuple[str, str]]:
        return [(PROBE_HEADER, self.key)] if self.key else []

    def _failure(self, error: grpc.RpcError) -> ProbeError:
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return ProbeSilentError(f"{self.model}: no end of the answer in time")
        return ProbeError(f"{self.model}: {error.details()}")


def read_probes(repository: Path, key: str = "", numbers: bool = False) -> dict[str, ProbeFunction]:
    """The probes of all models that have one."""
    return {
        path.parent.name: Probe.read(path, key, numbers) for path in sorted(repository.glob(f"*/{FILE_NAME}"))
    }


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
    """The elements in row-major order; texts are prefixed with their length."""
    return serialize_byte_tensor(array).item() if array.dtype == np.object_ else array.tobytes()


def fault(responses: Iterable[Any]) -> str | None:
    """The fault in the numbers of the responses to one request; None if there is none."""
    for name, values in _floats(responses).items():
        if not np.isfinite(values).all():
            return f"NaN or infinity in {name}; {REMEDY}"
        if name == WAVEFORM and values.size and not values.any():
            return f"all samples of {name} are 0: the flow or the vocoder gives no sound; {REMEDY}"
        if name == WAVEFORM and _is_clipped(values):
            return f"most samples of {name} are clipped: the flow or the vocoder is far too loud; {REMEDY}"
    return None


def _is_clipped(samples: Floats) -> bool:
    levels = np.abs(samples)
    peak = levels.max(initial=0.0)
    return bool(LOUD[0] <= peak <= LOUD[1] and (levels >= 0.999 * peak).mean() > CLIPPED)


def _floats(responses: Iterable[Any]) -> dict[str, Floats]:
    """The float outputs by name, joined over the responses."""
    pieces: dict[str, list[Floats]] = {}
    for response in responses:
        for output, content in zip(response.outputs, response.raw_output_contents, strict=False):
            dtype = triton_to_np_dtype(output.datatype)
            if dtype is not None and np.issubdtype(dtype, np.floating):
                pieces.setdefault(output.name, []).append(np.frombuffer(content, dtype))
    return {name: np.concatenate(found) for name, found in pieces.items()}

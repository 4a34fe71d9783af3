"""A request that came without Triton, as the code of a model sees it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils
from tritonclient.grpc import service_pb2
from tritonclient.utils import (
    deserialize_bytes_tensor,
    np_to_triton_dtype,
    serialize_byte_tensor,
    triton_to_np_dtype,
)

from cosyvoice_runtime.errors import STATUSES, InvalidInput
from cosyvoice_runtime.serving.triton.request import CODE_NAMES

Array = npt.NDArray[Any]

numpy_dtype = cache(triton_to_np_dtype)
triton_dtype = cache(np_to_triton_dtype)


@dataclass(frozen=True)
class ModelAnswer:
    """What a model answered, once.

    Attributes:
        outputs: by name; empty where only the end is told.
        status: of an error, one of ``STATUSES``.
        message: of an error.
    """

    outputs: dict[str, Array]
    status: str = ""
    message: str = ""


class LoopCalls:
    """Calls of functions in an event loop from other threads: all that have come meanwhile in one wake-up.

    Made in that loop.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Callable[[], None]] = deque()
        self._woken = False

    def add(self, function: Callable[[], None]) -> None:
        """Call this soon, after all added before; not at all if the loop has ended."""
        self._waiting.append(function)
        if not self._woken:  # otherwise the call to come finds it
            self._woken = True
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._call_all)

    def _call_all(self) -> None:
        self._woken = False
        while self._waiting:
            self._waiting.popleft()()


class Answers:
    """Answers to the requests of one call, from whichever thread; made and read in one event loop.

    Args:
        calls: of that loop.

    Attributes:
        gone: nobody reads them any more.
    """

    def __init__(self, calls: LoopCalls) -> None:
        self.gone = False
        self._calls = calls
        self._queue: asyncio.Queue[ModelAnswer | None] = asyncio.Queue()
        self._open = 1

    def expect(self) -> None:
        """One request more will be answered to its end."""
        self._open += 1

    def put(self, answer: ModelAnswer | None, final: bool) -> None:
        self._calls.add(partial(self._take, answer, final))

    def close(self) -> None:
        """No further request comes."""
        self.put(None, final=True)

    async def get(self) -> ModelAnswer | None:
        """The next; None after the last."""
        return await self._queue.get()

    def _take(self, answer: ModelAnswer | None, final: bool) -> None:
        if answer is not None:
            self._queue.put_nowait(answer)
        if final:
            self._open -= 1
            if not self._open:
                self._queue.put_nowait(None)


class HostedTensor:
    """An input, as ``pb_utils`` shows one."""

    def __init__(self, name: str, array: Array) -> None:
        self._name, self._array = name, array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> Array:
        return self._array


class HostedRequest:
    """A request and the sender of its responses, as ``pb_utils`` shows both.

    Args:
        message: ``ModelInferRequest`` with raw contents.

    Raises:
        InvalidInput: the message is not one that clients of this library send.
    """

    def __init__(self, message: Any, answers: Answers) -> None:
        if len(message.inputs) != len(message.raw_input_contents):
            raise InvalidInput("raw_input_contents", len(message.raw_input_contents), "one for each input")
        self._id = message.id
        self._wanted = [output.name for output in message.outputs]
        self._tensors = [
            HostedTensor(spec.name, read_array(spec, content))
            for spec, content in zip(message.inputs, message.raw_input_contents, strict=True)
        ]
        self._answers = answers
        answers.expect()

    def inputs(self) -> list[HostedTensor]:
        return self._tensors

    def request_id(self) -> str:
        return str(self._id)

    def parameters(self) -> str:
        return ""

    def requested_output_names(self) -> list[str]:
        return self._wanted

    def get_response_sender(self) -> HostedRequest:
        return self

    def is_cancelled(self) -> bool:
        return self._answers.gone

    def send(self, response: Any = None, flags: int = 0) -> None:
        final = bool(flags & pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        self._answers.put(None if response is None else _answer(response), final)


def _answer(response: Any) -> ModelAnswer:
    error = response.error()
    if error is not None:
        return ModelAnswer({}, status_names().get(error.code(), "INTERNAL"), error.message())
    return ModelAnswer({tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()})


@cache
def status_names() -> dict[Any, str]:
    """gRPC's names of the codes that models give to their errors."""
    names = {getattr(pb_utils.TritonError, CODE_NAMES.get(name, name), None): name for name in STATUSES}
    return {code: name for code, name in names.items() if code is not None}


def read_array(spec: Any, content: bytes) -> Array:
    """The tensor of a message.

    Raises:
        InvalidInput: its content is not what its type and shape say.
    """
    dtype = numpy_dtype(spec.datatype)
    try:
        flat = deserialize_bytes_tensor(content) if dtype == np.object_ else np.frombuffer(content, dtype)
        return flat.reshape(list(spec.shape))
    except (TypeError, ValueError) as error:
        raise InvalidInput(spec.name, f"{spec.datatype} {list(spec.shape)}", str(error)) from None


def write_response(model: str, request_id: str, outputs: dict[str, Array]) -> Any:
    """``ModelInferResponse`` of these outputs."""
    response = service_pb2.ModelInferResponse(model_name=model, model_version="1", id=request_id)
    for name, array in outputs.items():
        response.outputs.add(name=name, datatype=triton_dtype(array.dtype), shape=array.shape)
        text = array.dtype == np.object_
        response.raw_output_contents.append(serialize_byte_tensor(array).item() if text else array.tobytes())
    return response

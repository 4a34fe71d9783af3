"""Requests over both protocols, and what came back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp
import grpc
import numpy as np
from tritonclient.grpc import service_pb2

from cosyvoice_runtime.process.listening import DIRECT
from fuzzing.changes import TYPES, garbled
from fuzzing.request import Request, Tensor

SERVICE = "/inference.GRPCInferenceService"
HTTP_STATUS = {200: "OK", 499: "CANCELLED", 503: "UNAVAILABLE", 500: "INTERNAL"}
CLIENTS_FAULT = "INVALID_ARGUMENT"
LENGTH_HEADER = "Inference-Header-Content-Length"


@dataclass(frozen=True)
class Answer:
    """
    Attributes:
        status: gRPC's name; that of HTTP's code; HANG without an answer in time; LOST without a connection.
        text: of the error, or empty.
    """

    status: str
    text: str = ""


class Sender:
    """Used in ``async with``.

    Args:
        timeout_s: after which a request hangs.
    """

    def __init__(self, grpc_url: str, http_url: str, timeout_s: float) -> None:
        self._grpc_url = grpc_url
        self._http_url = f"http://{http_url}"
        self._timeout_s = timeout_s

    async def __aenter__(self) -> Sender:
        self._channel = grpc.aio.insecure_channel(
            self._grpc_url, [DIRECT, ("grpc.max_receive_message_length", -1)]
        )
        timeout = aiohttp.ClientTimeout(total=self._timeout_s)
        connector = aiohttp.TCPConnector(force_close=True)  # one that is kept may be closed by both at once
        self._http = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()
        await self._http.close()

    async def send(self, request: Request) -> Answer:
        try:
            if request.protocol in ("unary", "stream"):
                return await self._grpc(request)
            return await self._post(request)
        except TimeoutError:
            return Answer("HANG", f"nothing for {self._timeout_s:g} s")
        except (ValueError, UnicodeError) as error:
            return Answer("UNSENT", str(error))  # this side's library refuses to write it
        except aiohttp.ClientError as error:
            return Answer("LOST", repr(error))

    async def live(self) -> bool:
        call = self._channel.unary_unary(f"{SERVICE}/ServerLive")
        with suppress(grpc.RpcError):
            await call(b"", timeout=self._timeout_s, wait_for_ready=True)
            return True
        return False

    async def _grpc(self, request: Request) -> Answer:
        message = _message(request)
        metadata = [
            (name, value) for name, value in request.headers.items() if not name.startswith("content")
        ]
        try:
            async with asyncio.timeout(self._timeout_s):
                if request.protocol == "unary":
                    await self._channel.unary_unary(f"{SERVICE}/ModelInfer")(message, metadata=metadata)
                    return Answer("OK")
                return await self._stream(message, metadata)
        except grpc.aio.AioRpcError as error:
            return Answer(error.code().name, error.details() or "")

    async def _stream(self, message: bytes, metadata: list[tuple[str, str]]) -> Answer:
        async def once() -> AsyncIterator[bytes]:
            yield message

        call = self._channel.stream_stream(f"{SERVICE}/ModelStreamInfer")(once(), metadata=metadata)
        answer = Answer("OK")
        async for response in call:
            text = service_pb2.ModelStreamInferResponse.FromString(response).error_message
            if text:
                status, _, rest = text.partition(": ")
                answer = Answer(status if status.isupper() else "INTERNAL", rest or text)
        return answer

    async def _post(self, request: Request) -> Answer:
        path, body, headers = _http(request)
        async with self._http.post(self._http_url + path, data=body, headers=headers) as response:
            content = await response.read()
        if response.status != 200:
            return Answer(HTTP_STATUS.get(response.status, CLIENTS_FAULT), _error(content))
        if b'{"error"' in content[:100]:
            status, _, rest = _error(content.removeprefix(b"data: ")).partition(": ")
            return Answer(status if status.isupper() else "INTERNAL", rest or status)
        return Answer("OK")


def _message(request: Request) -> bytes:
    message = service_pb2.ModelInferRequest(
        model_name=request.model, model_version=request.version, id=request.id
    )
    for tensor in request.tensors:
        entry = message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        _set(entry.parameters, tensor.parameters)
        message.raw_input_contents.append(tensor.content)
    for name, parameters in request.outputs:
        _set(message.outputs.add(name=name).parameters, parameters)
    _set(message.parameters, request.parameters)
    content = bytes(message.SerializeToString())
    return content if request.garbled is None else garbled(content, request.garbled)


def _set(parameters: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        kind = {bool: "bool_param", int: "int64_param", str: "string_param"}[type(value)]
        setattr(parameters[name], kind, value)


def _http(request: Request) -> tuple[str, bytes, dict[str, str]]:
    """Path, body and headers."""
    version = f"/versions/{quote(request.version, safe='')}" if request.version else ""
    call = request.protocol.rpartition(" ")[2]
    path = f"/v2/models/{quote(request.model, safe='')}{version}/{call}"
    binary = b""
    document: dict[str, Any] = {"id": request.id, "parameters": request.parameters}
    if call == "infer":
        if request.outputs:
            document["outputs"] = [{"name": name, "parameters": more} for name, more in request.outputs]
        document["inputs"] = [
            _document(tensor, request.protocol == "binary infer") for tensor in request.tensors
        ]
        if request.protocol == "binary infer":
            binary = b"".join(tensor.content for tensor in request.tensors)
    else:
        document |= {tensor.name: _data(tensor) for tensor in request.tensors}
    header = json.dumps(document).encode()
    headers = {LENGTH_HEADER: str(len(header))} if binary else {}
    body = header + binary
    return (
        path,
        body if request.garbled is None else garbled(body, request.garbled),
        headers | request.headers,
    )


def _document(tensor: Tensor, binary: bool) -> dict[str, Any]:
    entry = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
    if binary:
        return entry | {"parameters": {"binary_data_size": len(tensor.content)} | tensor.parameters}
    return entry | {"data": _data(tensor), "parameters": tensor.parameters}


def _data(tensor: Tensor) -> Any:
    """The content as JSON, as far as it is what the type says."""
    if tensor.datatype in TYPES and len(tensor.content) % np.dtype(TYPES[tensor.datatype]).itemsize == 0:
        return np.frombuffer(tensor.content, TYPES[tensor.datatype]).tolist()
    return [tensor.content[4:].decode("utf-8", "replace")]


def _error(content: bytes) -> str:
    try:
        return str(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        return content.decode(errors="replace")

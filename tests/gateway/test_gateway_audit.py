"""The gateways' audit log, and the name by which every process calls a request."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from aiohttp import ClientSession, web
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import serialize_byte_tensor

from cosyvoice_runtime.gateway.audit import MOST_OPEN, CallAudit
from cosyvoice_runtime.gateway.grpc_gateway import GrpcGateway
from cosyvoice_runtime.gateway.http_gateway import HttpGateway
from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.gateway.request_check import UtteranceRequest
from cosyvoice_runtime.process.audit_log import AuditLog
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.preflight import ServerPorts

FREE = ServerSettings(http_port=0, grpc_port=0, metrics_port=0, model_metrics_port=0)
MODEL = "cosyvoice2"
MIB = 1 << 20
FIELDS = [
    "time", "request_id", "client", "peer", "route", "model", "voice", "characters", "seconds", "ending",
    "duration_ms",
]  # fmt: skip
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
CHUNK_SAMPLES, RATE = 12_000, 24_000


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:  # a Unix socket's path is short
        yield Path(folder)


def tensor(request: Any, name: str, text: str) -> None:
    request.inputs.add(name=name, datatype="BYTES", shape=[1, 1])
    request.raw_input_contents.append(serialize_byte_tensor(np.array([[text.encode()]], np.object_)).item())


def asked(text: str, request_id: str = "", voice: str = "", event: str = "", utterance: str = "") -> Any:
    request = service_pb2.ModelInferRequest(model_name=MODEL, id=request_id)
    inputs = {"target_text": text, "voice": voice, "text_event": event, "utterance_id": utterance}
    for name, value in inputs.items():
        if value:
            tensor(request, name, value)
    return request


def chunk(request_id: str, samples: int, final: bool = False) -> Any:
    response = service_pb2.ModelInferResponse(model_name=MODEL, id=request_id)
    if samples:
        response.outputs.add(name="waveform", datatype="FP32", shape=[samples])
        response.outputs.add(name="sample_rate", datatype="INT32", shape=[1])
        response.raw_output_contents.extend([bytes(4 * samples), RATE.to_bytes(4, "little")])
    response.parameters["triton_final_response"].bool_param = final
    return response


class FakeTriton(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Speaks a second, in two chunks, for each request whose text is no order; answers 'open' texts last.

    Attributes:
        names: what the gateways call the requests.
    """

    def __init__(self) -> None:
        self.names: list[str] = []

    async def ModelStreamInfer(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        self.names.append(dict(context.invocation_metadata())["x-request-id"])
        opened = ""
        async for request in requests:
            content = b"".join(request.raw_input_contents)
            if b"break" in content:
                error = "INTERNAL: broken" if b"break down" in content else "INVALID_ARGUMENT: no voice"
                yield service_pb2.ModelStreamInferResponse(
                    error_message=error, infer_response=chunk(request.id, 0, final=True)
                )
                continue
            if b"open" in content:
                opened = request.id
            else:
                for samples in (CHUNK_SAMPLES, CHUNK_SAMPLES, 0):
                    response = chunk(request.id, samples, final=not samples)
                    yield service_pb2.ModelStreamInferResponse(infer_response=response)
            if b"wait" in content:
                await asyncio.Event().wait()
        if opened:
            yield service_pb2.ModelStreamInferResponse(infer_response=chunk(opened, 0, final=True))

    async def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        if b"break" in (content := b"".join(request.raw_input_contents)):
            code = grpc.StatusCode.INTERNAL if b"break down" in content else grpc.StatusCode.INVALID_ARGUMENT
            await context.abort(code, "no voice")
        return chunk(request.id, RATE)


@asynccontextmanager
async def grpc_gateway(triton: FakeTriton, folder: Path, log: Path) -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(triton, server)
    server.add_insecure_port(f"unix:{folder}/grpc")
    await server.start()
    address = f"127.0.0.1:{ServerPorts.choose(FREE).grpc}"
    gateway = GrpcGateway(GatewayOptions(address, f"{folder}/grpc", (MODEL,), MIB, MIB, audit_file=str(log)))
    await gateway.start()
    async with grpc.aio.insecure_channel(address) as channel:
        yield channel
    await gateway.close()
    await server.stop(None)


def lines(log: Path) -> list[dict[str, Any]]:
    assert "secret" not in log.read_text("utf-8")
    written = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert all(list(line) == FIELDS for line in written)
    return written


def streamed(folder: Path, *requests: Any, **metadata: str) -> list[dict[str, Any]]:
    """The lines that one stream with these requests leaves."""
    log, triton = folder / "audit", FakeTriton()

    async def ask() -> None:
        async with grpc_gateway(triton, folder, log) as channel:
            said = [(name.replace("_", "-"), value) for name, value in metadata.items()]
            stream = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(
                iter(requests), metadata=said
            )
            async for _ in stream:
                continue
            named = dict(await stream.trailing_metadata())["x-request-id"]
            assert triton.names in ([named], [])

    asyncio.run(ask())
    return lines(log)


def facts(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line[name] for name in ("request_id", "voice", "characters", "seconds", "ending"))


def test_utterances_of_a_stream_are_lines(folder):
    first, second = streamed(
        folder, asked("secret, é", "a", voice="mine"), asked("secrets", "b"), x_client_id="anna"
    )
    assert facts(first) == ("a", "mine", 9, 1.0, "ok")
    assert facts(second) == ("b", None, 7, 1.0, "ok")
    assert (first["client"], first["route"], first["model"]) == ("anna", STREAM, MODEL)
    assert first["peer"].startswith("ipv4:127.0.0.1:")


@pytest.mark.parametrize(
    ("given", "taken"),
    [("call-7", True), ("a" * 128, True), ("a" * 129, False), ("a b", False), (None, False)],
)
def test_request_without_an_id_is_called_as_its_metadata_say_or_gets_a_name(folder, given, taken):
    [line] = streamed(folder, asked("secret"), **({} if given is None else {"x_request_id": given}))
    assert (line["request_id"] == given) == taken
    assert taken or line["request_id"].startswith("req_")


def test_text_in_pieces_is_one_line(folder):
    pieces = [asked("secret ", "t", event="open"), asked("and more", "t", event="push")]
    [line] = streamed(folder, *pieces, asked("x", "t", event="end"))
    assert facts(line) == ("t", None, 16, 2.0, "ok")


def test_text_in_pieces_whose_messages_have_ids_of_their_own_is_one_line(folder):
    events = [("secret ", "t", "open"), ("and more", "t#1", "push"), ("x", "t#2", "end")]
    pieces = [asked(text, name, event=event, utterance="u" * 16) for text, name, event in events]
    [line] = streamed(folder, *pieces)
    assert facts(line) == ("t", None, 16, 0.0, "ok")


@pytest.mark.parametrize(("text", "ending"), [("break down", "error"), ("break", "refused")])
def test_errors_of_the_models_are_told_apart(folder, text, ending):
    bad, good = streamed(folder, asked(text, "a"), asked("secret", "b"))
    assert facts(bad) == ("a", None, len(text), 0.0, ending)
    assert facts(good) == ("b", None, 6, 1.0, "ok")


@pytest.mark.parametrize(("on", "written"), [(True, 10), (False, 0)])
def test_call_that_never_ends_keeps_no_more_than_so_many_utterances(folder, on, written):
    log = folder / "audit"
    audit = CallAudit(AuditLog(str(log) if on else "", "server.audit_file"), STREAM, "peer")
    for number in range(MOST_OPEN + 10):
        audit.asked(UtteranceRequest(MODEL, None, request_id=str(number)))
    assert [line["request_id"] for line in (lines(log) if on else [])] == [str(n) for n in range(written)]
    with audit.call():
        pass
    assert len(lines(log) if on else []) == (MOST_OPEN + 10) * on


def test_request_that_does_not_get_through_is_a_line(folder):
    closed = service_pb2.ModelInferRequest(model_name="token2wav", id="a")
    [line] = streamed(folder, closed)
    assert line["request_id"].startswith("req_")
    assert facts(line)[1:] == (None, None, None, "refused")


def test_client_that_leaves_is_a_line(folder):
    log = folder / "audit"

    async def ask() -> None:
        async with grpc_gateway(FakeTriton(), folder, log) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            stream = stub.ModelStreamInfer(iter([asked("secret", "first"), asked("secret open wait", "b")]))
            while (await stream.read()).infer_response.outputs:
                continue
            stream.cancel()
            async with asyncio.timeout(60):
                while len(lines(log)) < 2:
                    await asyncio.sleep(0.01)

    asyncio.run(ask())
    first, left = lines(log)
    assert facts(first) == ("first", None, 6, 1.0, "ok")
    assert facts(left) == ("b", None, 16, 0.0, "client_left")


@pytest.mark.parametrize(
    ("text", "seconds", "ending"),
    [("secret", 1.0, "ok"), ("break", 0.0, "refused"), ("break down", 0.0, "error")],
)
def test_unary_call_is_a_line(folder, text, seconds, ending):
    log = folder / "audit"

    async def ask() -> None:
        async with grpc_gateway(FakeTriton(), folder, log) as channel:
            with nullcontext() if ending == "ok" else pytest.raises(grpc.RpcError):
                await service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(asked(text, "u"))

    asyncio.run(ask())
    [line] = lines(log)
    assert facts(line) == ("u", None, len(text), seconds, ending)


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("generate_stream", {"target_text": "secret", "voice": "mine", "id": "h"}, ("h", "mine", 6, "ok")),
        ("generate_stream", {"target_text": "secret"}, ("call-7", None, 6, "ok")),
        ("infer", {"inputs": []}, ("call-7", None, None, "ok")),
        ("infer", {"inputs": 1}, ("call-7", None, None, "refused")),
    ],
)
def test_http_requests_are_lines_and_answers_say_their_name(folder, path, body, said):
    log = folder / "audit"

    async def answer(request: web.BaseRequest) -> web.Response:
        await request.read()
        assert request.headers["x-request-id"] == "call-7"
        return web.Response(body=b"data: {}\n\n")

    async def ask() -> str:
        server = web.ServerRunner(web.Server(answer))
        await server.setup()
        await web.UnixSite(server, folder / "http").start()
        address = f"127.0.0.1:{ServerPorts.choose(FREE).http}"
        options = GatewayOptions(address, str(folder / "http"), (MODEL,), MIB, MIB, audit_file=str(log))
        gateway = HttpGateway(options)
        await gateway.start()
        url = f"http://{address}/v2/models/{MODEL}/{path}"
        headers = {"X-Request-Id": "call-7"}
        async with ClientSession() as client, client.post(url, json=body, headers=headers) as answered:
            await answered.read()
            named = answered.headers["X-Request-Id"]
        await gateway.close()
        await server.cleanup()
        return named

    assert asyncio.run(ask()) == "call-7"
    [line] = lines(log)
    assert (line["request_id"], line["voice"], line["characters"], line["ending"]) == said
    assert (line["seconds"], line["route"]) == (None, f"POST /v2/models/{MODEL}/{path}")

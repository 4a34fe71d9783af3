"""What strangers may do to a real server over its public ports: the list of everything, and attacks."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.http as triton_http
from count_stream import CountStream
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from cosyvoice_runtime.process import processes
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor import Server
from cosyvoice_runtime.supervisor.preflight import SHARED_MEMORY, free_shared_mib

MODELS = Path(__file__).parent / "model_repo"
TIMEOUT_S = 60.0
MIB = 2**20
LIMIT_MIB = 2
OPEN, STAGE = "chain", "count"
SECRET_PATH = "/srv/secret/checkpoint"

OPEN_CALLS = {
    "ServerLive": {},
    "ServerReady": {},
    "ServerMetadata": {},
    "ModelReady": {"name": OPEN},
    "ModelMetadata": {"name": OPEN},
    "ModelConfig": {"name": OPEN},
    "ModelStatistics": {"name": OPEN},
}
"""gRPC's calls that answer, apart from inference, with a request."""
INFERENCE_CALLS = ("ModelInfer", "ModelStreamInfer")
CLOSED_CALLS = (
    "RepositoryIndex",
    "RepositoryModelLoad",
    "RepositoryModelUnload",
    "SystemSharedMemoryStatus",
    "SystemSharedMemoryRegister",
    "SystemSharedMemoryUnregister",
    "CudaSharedMemoryStatus",
    "CudaSharedMemoryRegister",
    "CudaSharedMemoryUnregister",
    "TraceSetting",
    "LogSettings",
)
OPEN_PATHS = (
    "/v2",
    "/v2/health/live",
    "/v2/health/ready",
    "/v2/models/stats",
    f"/v2/models/{OPEN}",
    f"/v2/models/{OPEN}/ready",
    f"/v2/models/{OPEN}/config",
    f"/v2/models/{OPEN}/stats",
    f"/v2/models/{OPEN}/versions/1",
)
CLOSED_PATHS = (
    "POST /v2/repository/index",
    f"POST /v2/repository/models/{OPEN}/load",
    f"POST /v2/repository/models/{OPEN}/unload",
    "GET /v2/systemsharedmemory/status",
    "POST /v2/systemsharedmemory/region/x/register",
    "POST /v2/systemsharedmemory/unregister",
    "GET /v2/cudasharedmemory/status",
    "POST /v2/cudasharedmemory/region/x/register",
    "POST /v2/cudasharedmemory/unregister",
    "GET /v2/trace/setting",
    "POST /v2/trace/setting",
    f"GET /v2/models/{OPEN}/trace/setting",
    f"POST /v2/models/{OPEN}/trace/setting",
    "GET /v2/logging",
    "POST /v2/logging",
    "GET /metrics",
    f"PUT /v2/models/{OPEN}/infer",
    f"GET /v2/models/{OPEN}/infer",
    f"POST /v2/models/{OPEN}/../../repository/index",
    f"POST /v2/models/{OPEN}/..%2f..%2frepository%2findex",
    "POST //v2/repository/index",
    "GET /",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """``chain`` is open and asks ``count``, a stage; the largest request has 2 MiB."""
    folder = tmp_path_factory.mktemp("doors")
    repository = Path(shutil.copytree(MODELS, folder / "repository"))
    with (repository / OPEN / "config.pbtxt").open("a") as config:
        config.write(f'\nparameters {{ key: "x" value: {{ string_value: "{SECRET_PATH}" }} }}\n')
    settings = ServerSettings(
        http_port=0,
        grpc_port=0,
        metrics_port=0,
        model_metrics_port=0,
        log_file=folder / "tritonserver.log",
        entry_models=(OPEN,),
        open_models=(OPEN,),
        max_request_mib=LIMIT_MIB,
        probe_interval_s=0.0,
    )
    with Server(repository, settings) as server:
        yield server


@pytest.fixture(autouse=True)
def _still_serves(server: Server) -> Iterator[None]:
    """Whatever a test did: the same processes go on, and answer."""
    before = server.session
    yield
    stream = CountStream(server, OPEN, 3)
    try:
        assert stream.rest() == [0, 1, 2]
    finally:
        stream.close()
    assert server.session == before
    assert not server.reloads


@pytest.fixture
def calls(server: Server) -> Iterator[service_pb2_grpc.GRPCInferenceServiceStub]:
    with grpc.insecure_channel(server.grpc_url, [("grpc.max_send_message_length", -1)]) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def request(name: str) -> Any:
    """An empty request of one of gRPC's calls."""
    [service] = service_pb2.DESCRIPTOR.services_by_name.values()
    return getattr(service_pb2, service.methods_by_name[name].input_type.name)


def infer_request(model: str = OPEN, count: int = 1) -> Any:
    asked = service_pb2.ModelInferRequest(model_name=model, id="mine")
    for name, value in (("COUNT", count), ("PAUSE_MS", 0)):
        asked.inputs.add(name=name, datatype="INT32", shape=[1])
        asked.raw_input_contents.append(np.int32(value).tobytes())
    return asked


def streamed(calls: Any, asked: Any, **options: Any) -> list[Any]:
    """Responses to a request of a stream, up to the first error or the end."""
    return list(calls.ModelStreamInfer(iter([asked]), timeout=TIMEOUT_S, **options))


def refusal(call: Any, asked: Any) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call(asked, timeout=TIMEOUT_S)
    return caught.value.code().name, caught.value.details()


def ask(
    server: Server, line: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, str]:
    """``METHOD PATH`` as it is written, over HTTP."""
    method, _, path = line.partition(" ")
    connection = http.client.HTTPConnection(server.http_url, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def infer_body(**of_count: Any) -> dict[str, Any]:
    count = {"name": "COUNT", "shape": [1], "datatype": "INT32", "data": [1]} | of_count
    pause = {"name": "PAUSE_MS", "shape": [1], "datatype": "INT32", "data": [0]}
    return {"inputs": [count, pause]}


def shared_bytes() -> int:
    regions = SHARED_MEMORY.glob(f"cosyvoice_{os.getpid()}_*")
    return sum(region.stat().st_blocks * 512 for region in regions)


def test_every_call_of_grpc_is_listed():
    [service] = service_pb2.DESCRIPTOR.services_by_name.values()
    assert sorted(service.methods_by_name) == sorted([*OPEN_CALLS, *INFERENCE_CALLS, *CLOSED_CALLS])


@pytest.mark.parametrize("name", OPEN_CALLS)
def test_open_call_answers(calls, name):
    answer = getattr(calls, name)(request(name)(**OPEN_CALLS[name]), timeout=TIMEOUT_S)
    assert SECRET_PATH not in str(answer)


def test_health_is_told_to_who_asks_and_to_who_watches(server):
    with grpc.insecure_channel(server.grpc_url) as channel:
        health = "/grpc.health.v1.Health"
        serving = channel.unary_unary(f"{health}/Check")(b"", timeout=TIMEOUT_S)
        watch = channel.unary_stream(f"{health}/Watch")(b"", timeout=TIMEOUT_S)
        assert serving == next(watch) == b"\x08\x01"
        watch.cancel()


@pytest.mark.parametrize("name", CLOSED_CALLS)
def test_closed_call_is_refused(calls, name):
    status, text = refusal(getattr(calls, name), request(name)())
    assert status == "PERMISSION_DENIED"
    assert "restricted" in text


@pytest.mark.parametrize("path", OPEN_PATHS)
def test_open_path_answers(server, path):
    status, text = ask(server, f"GET {path}")
    assert status == 200
    assert SECRET_PATH not in text
    assert ask(server, f"HEAD {path}") == (200, "")


@pytest.mark.parametrize("line", CLOSED_PATHS)
def test_closed_path_is_refused(server, line):
    status, text = ask(server, line, "{}")
    assert status == 403
    assert "restricted" in json.loads(text)["error"]


def test_models_beside_the_open_ones_answer_nobody(server, calls):
    [answer] = streamed(calls, infer_request(STAGE))
    assert answer.error_message == f"NOT_FOUND: model_name: '{STAGE}' is unknown here; open are {OPEN}"
    assert answer.infer_response.id == "mine"
    assert refusal(calls.ModelInfer, infer_request(STAGE))[0] == "NOT_FOUND"
    for name in ("ModelMetadata", "ModelConfig"):
        assert refusal(getattr(calls, name), request(name)(name=STAGE))[0] == "NOT_FOUND"
    for line in ("", "/config", "/ready", "/stats"):
        assert ask(server, f"GET /v2/models/{STAGE}{line}")[0] == 404
    for line in ("infer", "generate", "generate_stream"):
        assert ask(server, f"POST /v2/models/{STAGE}/{line}", json.dumps(infer_body()))[0] == 404


@pytest.mark.parametrize(("model", "version"), [("nobody", ""), ("nobody", "1"), (STAGE, ""), (OPEN, "7")])
def test_model_that_is_not_there_is_not_ready(server, model, version):
    with triton.InferenceServerClient(server.grpc_url) as client:
        assert client.is_model_ready(model, version) is False
        assert client.is_model_ready(OPEN) is True
        assert client.is_model_ready(OPEN, "1") is True
        with pytest.raises(InferenceServerException, match="model_version"):
            client.is_model_ready(OPEN, "first")
    with triton_http.InferenceServerClient(server.http_url) as client:
        assert client.is_model_ready(model, version) is False
        assert client.is_model_ready(OPEN, "1") is True


def test_refused_request_of_a_stream_leaves_the_others_alone(calls):
    asked = [infer_request(STAGE), infer_request(OPEN, 3), infer_request("nobody")]
    answers = list(calls.ModelStreamInfer(iter(asked), timeout=TIMEOUT_S))
    errors = [answer.error_message for answer in answers if answer.error_message]
    values = [answer.infer_response for answer in answers if answer.infer_response.outputs]
    assert len(errors) == 2
    assert len(values) == 3


SHARED = {"shared_memory_region": "x", "shared_memory_byte_size": 4, "shared_memory_offset": 0}


@pytest.mark.parametrize("part", ["inputs", "outputs"])
def test_shared_memory_is_no_input_and_no_output(server, calls, part):
    asked = infer_request()
    if part == "outputs":
        asked.outputs.add(name="VALUE")
    tensor = triton.InferInput("COUNT", [1], "INT32")
    tensor.set_shared_memory("x", 4)
    for name, value in tensor._get_tensor().parameters.items():
        getattr(asked, part)[0].parameters[name].CopyFrom(value)
    assert refusal(calls.ModelInfer, asked)[0] == "INVALID_ARGUMENT"
    [answer] = streamed(calls, asked)
    assert answer.error_message.startswith("INVALID_ARGUMENT: ")
    body = infer_body(parameters=SHARED) if part == "inputs" else infer_body()
    if part == "outputs":
        body["outputs"] = [{"name": "VALUE", "parameters": SHARED}]
    status, text = ask(server, f"POST /v2/models/{OPEN}/infer", json.dumps(body))
    assert (status, "shared_memory_region" in text) == (400, True)


def test_request_larger_than_the_limit_takes_no_shared_memory(server, calls):
    before = shared_bytes()
    asked = infer_request()
    asked.inputs[0].shape[0] = LIMIT_MIB * MIB // 4 + 1
    asked.raw_input_contents[0] = bytes(LIMIT_MIB * MIB + 4)
    assert refusal(calls.ModelInfer, asked)[0] == "RESOURCE_EXHAUSTED"
    with pytest.raises(grpc.RpcError) as caught:
        streamed(calls, asked)
    assert caught.value.code().name == "RESOURCE_EXHAUSTED"
    with pytest.raises(grpc.RpcError):
        streamed(calls, asked, compression=grpc.Compression.Gzip)
    body = json.dumps(infer_body()).encode() + bytes(LIMIT_MIB * MIB)
    status, text = ask(server, f"POST /v2/models/{OPEN}/infer", body)
    assert (status, str(LIMIT_MIB * MIB) in text) == (413, True)
    chunks = (bytes(MIB) for _ in range(LIMIT_MIB + 1))
    assert ask(server, f"POST /v2/models/{OPEN}/infer", chunks)[0] == 413
    assert shared_bytes() <= before + MIB


def test_large_requests_side_by_side_take_a_part_of_the_shared_memory(server, calls):
    asked = infer_request()
    asked.inputs[0].shape[0] = MIB // 4
    asked.raw_input_contents[0] = bytes(MIB)
    before = shared_bytes()
    answers = [calls.ModelInfer.future(asked, timeout=TIMEOUT_S) for _ in range(64)]
    texts = {answer.exception().details() for answer in answers}
    assert not [text for text in texts if "shared" in text or "cosyvoice_" in text]
    assert shared_bytes() - before < free_shared_mib() * MIB // 4


def test_body_in_very_many_pieces_is_one_request(server):
    body = json.dumps({"COUNT": [2], "PAUSE_MS": [0], "id": "x" * 200}).encode()
    pieces = [bytes([byte]) for byte in body] + [b" "] * 200_000
    status, text = ask(server, f"POST /v2/models/{OPEN}/generate_stream", iter(pieces))
    assert (status, text.count("data: ")) == (200, 2)


BAD_BODIES = {
    "no JSON": b"{",
    "no object": b"[1]",
    "nested": b'{"inputs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "repeated key": b'{"inputs": [], "inputs": [{"parameters": {"shared_memory_region": "x"}}]}',
    "no UTF-8": b'{"id": "\xff\xfe"}',
    "negative shape": json.dumps(infer_body(shape=[-1])).encode(),
    "huge shape": json.dumps(infer_body(shape=[2**62, 4])).encode(),
    "shape of text": json.dumps(infer_body(shape=["1"])).encode(),
    "size of nothing": json.dumps(infer_body(parameters={"binary_data_size": 2**40})).encode(),
    "inputs of text": b'{"inputs": "COUNT"}',
}


@pytest.mark.parametrize("kind", BAD_BODIES)
def test_malformed_body_is_refused_with_its_reason(server, kind):
    status, text = ask(server, f"POST /v2/models/{OPEN}/infer", BAD_BODIES[kind])
    assert status == 400
    assert "is not accepted" in json.loads(text)["error"]


def test_header_that_aborts_tritonserver_does_not_reach_it(calls):
    told = [("triton_grpc_error", "true")]
    with pytest.raises(grpc.RpcError, match="no room"):
        streamed(calls, infer_request(count=-2), metadata=told)
    for asked in (infer_request(STAGE), infer_request(count=3)):
        streamed(calls, asked, metadata=told)


def test_error_of_the_server_tells_what_is_wrong_with_the_request_alone(calls):
    asked = infer_request()
    asked.inputs[0].name = "NOBODY"
    [answer] = streamed(calls, asked)
    assert re.match("INVALID_ARGUMENT: .*NOBODY", answer.error_message)
    assert not re.search(r"request id|/\w+/|\.cc", answer.error_message)


def test_answer_of_a_streaming_model_in_one_piece_is_refused_at_once(server):
    body = json.dumps({"COUNT": [3], "PAUSE_MS": [0]})
    status, text = ask(server, f"POST /v2/models/{OPEN}/generate", body)
    assert (status, "generate_stream" in text) == (501, True)
    status, text = ask(server, f"POST /v2/models/{OPEN}/generate_stream", body)
    assert (status, text.count("data: ")) == (200, 3)


def test_no_other_user_reaches_the_server_behind_the_doors(server):
    folders = list(SHARED_MEMORY.glob(f"cosyvoice-server-{os.getpid()}-*"))
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o700] * len(folders)
    assert len(folders) >= 1
    commands = [process.command for process in processes.session_members(server.session)]
    addresses = [word for words in commands for word in words if re.match(r"--(http|grpc)-address=", word)]
    assert len(addresses) == 2
    assert all("=unix:" in address for address in addresses)
    assert not [word for words in commands for word in words if re.search(r"key|secret|restricted", word)]


def test_gateway_that_was_killed_comes_back(server, calls, eventually):
    def gateways() -> set[int]:
        return {process.pid for process in processes.living() if is_gateway(process)}

    def is_gateway(process: processes.Process) -> bool:
        return "cosyvoice_runtime.gateway" in process.command and process.parent == os.getpid()

    before = gateways()
    assert len(before) == 2
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: len(gateways() - before) == 2)
    alive = request("ServerLive")()
    assert calls.ServerLive(alive, wait_for_ready=True, timeout=TIMEOUT_S).live

    def answers() -> bool:
        try:
            return ask(server, "GET /v2/health/live")[0] == 200
        except OSError:
            return False

    eventually(answers)

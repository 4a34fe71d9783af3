"""What becomes of gRPC's clients that take nothing, or say nothing, and of others beside them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
import pytest
from hours import Hours
from tritonclient.grpc import service_pb2, service_pb2_grpc

from cosyvoice_runtime.gateway import grpc_channels, grpc_gateway
from cosyvoice_runtime.gateway.grpc_gateway import GrpcGateway
from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.gateway.policy import INFER, STREAM_INFER
from cosyvoice_runtime.process.headers import LEFT_HEADER
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.preflight import ServerPorts

MIB = 2**20
FREE = ServerSettings(http_port=0, grpc_port=0, metrics_port=0, model_metrics_port=0)
MODEL = "speech"
LIMIT_S = 60.0
TIMEOUT_S = 120.0
STUB = service_pb2_grpc.GRPCInferenceServiceStub
OWN_CONNECTION = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.http2.bdp_probe", 0),  # else a client may take megabytes and look at none
]
CHUNK = bytes(2**16)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""What a client of HTTP/2 says first, with a frame of no settings."""


class FakeTriton(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers each request of a stream with 100 chunks, and a single one with 400 at once.

    Attributes:
        requests: as they came.
        sent: responses of each stream, by the id of its request.
        ended: streams that are over, by the id of their last request.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.sent: Counter[str] = Counter()
        self.ended: list[str] = []

    async def ServerLive(self, request: object, context: object) -> service_pb2.ServerLiveResponse:  # noqa: N802
        return service_pb2.ServerLiveResponse(live=True)

    async def ModelInfer(  # noqa: N802
        self, request: service_pb2.ModelInferRequest, context: grpc.aio.ServicerContext
    ) -> service_pb2.ModelInferResponse:
        self.requests.append(request.id)
        return service_pb2.ModelInferResponse(raw_output_contents=[CHUNK] * 400)

    async def ModelStreamInfer(  # noqa: N802
        self, requests: AsyncIterator[service_pb2.ModelInferRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[service_pb2.ModelStreamInferResponse]:
        if LEFT_HEADER in dict(context.invocation_metadata()):
            return
        async for request in requests:
            self.requests.append(request.id)
            for _ in range(100):
                response = service_pb2.ModelInferResponse(raw_output_contents=[CHUNK])
                yield service_pb2.ModelStreamInferResponse(infer_response=response)
                self.sent[request.id] += 1
            self.ended.append(request.id)


@asynccontextmanager
async def gateway_before(triton: FakeTriton, folder: Path, limit_s: float = LIMIT_S) -> AsyncIterator[str]:
    """Address of a gateway in front of a server."""
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(triton, server)
    server.add_insecure_port(f"unix:{folder}/grpc")
    await server.start()
    address = f"127.0.0.1:{ServerPorts.choose(FREE).grpc}"
    limits = {"arrival_timeout_s": limit_s, "stalled_client_timeout_s": limit_s}
    gateway = GrpcGateway(GatewayOptions(address, f"{folder}/grpc", (MODEL,), MIB, MIB, **limits))
    await gateway.start()
    async with connected(address) as channel:
        await STUB(channel).ServerLive(service_pb2.ServerLiveRequest())  # gRPC keeps the first call it has
    yield address
    await gateway.close()
    await server.stop(None)


def connected(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, OWN_CONNECTION)


def request(name: str, model: str = MODEL) -> service_pb2.ModelInferRequest:
    return service_pb2.ModelInferRequest(model_name=model, id=name)


async def live(channel: grpc.aio.Channel) -> bool:
    return bool((await STUB(channel).ServerLive(service_pb2.ServerLiveRequest(), timeout=TIMEOUT_S)).live)


async def unread(channel: grpc.aio.Channel, method: str, name: str) -> grpc.aio.StreamStreamCall:
    """A call of which nothing is read."""
    call = channel.stream_stream(method, request_serializer=lambda message: message.SerializeToString())()
    await call.write(request(name))
    return call


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not holds():
            await asyncio.sleep(0.005)


async def status_of(call: grpc.aio.StreamStreamCall) -> grpc.StatusCode:
    """After all that a call still has."""
    with suppress(grpc.aio.AioRpcError):
        async with asyncio.timeout(TIMEOUT_S):
            while await call.read() is not grpc.aio.EOF:
                continue
    return await asyncio.wait_for(call.code(), TIMEOUT_S)


def test_client_that_reads_nothing_is_given_up_and_one_that_reads_slowly_beside_it_is_not(tmp_path, caplog):
    async def check() -> None:
        triton = FakeTriton()
        async with gateway_before(triton, tmp_path) as address, connected(address) as channel:
            slow = STUB(channel).ModelStreamInfer()
            await slow.write(request("slow"))
            stalled = [await unread(channel, STREAM_INFER, f"stalled {number}") for number in range(3)]
            await until(lambda: len(triton.requests) == 4)
            hours = Hours()
            for number in range(100):
                await hours.pass_by(LIMIT_S / 2 if number % 25 == 0 else 1.5)
                assert await slow.read() is not grpc.aio.EOF
            await until(lambda: len(triton.ended) == 4)
            assert await live(channel)
            assert [await status_of(call) for call in stalled] == [grpc.StatusCode.CANCELLED] * 3
            await slow.done_writing()
            assert await slow.read() is grpc.aio.EOF
            assert await status_of(slow) is grpc.StatusCode.OK

    asyncio.run(check())
    assert caplog.text.count("is given up: it did not take 65") == 3


def test_client_that_does_not_take_its_one_answer_is_given_up(tmp_path, caplog):
    async def check() -> None:
        triton = FakeTriton()
        async with gateway_before(triton, tmp_path) as address, connected(address) as channel:
            call = await unread(channel, INFER, "a")
            await until(lambda: triton.requests)
            hours = Hours()
            for _ in range(1000):
                await hours.pass_by(LIMIT_S / 2)
                if "is given up" in caplog.text:
                    break
            assert await live(channel)
            assert await status_of(call) is grpc.StatusCode.CANCELLED

    asyncio.run(check())


def test_stream_on_which_nothing_is_asked_ends_with_a_word(tmp_path):
    async def check() -> None:
        triton = FakeTriton()
        async with gateway_before(triton, tmp_path) as address, connected(address) as channel:
            silent, refused = STUB(channel).ModelStreamInfer(), STUB(channel).ModelStreamInfer()
            await refused.write(request("a", model="nobody"))
            assert (await refused.read()).error_message
            await silent.wait_for_connection()
            assert await live(channel)  # a later call has been answered: the time of this one runs
            hours = Hours()
            await hours.pass_by(LIMIT_S / 2)
            await refused.write(request("b", model="nobody"))  # who comes back has as long again
            assert (await refused.read()).error_message
            assert not silent.done()
            await hours.pass_by(LIMIT_S / 2 + 10.0)
            assert await status_of(silent) is grpc.StatusCode.DEADLINE_EXCEEDED
            assert await silent.details() == "message: none came within 60 s, the limit"
            await refused.write(request("c"))
            assert await refused.read() is not grpc.aio.EOF
            assert triton.requests == ["c"]

    asyncio.run(check())


def test_call_of_one_message_that_does_not_come_ends_with_a_word(tmp_path):
    async def check() -> None:
        async with gateway_before(FakeTriton(), tmp_path) as address, connected(address) as channel:
            call = channel.stream_stream(INFER)()
            await call.wait_for_connection()
            assert await live(channel)
            await Hours().pass_by(LIMIT_S + 10.0)
            assert await status_of(call) is grpc.StatusCode.DEADLINE_EXCEEDED

    asyncio.run(check())


def test_stream_that_has_asked_may_wait_for_hours(tmp_path):
    async def check() -> None:
        async with gateway_before(FakeTriton(), tmp_path) as address, connected(address) as channel:
            stream = STUB(channel).ModelStreamInfer()
            hours = Hours()
            for name in ("a", "b"):
                await stream.write(request(name))
                for _ in range(100):
                    assert await stream.read() is not grpc.aio.EOF
                assert await live(channel)  # so the gateway knows that all has been taken
                await hours.pass_by(3600.0)
            assert await live(channel)
            assert not stream.done()

    asyncio.run(check())


def test_health_is_told_while_no_other_call_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(grpc_gateway, "MAX_CALLS", 3)

    async def check() -> None:
        async with gateway_before(FakeTriton(), tmp_path) as address, connected(address) as channel:
            idle = [STUB(channel).ModelStreamInfer() for _ in range(3)]
            for stream in idle:
                await stream.wait_for_connection()
            assert await live(channel)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await STUB(channel).ModelInfer(request("a"), timeout=TIMEOUT_S)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert caught.value.details() == "3 calls are in progress, the limit; try again in 5 s"
            idle[0].cancel()
            await until_answered(channel)

    asyncio.run(check())


async def until_answered(channel: grpc.aio.Channel) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                await STUB(channel).ModelInfer(request("b"), timeout=TIMEOUT_S)
                return
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.01)


def test_one_connection_does_not_take_all_calls(tmp_path, monkeypatch):
    monkeypatch.setattr(grpc_channels, "MAX_CALLS_OF_A_CONNECTION", 2)

    async def check() -> None:
        triton = FakeTriton()
        async with (
            gateway_before(triton, tmp_path) as address,
            connected(address) as many,
            connected(address) as other,
        ):
            names = [f"of many {number}" for number in range(5)]
            calls = [asyncio.create_task(unread(many, STREAM_INFER, name)) for name in names]
            await until(lambda: len(triton.requests) == 2)
            await (await unread(other, STREAM_INFER, "other")).read()
            assert (len(triton.requests), triton.requests[-1]) == (3, "other")
            next(call for call in calls if call.done()).result().cancel()
            await until(lambda: len(triton.requests) == 4)
            for call in calls:
                call.cancel()

    asyncio.run(check())


def test_connection_of_a_machine_that_is_gone_is_closed(tmp_path):
    async def check() -> None:
        async with gateway_before(FakeTriton(), tmp_path, limit_s=0.5) as address:
            host, port = address.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(PREFACE)
            await asyncio.wait_for(reader.read(), TIMEOUT_S)  # to its end; no ping is answered
            writer.close()

    asyncio.run(check())


def test_large_request_for_which_there_is_no_room_is_told_when_there_will_be(tmp_path):
    go_on, triton = asyncio.Event(), FakeTriton()

    async def infer(asked: service_pb2.ModelInferRequest, _: object) -> service_pb2.ModelInferResponse:
        triton.requests.append(asked.id)
        await go_on.wait()
        return service_pb2.ModelInferResponse(id=asked.id)

    triton.ModelInfer = infer
    large = request("large")
    large.inputs.add(name="x", datatype="UINT8", shape=[MIB * 3 // 4])
    large.raw_input_contents.append(bytes(MIB * 3 // 4))

    async def check() -> None:
        async with gateway_before(triton, tmp_path) as address, connected(address) as channel:
            first = STUB(channel).ModelInfer(large, timeout=TIMEOUT_S)
            await until(lambda: triton.requests == ["large"])
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await STUB(channel).ModelInfer(large, timeout=TIMEOUT_S)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert caught.value.details() == "too many large requests at once; try again in 2 s"
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await anext(aiter(STUB(channel).ModelStreamInfer(iter([large]))))
            assert caught.value.details() == "too many large requests at once; try again in 2 s"
            go_on.set()
            assert (await first).id == (await STUB(channel).ModelInfer(large, timeout=TIMEOUT_S)).id

    asyncio.run(check())

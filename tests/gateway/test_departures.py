"""What gRPC's gateway does towards the server when a client leaves: it tells, and cancels nothing."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from cosyvoice_runtime.gateway.departures import Departures
from cosyvoice_runtime.gateway.grpc_gateway import GrpcGateway
from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.process.headers import CALL_HEADER, LEFT_HEADER
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.preflight import ServerPorts

MIB = 2**20
FREE = ServerSettings(http_port=0, grpc_port=0, metrics_port=0, model_metrics_port=0)
MODEL = "speech"
TIMEOUT_S = 30.0


class FakeTriton(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Speaks to each call until it is told that its client has left.

    Attributes:
        deaf: messages of that kind that it does not understand yet.
        begun, stopped, cancelled: calls by their ids; stopped and cancelled ones have ended.
    """

    def __init__(self, deaf: int = 0) -> None:
        self.deaf = deaf
        self.speaking: dict[str, asyncio.Event] = {}
        self.begun: list[str] = []
        self.told: list[tuple[str, str]] = []
        self.stopped: list[str] = []
        self.cancelled: list[str] = []

    async def ModelStreamInfer(  # noqa: N802
        self, requests: AsyncIterator[service_pb2.ModelInferRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[service_pb2.ModelStreamInferResponse]:
        metadata = dict(context.invocation_metadata())
        async for request in requests:
            if LEFT_HEADER in metadata:
                self.hear(request.model_name, metadata[LEFT_HEADER])
                continue
            stop = self.begin(metadata[CALL_HEADER])
            try:
                while not stop.is_set():
                    yield service_pb2.ModelStreamInferResponse()
                    await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                self.cancelled.append(metadata[CALL_HEADER])
                raise
            self.stopped.append(metadata[CALL_HEADER])

    async def ModelInfer(  # noqa: N802
        self, request: service_pb2.ModelInferRequest, context: grpc.aio.ServicerContext
    ) -> service_pb2.ModelInferResponse:
        call = dict(context.invocation_metadata())[CALL_HEADER]
        stop = self.begin(call)
        try:
            await stop.wait()
        except asyncio.CancelledError:
            self.cancelled.append(call)
            raise
        self.stopped.append(call)
        return service_pb2.ModelInferResponse()

    def begin(self, call: str) -> asyncio.Event:
        self.begun.append(call)
        return self.speaking.setdefault(call, asyncio.Event())

    def hear(self, model: str, call: str) -> None:
        self.told.append((model, call))
        if len(self.told) > self.deaf:
            self.speaking[call].set()


@asynccontextmanager
async def gateway_before(triton: FakeTriton, folder: Path, **options: Any) -> AsyncIterator[grpc.aio.Channel]:
    """A client's channel to a gateway in front of it."""
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(triton, server)
    server.add_insecure_port(f"unix:{folder}/grpc")
    await server.start()
    address = f"127.0.0.1:{ServerPorts.choose(FREE).grpc}"
    gateway = GrpcGateway(GatewayOptions(address, f"{folder}/grpc", (MODEL,), MIB, MIB, **options))
    await gateway.start()
    async with grpc.aio.insecure_channel(address) as channel:
        yield channel
    await gateway.close()
    await server.stop(None)


def request() -> service_pb2.ModelInferRequest:
    return service_pb2.ModelInferRequest(model_name=MODEL)


async def until(holds) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not holds():
            await asyncio.sleep(0.005)


async def leave_stream(channel: grpc.aio.Channel, responses: int) -> None:
    """Read a few responses of a stream that stays open, and cancel it."""
    stream = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer()
    await stream.write(request())
    for _ in range(responses):
        await stream.read()
    stream.cancel()


@pytest.mark.parametrize("responses", [1, 3])
def test_stream_of_a_client_that_leaves_is_stopped_by_a_word_and_read_to_its_end(tmp_path, responses):
    async def check() -> None:
        triton = FakeTriton()
        async with gateway_before(triton, tmp_path) as channel:
            await leave_stream(channel, responses)
            await until(lambda: triton.stopped)
            assert triton.stopped == triton.begun
            assert triton.told == [(MODEL, triton.begun[0])]
        assert triton.cancelled == []

    asyncio.run(check())


def test_client_that_leaves_at_once_leaves_nothing_behind(tmp_path):
    async def check() -> None:
        triton = FakeTriton()
        async with gateway_before(triton, tmp_path) as channel:
            await asyncio.gather(*(leave_stream(channel, number % 2) for number in range(50)))
            await until(lambda: len(triton.stopped) == len(triton.begun) >= 25)
        assert triton.cancelled == []

    asyncio.run(check())


def test_model_is_told_again_when_the_word_came_too_early(tmp_path):
    async def check() -> None:
        triton = FakeTriton(deaf=1)
        async with gateway_before(triton, tmp_path) as channel:
            await leave_stream(channel, 1)
            await until(lambda: triton.stopped)
            assert triton.told == [(MODEL, triton.begun[0])] * 2
        assert triton.cancelled == []

    asyncio.run(check())


def test_single_answer_that_nobody_waits_for_any_more_is_stopped_by_a_word(tmp_path):
    async def check() -> None:
        triton = FakeTriton()
        async with gateway_before(triton, tmp_path) as channel:
            answer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request())
            await until(lambda: triton.begun)
            answer.cancel()
            await until(lambda: triton.stopped)
            assert triton.told == [(MODEL, triton.begun[0])]
        assert triton.cancelled == []

    asyncio.run(check())


def test_model_that_answers_once_in_anothers_place_is_the_one_that_is_told(tmp_path):
    async def check() -> None:
        triton = FakeTriton()
        async with gateway_before(triton, tmp_path, whole_models={MODEL: "whole"}) as channel:
            answer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request())
            await until(lambda: triton.begun)
            answer.cancel()
            await until(lambda: triton.stopped)
            assert triton.told == [("whole", triton.begun[0])]

    asyncio.run(check())


def test_others_go_on_when_one_leaves(tmp_path):
    async def check() -> None:
        triton = FakeTriton()
        async with gateway_before(triton, tmp_path) as channel:
            staying = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer()
            await staying.write(request())
            await staying.read()
            await leave_stream(channel, 1)
            await until(lambda: triton.stopped)
            assert triton.stopped == triton.begun[1:]
            assert isinstance(await staying.read(), service_pb2.ModelStreamInferResponse)
            triton.speaking[triton.begun[0]].set()
            await staying.done_writing()
            while await staying.read() is not grpc.aio.EOF:
                continue
        assert (triton.cancelled, len(set(triton.told))) == ([], 1)

    asyncio.run(check())


def test_client_can_not_say_that_another_has_left(tmp_path):
    async def check() -> None:
        triton = FakeTriton()
        async with gateway_before(triton, tmp_path) as channel:
            metadata = ((LEFT_HEADER, "somebody"), (CALL_HEADER, "chosen"))
            stream = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(metadata=metadata)
            await stream.write(request())
            await stream.read()
            assert (triton.told, "chosen" in triton.begun) == ([], False)
            stream.cancel()
            await until(lambda: triton.stopped)

    asyncio.run(check())


def test_gateway_that_stops_waits_for_the_ends_of_calls_whose_clients_have_left():
    told: list[tuple[str, str]] = []

    async def leave_and_stop() -> bool:
        async def stop(asked: str, call: str) -> None:
            told.append((asked, call))

        async def ending() -> None:
            await asyncio.sleep(0.05)
            told.append(("the end", "call"))

        departures = Departures(stop)
        departures.see_off("call", [MODEL], ending())
        await departures.over(TIMEOUT_S)
        return bool(told)

    assert asyncio.run(leave_and_stop())
    assert told == [(MODEL, "call"), ("the end", "call")]


def test_calls_that_have_ended_are_forgotten():
    def ended() -> int:
        gc.collect()
        return sum(type(each) is asyncio.Task and each.done() for each in gc.get_objects())

    async def leave() -> int:
        departures, before = Departures(lambda asked, call: asyncio.sleep(0)), ended()
        departures.see_off("call", [MODEL], asyncio.sleep(0.01))
        await departures.over(TIMEOUT_S)
        await asyncio.sleep(0)
        return ended() - before

    assert asyncio.run(leave()) == 0

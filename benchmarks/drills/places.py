"""Places of servers that are taken, for as long as a test wants."""

from __future__ import annotations

import queue
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
from tritonclient.grpc import service_pb2_grpc

from cosyvoice_client import SpeechRequest
from cosyvoice_client.request import message_tensors
from cosyvoice_client.wire import infer_request

TIMEOUT_S = 300.0
WAIT_S = 0.2


@contextmanager
def taken_places(url: str, count: int) -> Iterator[None]:
    """So many utterances are open at this address, and none of their texts comes."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(_open_utterance(url))
        yield


@contextmanager
def _open_utterance(url: str) -> Iterator[None]:
    with grpc.insecure_channel(url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        utterances = [Utterance(stub)]
        while not utterances[-1].is_open:  # a place may be kept for somebody who was refused
            time.sleep(WAIT_S)
            utterances.append(Utterance(stub))
        yield


class Utterance:
    """A call that opens an utterance and stays without a further message; it ends with its channel.

    Attributes:
        is_open: whether it was not refused.
    """

    def __init__(self, stub: service_pb2_grpc.GRPCInferenceServiceStub) -> None:
        messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        tensors = message_tensors(SpeechRequest(""), secrets.token_urlsafe(24), "open")
        messages.put(infer_request("cosyvoice2", tensors, "", empty_final=True))
        self._call = stub.ModelStreamInfer(iter(messages.get, None), timeout=TIMEOUT_S)
        try:
            self.is_open = not next(self._call).error_message
        except grpc.RpcError:
            self.is_open = False
        if not self.is_open:
            messages.put(None)

"""Places of servers that are taken, for as long as a test wants."""

from __future__ import annotations

import queue
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import tritonclient.grpc as triton

from cosyvoice_client import SpeechRequest
from cosyvoice_client.request import message_inputs
from eventually import eventually

TIMEOUT_S = 60.0


@contextmanager
def taken_places(url: str, count: int) -> Iterator[None]:
    """So many utterances are open at this address, and none of their texts comes."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(_open_utterance(url))
        yield


@contextmanager
def _open_utterance(url: str) -> Iterator[None]:
    with triton.InferenceServerClient(url) as client:
        eventually(lambda: _is_opened(client))  # a place is kept for a while for somebody who was refused
        try:
            yield
        finally:
            client.stop_stream(cancel_requests=True)


def _is_opened(client: triton.InferenceServerClient) -> bool:
    """Whether an utterance was opened in the client's stream, which is closed otherwise."""
    answers: queue.Queue[Exception | None] = queue.Queue()
    client.start_stream(lambda result, error: answers.put(error))
    inputs = message_inputs(triton, SpeechRequest(""), secrets.token_urlsafe(24), "open")
    client.async_stream_infer("cosyvoice2", inputs, enable_empty_final_response=True)
    refused = answers.get(timeout=TIMEOUT_S) is not None
    if refused:
        client.stop_stream(cancel_requests=True)
    return not refused

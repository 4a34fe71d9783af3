"""A client's utterance whose text comes in several requests."""

from __future__ import annotations

import asyncio
import json

import numpy as np
from coded_listener import Ear
from triton_python_backend_utils import InferenceRequest

from cosyvoice_runtime.serving.speech.service import SpeechService
from cosyvoice_runtime.serving.triton.request import Inputs

NAME = "utterance-of-mine"
FIRST, SECOND = "Where did Anna put the tickets for it? ", "She has no idea. "
WAIT_S = 30.0


def message(
    event: str, text: str = "", name: str = NAME, client: str | None = None, **given: np.ndarray
) -> Inputs:
    inputs = {"target_text": text, "utterance_id": name, "text_event": event}
    tensors = {key: np.array([[value.encode()]], np.object_) for key, value in inputs.items()}
    tensors |= {"cross_lingual": np.array([[True]]), "seed": np.array([[1]], np.int64), **given}
    return Inputs(InferenceRequest(tensors, parameters=json.dumps({"x-client-id": client} if client else {})))


class Utterance:
    """A client's utterance with its messages.

    Attributes:
        ear: what the first request brings.
    """

    def __init__(
        self,
        service: SpeechService,
        text: str = "",
        name: str = NAME,
        client: str | None = None,
        **given: np.ndarray,
    ):
        self.ear = Ear()
        self._service, self._name, self._client = service, name, client
        opening = message("open", text, name, client, **given)
        self.speaking = asyncio.create_task(service.answer(opening, self.ear))

    def say(self, event: str, text: str = "") -> asyncio.Task:
        return asyncio.create_task(self.answer_of(event, text))

    async def answer_of(self, event: str, text: str = "", **changes) -> Exception | None:
        """What a further request is answered with: nothing, or its error."""
        ear = Ear()
        said = {"name": self._name, "client": self._client} | changes
        await asyncio.create_task(self._service.answer(message(event, text, **said), ear))
        assert ear.chunks == []
        [error] = ear.errors
        return error

    async def until(self, holds) -> None:
        async def wait() -> None:
            while not holds():
                self.ear.heard.clear()
                await self.ear.heard.wait()

        await asyncio.wait_for(wait(), WAIT_S)

    @property
    def ends(self) -> list[int]:
        """Characters at the end of each segment."""
        return [chunk.spoken_characters for chunk in self.ear.chunks if chunk.finish_reason]

    @property
    def samples(self) -> int:
        return sum(len(chunk.samples) for chunk in self.ear.chunks)


def run(open_service, work, **options):
    """What ``work(stages, service)`` gives; no place is held afterwards, and no task is left."""

    async def inner():
        stages, service, admission = open_service(**options)
        result = await asyncio.wait_for(work(stages, service), WAIT_S)
        assert admission.count == 0
        async with asyncio.timeout(WAIT_S):  # the look for clients that left ends by itself
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.01)
        return result

    return asyncio.run(inner())

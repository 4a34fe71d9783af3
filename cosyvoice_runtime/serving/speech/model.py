"""The models ``cosyvoice2``, which streams, and ``cosyvoice2_offline``, which answers once."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

from cosyvoice_runtime.engine.host_client import SPEECH, host_socket, leave_socket
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.metrics import RequestCount
from cosyvoice_runtime.process.event_loop import EventLoopThread
from cosyvoice_runtime.serving.hosted.model_host import ModelHost
from cosyvoice_runtime.serving.proxies import OfflineModel
from cosyvoice_runtime.serving.speech.engine_client import EngineClient
from cosyvoice_runtime.serving.speech.listeners import ChunkListener, WholeListener
from cosyvoice_runtime.serving.speech.load import (
    learn_speed,
    load_speech_service,
    open_admission,
)
from cosyvoice_runtime.serving.speech.service import SpeechService
from cosyvoice_runtime.serving.speech.speech_metrics import SpeechMetrics
from cosyvoice_runtime.serving.triton.load import keep_loaded, read_settings
from cosyvoice_runtime.serving.triton.request import Inputs, Reply
from cosyvoice_runtime.settings import CosyVoice2Settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EntryModel:
    """A model that clients call.

    Args:
        streams: whether its answer comes in chunks.
    """

    name: str
    streams: bool
    metrics: SpeechMetrics


class SpeechModel:
    """The ``TritonPythonModel`` with one event loop for all utterances in progress."""

    def initialize(self, arguments: Mapping[str, str]) -> None:
        self._settings = read_settings(arguments, CosyVoice2Settings)
        name = arguments["model_name"]
        decoupled = json.loads(arguments["model_config"])["model_transaction_policy"]["decoupled"]
        self._entry = EntryModel(name, decoupled, SpeechMetrics(Metrics(name)))
        self._requests = RequestCount(name)
        self._answers: set[Future[None]] = set()
        self._loop = EventLoopThread("utterances")
        self._service = self._loop.run(self._load())
        self._host = ModelHost(host_socket(SPEECH), {OfflineModel.name: WholeAnswers(self)}, loop=self._loop)
        keep_loaded()

    def execute(self, requests: list[Any]) -> None:
        """Begin each request, whose answers come from the event loop."""
        for request in requests:
            self._requests.enter()
            self.begin(request, self._entry).add_done_callback(lambda _: self._requests.leave())

    def begin(self, request: Any, entry: EntryModel) -> Future[None]:
        """Begin a request to an entry model; the future is done after its answer."""
        answer = self._loop.start(self._answer(request, entry))
        self._answers.add(answer)
        answer.add_done_callback(self._ended)
        return answer

    def finalize(self) -> None:
        """Wait for the requests in progress."""
        wait(list(self._answers))
        self._host.close()
        leave_socket(host_socket(SPEECH))
        self._loop.run(self._engine.close())
        self._loop.close()

    async def _load(self) -> SpeechService:
        self._engine = EngineClient(host_socket(), self._settings.silence_timeout_s)
        admission = open_admission(self._settings)
        service = load_speech_service(self._settings, self._engine, self._entry.metrics, admission)
        await learn_speed(service, admission, self._engine)
        self._entry.metrics.admits(admission.capacity)
        return service

    async def _answer(self, request: Any, entry: EntryModel) -> None:
        with Reply(request, entry.name, entry.streams) as reply:
            inputs = Inputs(request)
            make_listener = ChunkListener if entry.streams else WholeListener
            listener = make_listener(reply, self._service.token_rate, inputs.call)
            if (left := inputs.left_call) is not None:
                self._service.leave(left)
                listener.acknowledge()
            else:
                await self._service.answer(inputs, listener, entry.metrics)

    def _ended(self, answer: Future[None]) -> None:
        self._answers.discard(answer)
        if not answer.cancelled() and answer.exception() is not None:
            logger.error("an answer could not be ended", exc_info=answer.exception())


class WholeAnswers:
    """The hosted model ``cosyvoice2_offline``, whose proxy counts the requests."""

    def __init__(self, model: SpeechModel) -> None:
        name = OfflineModel.name
        self._model = model
        self._entry = EntryModel(name, streams=False, metrics=SpeechMetrics(Metrics(name)))

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            self._model.begin(request, self._entry)

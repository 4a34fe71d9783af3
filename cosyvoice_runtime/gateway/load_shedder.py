"""Load shedding: a gateway refuses requests for which the models have no capacity.

A refusal by the model costs the machine that is full more: a stream to tritonserver, a request through shared
memory, an answer from the event loop in which others are spoken to.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from pathlib import Path

from cosyvoice_runtime.errors import OverloadedError
from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.gateway.policy import RefusedError
from cosyvoice_runtime.gateway.utterance_request import UtteranceRequest
from cosyvoice_runtime.metrics import Metric, Metrics
from cosyvoice_runtime.metrics.request_count import REFUSED, REQUESTS, REQUESTS_ABOUT
from cosyvoice_runtime.serving.speech.board import BOARD_FILE, open_board
from cosyvoice_runtime.serving.speech.refusal_queue import RefusalQueue, client_number


class LoadShedder:
    """Decides by the table by which the models admit. A model may still refuse a request that gets through
    here, because another one may take the capacity first.

    Args:
        directory: the directory that the processes of the server share.
        models: models in which an utterance takes capacity.
    """

    def __init__(self, directory: Path, models: Collection[str]) -> None:
        self._queue = RefusalQueue(open_board(directory / BOARD_FILE))
        self._refusals = {model: RefusalCount(model, directory) for model in models}

    @classmethod
    def of(cls, options: GatewayOptions) -> LoadShedder | None:
        """The load shedder of a gateway; None without a shared table."""
        if not options.shared:
            return None
        return cls(Path(options.shared), [name for name in options.open_models if name not in options.stages])

    def check(self, request: UtteranceRequest) -> None:
        """Refuse a request for which there is no capacity.

        Raises:
            RefusedError: with the model's text; a client that comes back when told keeps its queue position.
        """
        count = self._refusals.get(request.model)
        if count is None or not request.takes_place or not self._queue.capacity.known:
            return
        try:
            self._queue.require(client_number(request.client))
        except OverloadedError as error:
            count.metric.add(1)
            raise RefusedError("UNAVAILABLE", str(error)) from None


class RefusalCount:
    """The refusals of a model's requests, shown from the first one on."""

    def __init__(self, model: str, directory: Path) -> None:
        self._model = model
        self._directory = directory

    @cached_property
    def metric(self) -> Metric:
        return Metrics(self._model, self._directory).counter(REQUESTS, REQUESTS_ABOUT, ending=REFUSED)

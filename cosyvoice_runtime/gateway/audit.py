"""Lines of the audit log about a client's call: a line for each utterance, and for each refused request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2

from cosyvoice_runtime.errors import ClientGoneError, split_status
from cosyvoice_runtime.gateway.policy import RefusedError
from cosyvoice_runtime.gateway.request_check import UtteranceRequest
from cosyvoice_runtime.process.audit_log import ERROR, LEFT, OK, REFUSED, AuditLog

FAULTS = ("INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED", "DATA_LOSS")
"""These statuses are errors of the server; all others are refusals."""
FINAL = "triton_final_response"
"""The response parameter that marks the last response of a request."""
MOST_OPEN = 1024
"""The most utterances that a call keeps open. Without final responses an utterance ends with its call."""


@dataclass
class _Utterance:
    """One utterance of a call; ``open`` counts the client's messages without a final response."""

    asked: UtteranceRequest
    characters: int | None
    seconds: float | None = 0.0
    open: int = 1
    started: float = field(default_factory=time.monotonic)


class CallAudit:
    """The audit of one gRPC call or HTTP request; ``request_id`` is for a request without one."""

    def __init__(
        self, log: AuditLog, route: str, peer: str, client: str | None = None, request_id: str = ""
    ) -> None:
        self._log = log
        self._route = route
        self._peer = peer
        self._client = client
        self._request_id = request_id
        self._started = time.monotonic()
        self._utterances: dict[str, _Utterance] = {}
        self._told = False

    def asked(self, asked: UtteranceRequest) -> None:
        """Note an admitted request: it begins an utterance, or adds text to one."""
        if not self._log.on:
            return
        self._told = True
        known = self._utterances.get(asked.request_id)
        if known is not None:
            known.open += 1
        else:
            known = self._opened(asked)
        if known is not None:
            known.characters = (known.characters or 0) + (asked.characters or 0)
            return
        if len(self._utterances) >= MOST_OPEN:
            self._end(next(iter(self._utterances)), OK)
        self._utterances[asked.request_id] = _Utterance(asked, asked.characters)

    def _opened(self, asked: UtteranceRequest) -> _Utterance | None:
        """The utterance of this call to which a message with an id of its own adds text."""
        if asked.begins or asked.utterance is None:
            return None
        open_ones = self._utterances.values()
        return next((each for each in open_ones if each.asked.utterance == asked.utterance), None)

    def refused(self, request_id: str, refusal: RefusedError) -> None:
        """Note a refused request."""
        self._told = True
        ending = ERROR if refusal.status in FAULTS else REFUSED
        self._write(request_id, None, None, ending, self._started)

    def answered(self, response: Any) -> None:
        """Note a ``ModelStreamInferResponse`` that is sent to the client."""
        if not self._log.on:
            return
        inner = response.infer_response
        utterance = self._utterances.get(inner.id)
        if utterance is None:
            return
        utterance.seconds = (utterance.seconds or 0.0) + seconds_of(inner)
        if response.error_message:
            status, _ = split_status(response.error_message)
            self._end(inner.id, ERROR if status in FAULTS else REFUSED)
        elif inner.parameters[FINAL].bool_param if FINAL in inner.parameters else False:
            utterance.open -= 1
            if not utterance.open:
                self._end(inner.id, OK)

    def spoke(self, answer: bytes | None) -> None:
        """Note a whole answer, a ``ModelInferResponse``; None if its content is not read."""
        for utterance in self._utterances.values() if self._log.on else ():
            seen = answer is not None
            utterance.seconds = (
                seconds_of(service_pb2.ModelInferResponse.FromString(answer)) if seen else None
            )

    @contextmanager
    def call(self) -> Iterator[None]:
        """Utterances that are still open at the end of the block end as the block does."""
        try:
            yield
        except (ClientGoneError, asyncio.CancelledError, ConnectionError):
            self._end_all(LEFT)
            raise
        except RefusedError as refusal:
            self._end_all(ERROR if refusal.status in FAULTS else REFUSED)
            if not self._told:
                self.refused("", refusal)
            raise
        except Exception:
            self._end_all(ERROR)
            raise
        self._end_all(OK)

    def _end_all(self, ending: str) -> None:
        for request_id in list(self._utterances):
            self._end(request_id, ending)

    def _end(self, request_id: str, ending: str) -> None:
        ended = self._utterances.pop(request_id)
        self._write(request_id, ended.asked, ended, ending, ended.started)

    def _write(
        self,
        request_id: str,
        asked: UtteranceRequest | None,
        utterance: _Utterance | None,
        ending: str,
        started: float,
    ) -> None:
        seconds = None if utterance is None else utterance.seconds
        self._log.write(
            request_id=request_id or self._request_id,
            client=self._client if asked is None else asked.client,
            peer=self._peer,
            route=self._route,
            model=None if asked is None else asked.model,
            voice=None if asked is None else asked.voice,
            characters=None if utterance is None else utterance.characters,
            seconds=None if seconds is None else round(seconds, 3),
            ending=ending,
            duration_ms=round(1000 * (time.monotonic() - started)),
        )


def seconds_of(response: Any) -> float:
    """The seconds of speech in a ``ModelInferResponse``; 0 if it has none."""
    sizes = {output.name: index for index, output in enumerate(response.outputs)}
    raw = response.raw_output_contents
    if not {"waveform", "sample_rate"} <= sizes.keys() or len(raw) != len(response.outputs):
        return 0.0
    [rate] = np.frombuffer(raw[sizes["sample_rate"]], "<i4")[:1] or [0]
    return len(raw[sizes["waveform"]]) / 4 / int(rate) if rate else 0.0

"""Utterances that go on in float32 after a network has given NaN or infinity in half precision."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.engine.batches.chunk import BrokenUtteranceError, WaveChunk, Waveform, WaveOutcome
from cosyvoice_runtime.engine.batches.router import WaveRouter
from cosyvoice_runtime.engine.runtimes.runtime import WideNetworks
from cosyvoice_runtime.errors import (
    FLOW,
    VOCODER,
    CosyVoiceError,
    InvalidInput,
    NotFiniteError,
    WithdrawnError,
)
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.token2wav.token2wav import MORE_THAN_ANY

logger = logging.getLogger(__name__)

METRIC = "cosyvoice_recomputed_total"
ABOUT = "Utterances that went on in float32 after NaN or infinity, by the first stage that gave it."

MOST_AT_ONCE = 4
"""Utterances that may go on in float32 at the same time, which one thread computes in turn."""
LONGEST_S = 60.0
"""Longest utterance that goes on in float32, prompt included. It is computed as a whole, with memory by the
square of its length: the encoder's scores (8 heads, 3,000 frames) take 0.3 GB."""

Deliver = Callable[[WaveOutcome], None]


class WaitingChunk(NamedTuple):
    """A chunk without an outcome yet, and how many its utterance has up to it."""

    chunk: WaveChunk
    deliver: Deliver
    number: int

    def end(self, outcome: WaveOutcome) -> None:
        """Deliver the outcome; what its reader raises is logged, and others go on."""
        try:
            self.deliver(outcome)
        except Exception:
            logger.exception("an outcome of utterance %s could not be delivered", self.chunk.utterance_id)


@dataclass(eq=False)
class FollowedUtterance:
    """An utterance in progress, with all that it takes to compute it again.

    Attributes:
        opening: its first chunk.
        pushes: tokens of each chunk.
        waiting: chunks without an outcome, in their order.
        sent: samples that have been delivered.
        error: what a network gave in half precision; from then on float32 computes the utterance.
    """

    opening: WaveChunk
    used_at: float
    pushes: list[Sequence[int]] = field(default_factory=list)
    waiting: deque[WaitingChunk] = field(default_factory=deque)
    sent: int = 0
    error: BrokenUtteranceError | None = None


class WideWaves:
    """Passes chunks to the schedulers; an utterance whose outcome is NaN or infinity goes on in float32.

    What has been sent of it stays. One thread for all such utterances computes each further chunk from the
    utterance's start, and what follows the samples sent is delivered. The utterance ends with the error of
    half precision where that fails as well, where it is longer than :data:`LONGEST_S`, and where
    :data:`MOST_AT_ONCE` others go on in float32.

    Args:
        load: loads the networks, at the first use; None where there are none wider.
        idle_timeout_s: time after which an utterance that is not called is forgotten.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        router: WaveRouter,
        load: Callable[[], WideNetworks] | None,
        metrics: Metrics,
        idle_timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._router, self._load = router, load
        self._counters = {stage: metrics.counter(METRIC, ABOUT, stage=stage) for stage in (FLOW, VOCODER)}
        self._idle_timeout_s, self._clock = idle_timeout_s, clock
        self._utterances: OrderedDict[str, FollowedUtterance] = OrderedDict()
        self._networks: WideNetworks | None = None
        # Never held while others are called.
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, "token2wav-float32")

    def __len__(self) -> int:
        """Utterances that are followed."""
        return len(self._utterances)

    def submit(self, chunk: WaveChunk, deliver: Deliver) -> None:
        """Submit a chunk as :meth:`WaveRouter.submit` does."""
        if self._load is None:
            self._router.submit(chunk, deliver)
        elif chunk.cancel:
            self._forget(chunk.utterance_id)
            self._router.submit(chunk, deliver)
        else:
            self._follow(chunk, deliver)

    def close(self) -> None:
        """Compute what waits, then stop; the router is closed first."""
        self._thread.shutdown()

    def _follow(self, chunk: WaveChunk, deliver: Deliver) -> None:
        with self._lock:
            utterance = self._take(chunk)
            if utterance is not None:
                waiting = WaitingChunk(chunk, deliver, len(utterance.pushes))
                utterance.waiting.append(waiting)
                if utterance.error is not None:
                    self._thread.submit(self._go_on, utterance)
                    return
        if utterance is None:  # The schedulers know what is wrong with it.
            self._router.submit(chunk, deliver)
            return
        try:
            self._router.submit(chunk, partial(self._take_outcome, utterance, waiting))
        except Exception:
            with self._lock:
                if utterance.error is not None:
                    return  # It goes on in float32, this chunk included.
                utterance.waiting.remove(waiting)
                self._drop(utterance)
            raise

    def _take(self, chunk: WaveChunk) -> FollowedUtterance | None:
        """The utterance with the chunk's tokens; None if the chunk follows on none."""
        now, name = self._clock(), chunk.utterance_id
        utterance = self._utterances.get(name)
        if utterance is None:
            if chunk.position:
                return None
            self._forget_idle(now)
            utterance = self._utterances[name] = FollowedUtterance(chunk, now)
        if chunk.position != sum(map(len, utterance.pushes)):
            return None
        utterance.pushes.append(chunk.tokens)
        utterance.used_at = now
        self._utterances.move_to_end(name)
        return utterance

    def _take_outcome(
        self, utterance: FollowedUtterance, waiting: WaitingChunk, outcome: WaveOutcome
    ) -> None:
        """Deliver an outcome of half precision, or compute the chunk again."""
        with self._lock:
            if utterance.error is not None:
                return  # Float32 delivers.
            if isinstance(outcome, BrokenUtteranceError) and self._admit(utterance, outcome.stage):
                utterance.error = outcome
                self._thread.submit(self._go_on, utterance)
                return
            utterance.waiting.remove(waiting)
            self._note(utterance, waiting.chunk, outcome)
        waiting.end(outcome)

    def _admit(self, utterance: FollowedUtterance, stage: str) -> bool:
        """Note that an utterance goes on in float32, unless it has ended or too many others do."""
        name = utterance.opening.utterance_id
        if self._utterances.get(name) is not utterance:
            return False
        others = sum(each.error is not None for each in self._utterances.values())
        if others >= MOST_AT_ONCE:
            logger.warning("utterance %s can't go on in float32: %d others do, the limit", name, others)
            return False
        self._counters[stage].add(1)
        logger.warning("utterance %s: %s gave NaN or infinity; it goes on in float32", name, stage)
        return True

    def _go_on(self, utterance: FollowedUtterance) -> None:
        """Compute the chunks that wait, in float32."""
        while True:
            with self._lock:
                if not utterance.waiting:
                    break
                waiting = utterance.waiting[0]
            outcome = self._outcome(utterance, waiting)
            with self._lock:
                if not utterance.waiting or utterance.waiting[0] is not waiting:
                    continue  # It was cancelled meanwhile, and has been answered.
                utterance.waiting.popleft()
                self._note(utterance, waiting.chunk, outcome)
            waiting.end(outcome)
        if self._networks is not None:
            self._networks.give_back()

    def _outcome(self, utterance: FollowedUtterance, waiting: WaitingChunk) -> WaveOutcome:
        assert utterance.error is not None
        try:
            return self._computed(utterance, waiting)
        except InvalidInput as error:
            return error
        except CosyVoiceError as error:
            logger.warning("utterance %s can't go on in float32: %s", waiting.chunk.utterance_id, error)
        except Exception:
            logger.exception("utterance %s can't go on in float32", waiting.chunk.utterance_id)
        return utterance.error

    def _computed(self, utterance: FollowedUtterance, waiting: WaitingChunk) -> Waveform:
        """The samples of a chunk behind those that have been sent."""
        assert self._load is not None
        assert utterance.error is not None
        if self._networks is None:
            self._networks = self._load()
        token2wav, at_work, _ = self._networks
        opening, prompt = utterance.opening, utterance.error.prompt
        pushes = utterance.pushes[: waiting.number]
        length_s = (len(prompt.tokens) + sum(map(len, pushes))) / token2wav.flow.flow.config.token_rate
        if length_s > LONGEST_S:
            raise CosyVoiceError(f"it has {length_s:g} s, prompt included; the limit is {LONGEST_S:g} s")
        if token2wav.unit_tokens != MORE_THAN_ANY:  # Any cut gives the same samples.
            pushes = [[token for tokens in pushes for token in tokens]]
        with at_work():
            state = token2wav.open(prompt, opening.noise_seed, opening.speed)
            try:
                waves = []
                for number, tokens in enumerate(pushes, 1):
                    token2wav.push(state, tokens, waiting.chunk.last and number == len(pushes))
                    waves += token2wav.advance([state])
                wave = np.concatenate(waves)[utterance.sent :]
                if not np.isfinite(wave).all():
                    raise NotFiniteError(token2wav.broken_stage(state))
                return wave
            finally:
                token2wav.close(state)

    def _note(self, utterance: FollowedUtterance, chunk: WaveChunk, outcome: WaveOutcome) -> None:
        """Take note of what is delivered."""
        if isinstance(outcome, Exception) or chunk.last:
            self._drop(utterance)
        else:
            utterance.sent += len(outcome)

    def _drop(self, utterance: FollowedUtterance) -> None:
        name = utterance.opening.utterance_id
        if self._utterances.get(name) is utterance:
            del self._utterances[name]

    def _forget(self, name: str) -> None:
        """End a cancelled utterance; chunks that wait for float32 are answered."""
        with self._lock:
            utterance = self._utterances.pop(name, None)
            if utterance is None or utterance.error is None:
                return
            withdrawn = [*utterance.waiting]
            utterance.waiting.clear()
        for waiting in withdrawn:
            waiting.end(WithdrawnError("the utterance was cancelled"))

    def _forget_idle(self, now: float) -> None:
        """Forget utterances that nobody ended; the one unused for longest comes first."""
        while self._utterances:
            utterance = next(iter(self._utterances.values()))
            if utterance.waiting or utterance.used_at + self._idle_timeout_s > now:
                return
            self._drop(utterance)

"""Chunks of many utterances in, waveforms out."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.cuda_errors import is_fatal
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.serving.token2wav.chunk import WaveChunk
from cosyvoice_runtime.serving.token2wav.utterances import OpenUtterance, Utterances, VoiceCache
from cosyvoice_runtime.wave.any_token2wav import AnyToken2Wav

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Usage:
    """
    Attributes:
        utterances: in progress.
        voices: known by key.
        voice_pages: pages held by voices; what remains when no utterance is in progress.
        pages_in_use: pages held by voices and utterances.
        pages: all there are.
        recomputes: utterances so far that found no free page and recompute their earlier chunks.
        flow_calls: calls of the flow so far.
        eager_calls: calls of the flow and of TensorRT engines so far that no CUDA graph held, where there
            are graphs.
        batches: calls of the networks so far, by number of utterances.
        voice_hits: utterances so far whose voice had been computed before.
        voice_misses: utterances so far whose voice had not.
    """

    utterances: int
    voices: int
    voice_pages: int
    pages_in_use: int
    pages: int
    recomputes: int
    flow_calls: int
    eager_calls: int
    batches: Mapping[int, int]
    voice_hits: int
    voice_misses: int


ROWS = (*range(1, 9), 12, 16, 24, 32, 48, 64)
TURN_S = (0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)
"""Bounds of the histograms."""


class WaveMetrics:
    """
    Args:
        device: label of all of them.
    """

    def __init__(self, metrics: Metrics, device: str) -> None:
        gauge = partial(metrics.gauge, device=device)
        counter = partial(metrics.counter, device=device)
        lookups = "cosyvoice_token2wav_voice_lookups_total", "Utterances by whether their voice was computed."
        self._shown = {
            "utterances": gauge("cosyvoice_token2wav_utterances", "Utterances in progress."),
            "voices": gauge("cosyvoice_token2wav_voices", "Voices in memory."),
            "voice_pages": gauge("cosyvoice_token2wav_voice_pages", "Flow pages that voices hold."),
            "pages_in_use": gauge("cosyvoice_token2wav_pages_in_use", "Flow pages in use."),
            "pages": gauge("cosyvoice_token2wav_pages", "Flow pages there are."),
            "recomputes": counter("cosyvoice_token2wav_recomputes_total", "Utterances without a free page."),
            "flow_calls": counter("cosyvoice_token2wav_flow_calls_total", "Calls of the flow."),
            "eager_calls": counter("cosyvoice_token2wav_eager_calls_total", "Calls that no CUDA graph held."),
            "voice_hits": counter(*lookups, result="hit"),
            "voice_misses": counter(*lookups, result="miss"),
        }
        self._waiting = gauge("cosyvoice_token2wav_waiting", "Chunks that wait or are being computed.")
        self._rows = metrics.histogram(
            "cosyvoice_token2wav_turn_rows", "Utterances computed in one turn.", ROWS, device=device
        )
        self._turn_s = metrics.histogram(
            "cosyvoice_token2wav_turn_seconds", "Time of a turn.", TURN_S, device=device
        )
        self._observed: Counter[int] = Counter()

    def show(self, usage: Usage) -> None:
        for name, metric in self._shown.items():
            metric.set(getattr(usage, name))
        for rows, count in usage.batches.items():
            for _ in range(count - self._observed[rows]):
                self._rows.observe(rows)
        self._observed = Counter(usage.batches)

    def show_turn(self, seconds: float) -> None:
        self._turn_s.observe(seconds)

    def show_waiting(self, chunks: int) -> None:
        self._waiting.set(chunks)


Waveform = npt.NDArray[np.float32]
WaveOutcome = Waveform | Exception
"""Samples ``[n]``, or why there are none."""


class WaveService:
    """Owns the utterances in progress and the voices they speak with.

    Utterances are independent: what one of them does wrong ends that one alone.

    Args:
        max_utterances: in progress at once.
        idle_timeout_s: after which an utterance that nobody calls for is dropped.
        on_change: told the usage now and after every change, from whichever thread made it.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        token2wav: AnyToken2Wav,
        voices: VoiceCache,
        max_utterances: int,
        idle_timeout_s: float,
        on_change: Callable[[Usage], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._token2wav = token2wav
        self._voices = voices
        self._utterances = Utterances(max_utterances, idle_timeout_s, clock)
        self._on_change = on_change
        self._turn: frozenset[str] = frozenset()
        self._batches: Counter[int] = Counter()
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        self._closed = False
        self._changed()

    def __len__(self) -> int:
        """Utterances in progress."""
        return len(self._utterances)

    def __contains__(self, utterance_id: str) -> bool:
        """Whether an utterance is in progress. Does not wait for a batch that is being computed."""
        return utterance_id in self._utterances

    def run(self, chunks: Sequence[WaveChunk]) -> list[WaveOutcome]:
        """Compute chunks of as many utterances in one batch.

        If the batch fails, each is computed by itself, and only those that fail again get the error.
        An utterance ends, and is freed, with its last chunk, a cancel or an error; later chunks of it get a
        :class:`~cosyvoice_runtime.errors.NotFoundError`.
        """
        try:
            with self._lock:
                self.touch(chunk.utterance_id for chunk in chunks)
                self._drop_idle()
                return self._run_batch(chunks)
        finally:
            self._changed()

    def touch(self, names: Iterable[str]) -> None:
        """These utterances are not idle, if they are in progress."""
        with self._lock:
            self._utterances.touch(names)

    def computes_voice(self, chunk: WaveChunk) -> bool:
        """Whether the chunk would run the networks over the prompt of its voice first."""
        with self._lock:
            return self._opens(chunk) and self._voices.computes(chunk.voice_key, chunk.prompt)

    def sweep(self) -> None:
        """Drop utterances that nobody has called for in time. Called by a timer while there are any."""
        with self._lock:
            self._drop_idle()
        self._changed()

    def usage(self) -> Usage:
        with self._lock:
            flow = self._token2wav.flow
            return Usage(
                utterances=len(self._utterances),
                voices=len(self._voices),
                voice_pages=self._voices.pages,
                pages_in_use=flow.num_pages - flow.free_pages,
                pages=flow.num_pages,
                recomputes=flow.recomputing,
                flow_calls=flow.calls,
                eager_calls=flow.eager_calls,
                batches=dict(self._batches),
                voice_hits=self._voices.hits,
                voice_misses=self._voices.misses,
            )

    def close(self) -> None:
        """Free everything and stop the timer."""
        with self._lock:
            self._closed = True
            for name in self._utterances.names():
                self._drop(name)
            self._voices.clear()
            if self._timer is not None:
                self._timer.cancel()
        self._changed()

    def _run_batch(self, chunks: Sequence[WaveChunk]) -> list[WaveOutcome]:
        self._turn = frozenset(chunk.utterance_id for chunk in chunks)
        taken = [self._take(chunk) for chunk in chunks]
        utterances = [entry for entry in taken if isinstance(entry, OpenUtterance)]
        waves = iter(self._advance(utterances))
        outcomes = [next(waves) if isinstance(entry, OpenUtterance) else entry for entry in taken]
        for chunk, outcome in zip(chunks, outcomes, strict=True):
            if chunk.last or chunk.cancel or isinstance(outcome, Exception):
                self._drop(chunk.utterance_id)
        self._utterances.touch(chunk.utterance_id for chunk in chunks)
        return outcomes

    def _take(self, chunk: WaveChunk) -> OpenUtterance | WaveOutcome:
        """The utterance with its new tokens, or the outcome if there is nothing to compute."""
        if chunk.cancel:
            return np.zeros(0, np.float32)
        try:
            chunk.check()
            utterance = self._open(chunk) if self._opens(chunk) else self._utterances.get(chunk.utterance_id)
            if chunk.position != utterance.received:
                limit = f"{utterance.received} tokens of the utterance were received before"
                raise InvalidInput("position", chunk.position, limit)
            self._token2wav.check(utterance.state, [*chunk.tokens, *chunk.rest])
            self._token2wav.push(utterance.state, chunk.tokens, chunk.last)
            utterance.received += len(chunk.tokens)
            return utterance
        except Exception as error:  # of whatever kind: the other rows go on
            return error

    def _opens(self, chunk: WaveChunk) -> bool:
        return not chunk.cancel and chunk.position == 0 and chunk.utterance_id not in self._utterances

    def _open(self, chunk: WaveChunk) -> OpenUtterance:
        chunk.check_opening()
        given_up = self._utterances.making_room(self._turn)
        if given_up is not None:
            self._drop(given_up)
        voice = self._voices.acquire(chunk.voice_key, chunk.prompt)
        try:
            state = self._token2wav.open(voice.start, chunk.noise_seed, chunk.speed)
        except BaseException:
            self._voices.release(voice)
            raise
        return self._utterances.add(chunk.utterance_id, state, voice)

    def _advance(self, utterances: Sequence[OpenUtterance]) -> list[WaveOutcome]:
        if not utterances:
            return []
        try:
            return [_checked(wave) for wave in self._waves(utterances)]
        except Exception as error:
            if len(utterances) == 1 or is_fatal(error):
                return [error for _ in utterances]
            logger.warning("a batch of %d utterances failed; each is computed alone", len(utterances))
            logger.debug("the batch's error", exc_info=error)
        return [outcome for utterance in utterances for outcome in self._advance([utterance])]

    def _waves(self, utterances: Sequence[OpenUtterance]) -> list[Waveform]:
        """The next samples of each; none of them has moved if there is an error."""
        states = [utterance.state for utterance in utterances]
        self._batches[len(states)] += 1
        with self._token2wav.all_or_nothing(states):
            self._voices.make_room_for(self._token2wav.next_pages(states))
            return self._token2wav.advance(states)

    def _drop(self, name: str) -> None:
        utterance = self._utterances.remove(name)
        if utterance is not None:
            self._token2wav.close(utterance.state)
            self._voices.release(utterance.voice)

    def _drop_idle(self) -> None:
        for name in self._utterances.idle():
            logger.warning("utterance %s is dropped: nobody called for it", name)
            self._drop(name)

    def _changed(self) -> None:
        with self._lock:
            self._set_timer()
            try:
                self._on_change(self.usage())
            except Exception:
                logger.exception("the usage of token2wav could not be told")

    def _set_timer(self) -> None:
        """Sweep when the next utterance may be idle. A timer that rings too early sets the next one."""
        delay = self._utterances.idle_in_s()
        if self._timer is None and delay is not None and not self._closed:
            self._timer = threading.Timer(delay, self._ring)
            self._timer.daemon = True
            self._timer.start()

    def _ring(self) -> None:
        with self._lock:
            self._timer = None
            if not self._closed:
                self.sweep()


def _checked(wave: Waveform) -> WaveOutcome:
    if np.isfinite(wave).all():
        return wave
    return CosyVoiceError("waveform: NaN or infinity came out of the networks")

"""The utterances in progress: chunks of many go in, in batches, and waveforms come out."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.engine.batches.chunk import (
    BrokenUtteranceError,
    WaveChunk,
    WaveOutcome,
    WaveOutcomes,
)
from cosyvoice_runtime.engine.batches.pages import Preemption
from cosyvoice_runtime.engine.batches.usage import Usage
from cosyvoice_runtime.engine.batches.utterances import BatchesUnderWay, OpenUtterance, Speaker, Utterances
from cosyvoice_runtime.engine.batches.voices import VoiceCache
from cosyvoice_runtime.errors import InvalidInput, NotFoundError, OverloadedError
from cosyvoice_runtime.gpu.cuda_errors import is_fatal
from cosyvoice_runtime.token2wav.token2wav import AnyToken2Wav
from cosyvoice_runtime.vocoder.windowed_vocoder import Waveforms, keeping

logger = logging.getLogger(__name__)


class ComputedChunk(NamedTuple):
    """A chunk that is being computed.

    Attributes:
        utterance: the utterance that it moves on, or that ends if the outcome was known before; None without
            one.
        wait: waits for the outcome.
    """

    chunk: WaveChunk
    utterance: OpenUtterance | None
    wait: Callable[[], WaveOutcome]


class WaveService:
    """Owns the utterances in progress, which are independent: an error of one ends that one alone.

    Args:
        voices: voices of utterances; services whose flows share pages may share them.
        idle_timeout_s: time after which an utterance that is not called is dropped.
        on_change: called with the usage at once and after every change, in the thread that made it.
        clock: monotonic seconds.
        concurrent: the same networks and pages, for batches that a GPU computes at the same time.
    """

    def __init__(
        self,
        token2wav: AnyToken2Wav,
        voices: VoiceCache,
        idle_timeout_s: float,
        on_change: Callable[[Usage], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        concurrent: Sequence[AnyToken2Wav] = (),
    ) -> None:
        self._token2wav, self._networks = token2wav, (token2wav, *concurrent)
        self._voices = voices
        self._utterances = Utterances(idle_timeout_s, clock)
        self._preemption = Preemption(token2wav, voices, self._utterances)
        self._on_change = on_change
        self._under_way = BatchesUnderWay(self._free)
        self._waiting: Callable[[], Iterable[str]] = tuple
        self._batches: Counter[int] = Counter()
        self._voice_hits = self._voice_misses = 0
        # This lock is held while a batch is launched, which takes long.
        self._launching = threading.RLock()
        # This one guards what launches and ends share. It is held briefly: no end waits for a launch.
        self._lock = threading.RLock()
        self._telling = threading.Lock()
        self._timer: threading.Timer | None = None
        self._closed = self._told_last = False
        voices.enter()
        self._changed()

    def __len__(self) -> int:
        """Utterances in progress."""
        return len(self._utterances)

    def __contains__(self, utterance_id: str) -> bool:
        """Whether an utterance is in progress. Does not wait for a batch that is being computed."""
        return utterance_id in self._utterances

    def number(self, utterance_id: str) -> int:
        """Number of utterances opened before this one; of one not in progress, the number so far.

        It does not wait for a batch that is being computed.
        """
        return self._utterances.number(utterance_id)

    def speakers(self) -> list[Speaker]:
        """Utterances in progress, the earliest first. Does not wait for a batch that is being computed."""
        return [
            Speaker(
                name, one.number, self._token2wav.held_pages(one.state), self._token2wav.lost_pages(one.state)
            )
            for name, one in self._utterances.by_coming()
        ]

    def run(self, chunks: Sequence[WaveChunk]) -> list[WaveOutcome]:
        """Compute chunks of as many utterances in one batch.

        If the batch fails, each is computed by itself, and only those that fail again get the error. An
        utterance ends, and is freed, with its last chunk, a cancel or an error; later chunks of it get a
        :class:`~cosyvoice_runtime.errors.NotFoundError`.
        """
        return self.launch(chunks)()

    def launch(self, chunks: Sequence[WaveChunk], worker: int = 0) -> WaveOutcomes:
        """Begin to :meth:`run`: a GPU goes on by itself, and the next chunks may be launched meanwhile.

        Args:
            worker: 0, or the number of the concurrent networks that compute them. Their utterances may not be
                launched with others before the outcomes are there, and only 0 computes voices.

        Returns:
            a call that waits for the outcomes; made once, and that of the earliest launch first.
        """
        token2wav = self._networks[worker]
        batch = frozenset(chunk.utterance_id for chunk in chunks)
        with self._launching:
            with self._lock:
                self._under_way.begin(batch)  # From here on they keep what they hold.
            try:
                with self._lock:
                    self._drop_idle()
                rows = self._launch_batch(chunks, batch, token2wav)
            except BaseException:
                self._end_batch(batch)
                raise
            return partial(self._finish, batch, rows)

    def queued_in(self, waiting: Callable[[], Iterable[str]]) -> None:
        """Take note of a queue: utterances that wait in it are not idle, however long that takes.

        Args:
            waiting: ids of utterances whose chunks have no outcome yet; called from any thread, with this
                service's lock.
        """
        self._waiting = waiting

    def computes_voice(self, chunk: WaveChunk) -> bool:
        """Whether the networks would run over the prompt of the chunk's voice first."""
        with self._lock:
            return self._opens(chunk) and self._voices.computes(chunk.voice_key, chunk.prompt)

    def awaits_voice(self, chunk: WaveChunk, told: Callable[[], None]) -> bool:
        """Whether another service computes the chunk's voice now; ``told`` is called after that, from its
        thread."""
        with self._lock:
            return self._opens(chunk) and self._voices.awaits(chunk.voice_key, told)

    def sweep(self) -> None:
        """Drop utterances that were not called in time; a timer calls this while there are any."""
        with self._lock:
            self._drop_idle()
        self._changed()

    def usage(self) -> Usage:
        with self._lock:
            flows = [each.flow for each in self._networks]
            return Usage(
                utterances=len(self._utterances),
                recomputes=sum(each.recomputing for each in flows),
                flow_calls=sum(each.calls for each in flows),
                eager_calls=self._token2wav.flow.eager_calls,
                batches=dict(self._batches),
                voice_hits=self._voice_hits,
                voice_misses=self._voice_misses,
            )

    def close(self) -> None:
        """Free everything and stop the timer; harmless when repeated."""
        with self._launching, self._lock:
            for name in self._utterances.names():
                self._drop(name)
            if not self._closed:
                self._voices.leave()
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
        self._changed(last=True)

    def _launch_batch(
        self, chunks: Sequence[WaveChunk], batch: frozenset[str], token2wav: AnyToken2Wav
    ) -> list[ComputedChunk]:
        taken = [self._take(chunk, token2wav) for chunk in chunks]
        utterances = [entry for entry in taken if isinstance(entry, OpenUtterance)]
        with self._lock:
            self._preemption.make_room_for(utterances, self._under_way.others(batch), self._waiting)
        waits = iter(self._advance(utterances, token2wav))
        return [
            ComputedChunk(chunk, entry, next(waits))
            if isinstance(entry, OpenUtterance)
            else ComputedChunk(chunk, self._utterances.find(chunk.utterance_id), partial(_known, entry))
            for chunk, entry in zip(chunks, taken, strict=True)
        ]

    def _finish(self, batch: frozenset[str], rows: Sequence[ComputedChunk]) -> list[WaveOutcome]:
        try:
            outcomes = [row.wait() for row in rows]
            with self._lock:
                return [self._settled(row, outcome) for row, outcome in zip(rows, outcomes, strict=True)]
        finally:
            self._end_batch(batch)
            self._changed()

    def _end_batch(self, batch: frozenset[str]) -> None:
        with self._lock:
            self._under_way.end(batch)

    def _settled(self, row: ComputedChunk, outcome: WaveOutcome) -> WaveOutcome:
        """The outcome, unless an earlier one or a cancel has ended the utterance meanwhile.

        An end leaves another utterance alone that was opened by the same name meanwhile.
        """
        name, failed = row.chunk.utterance_id, isinstance(outcome, Exception)
        if self._utterances.find(name) is not row.utterance:
            limit = "it ended before this was computed"
            return outcome if failed or row.chunk.cancel else NotFoundError("utterance_id", name, limit)
        if row.chunk.last or row.chunk.cancel or failed:
            self._drop(name)
        self._utterances.touch([name])
        return outcome

    def _take(self, chunk: WaveChunk, token2wav: AnyToken2Wav) -> OpenUtterance | WaveOutcome:
        """The utterance with its new tokens, or the outcome if nothing is left to compute."""
        if chunk.cancel:
            return np.zeros(0, np.float32)
        try:
            chunk.check()
            opens = self._opens(chunk)
            if (
                opens
                and token2wav is not self._token2wav
                and self._voices.computes(chunk.voice_key, chunk.prompt)
            ):
                raise OverloadedError("its voice is given up or not computed yet; try again")
            utterance = self._open(chunk) if opens else self._utterances.get(chunk.utterance_id)
            if chunk.position != utterance.received:
                limit = f"{utterance.received} tokens of the utterance were received before"
                raise InvalidInput("position", chunk.position, limit)
            self._token2wav.check(utterance.state, [*chunk.tokens, *chunk.rest])
            self._token2wav.push(utterance.state, chunk.tokens, chunk.last)
            utterance.received += len(chunk.tokens)
            return utterance
        except Exception as error:  # After any error the other rows go on.
            return error

    def _opens(self, chunk: WaveChunk) -> bool:
        return not chunk.cancel and chunk.position == 0 and chunk.utterance_id not in self._utterances

    def _open(self, chunk: WaveChunk) -> OpenUtterance:
        chunk.check_opening()
        misses = self._voices.computes(chunk.voice_key, chunk.prompt)
        voice = self._voices.acquire(chunk.voice_key, chunk.prompt, self._token2wav.flow)
        self._voice_misses += misses
        self._voice_hits += not misses
        try:
            state = self._token2wav.open(voice.start, chunk.noise_seed, chunk.speed)
        except BaseException:
            self._voices.release(voice)
            raise
        with self._lock:
            return self._utterances.add(chunk.utterance_id, state, voice)

    def _advance(
        self, utterances: Sequence[OpenUtterance], token2wav: AnyToken2Wav
    ) -> list[Callable[[], WaveOutcome]]:
        """A call for each utterance that waits for its next samples."""
        if not utterances:
            return []
        try:
            waves = cache(self._waves(utterances, token2wav))
        except Exception as error:
            if len(utterances) == 1 or is_fatal(error):
                return [partial(_known, error) for _ in utterances]
            logger.warning("a batch of %d utterances failed; each is computed alone", len(utterances))
            logger.debug("the batch's error", exc_info=error)
            return [wait for utterance in utterances for wait in self._advance([utterance], token2wav)]
        return [
            partial(_checked, waves, row, token2wav, utterance) for row, utterance in enumerate(utterances)
        ]

    def _waves(self, utterances: Sequence[OpenUtterance], token2wav: AnyToken2Wav) -> Waveforms:
        """The next samples of each utterance, in computation; after an error none of them has moved."""
        states = [utterance.state for utterance in utterances]
        with self._lock:
            self._batches[len(states)] += 1
        with token2wav.all_or_nothing(states) as before:
            return keeping(token2wav.launch(states), before)  # Another stream may still read the inputs.

    def _drop(self, name: str) -> None:
        """End an utterance."""
        utterance = self._utterances.remove(name)
        if utterance is not None:
            self._under_way.leave(name, utterance)

    def _free(self, utterance: OpenUtterance) -> None:
        pages = self._token2wav.held_pages(utterance.state) + self._token2wav.lost_pages(utterance.state)
        self._voices.release(utterance.voice, pages)
        try:
            self._token2wav.close(utterance.state)
        except Exception:
            logger.exception("what an utterance held could not be freed")

    def _drop_idle(self) -> None:
        self._utterances.touch(self._under_way.names)
        self._utterances.touch(self._waiting())
        for name in self._utterances.idle():
            logger.warning("utterance %s is dropped: it was not called in time", name)
            self._drop(name)

    def _changed(self, last: bool = False) -> None:
        with self._lock:
            self._set_timer()
        with self._telling:  # The last of two threads tells the newest usage.
            if self._told_last:
                return
            self._told_last = last
            self._on_change(self.usage())

    def _set_timer(self) -> None:
        """Sweep when the next utterance may be idle; a timer that rings too early sets the next one."""
        delay = self._utterances.idle_in_s()
        if self._timer is None and delay is not None and not self._closed:
            timer = threading.Timer(delay, self._ring)
            timer.daemon = True
            try:
                timer.start()
            except RuntimeError:  # The machine has no thread to spare; the next change sets a timer.
                logger.exception("no timer looks for idle utterances for the moment")
            else:
                self._timer = timer

    def _ring(self) -> None:
        with self._lock:
            self._timer = None
            if self._closed:
                return
        self.sweep()  # The lock is not held, because telling of it may take long.


def _known(outcome: WaveOutcome) -> WaveOutcome:
    return outcome


def _checked(waves: Waveforms, row: int, token2wav: AnyToken2Wav, utterance: OpenUtterance) -> WaveOutcome:
    """A row's samples, checked for NaN on the host, so that no device waits for it."""
    try:
        wave = waves()[row]
        if np.isfinite(wave).all():
            return wave
        return BrokenUtteranceError(token2wav.broken_stage(utterance.state), utterance.voice.prompt)
    except Exception as error:  # A GPU tells of some errors late.
        return error

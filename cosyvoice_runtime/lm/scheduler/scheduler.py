"""The thread that owns the engine: requests wait, join, run together and leave between two tokens."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import cast

from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput, OverloadedError, WithdrawnError
from cosyvoice_runtime.gpu.cuda_errors import end_process, is_fatal
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.lm.engines.engine import EngineError, LmEngine, OpenEngine, SelectiveEngine, TextEngine
from cosyvoice_runtime.lm.generation import Progress
from cosyvoice_runtime.lm.scheduler.job import Job, NamedJobs, Reader
from cosyvoice_runtime.lm.scheduler.load_metrics import Load
from cosyvoice_runtime.lm.scheduler.request import Request
from cosyvoice_runtime.lm.scheduler.unheard import Unheard
from cosyvoice_runtime.metrics import trace

logger = logging.getLogger(__name__)

LOOK_S = 0.05
"""Seconds between two checks while requests run: whether their readers are there, how long they have waited
for text, and the load."""
LONGEST_STILL_S = 0.05
"""Most seconds for which steps wait for a first chunk, twice those that it takes: others may follow it."""


class Scheduler:
    """Runs requests through an engine; `submit`, `stop` and `close` may be called by any thread.

    If the engine breaks down, the requests in it end with an `EngineError`, and a fresh engine takes the
    waiting ones. If there is no fresh engine either, or the GPU is lost, those get the error, too, and the
    process ends: only another one can serve again.

    Args:
        open_engine: makes an engine.
        max_waiting: requests that may wait for a slot.
        watch: told the load every ``LOOK_S`` while there are requests, and after the last; raises nothing.
        text_timeout_s: longest time that a request may wait for further text before it loses its slot.
        shared: of a GPU that token2wav shares; None for one that it does not.
        clock: seconds.
        end_process: told why this process can't go on.
    """

    def __init__(
        self,
        open_engine: OpenEngine,
        max_waiting: int,
        watch: Callable[[Load], None],
        text_timeout_s: float = 30.0,
        shared: SharedGpu | None = None,
        clock: Callable[[], float] = time.monotonic,
        end_process: Callable[[str], None] = end_process,
    ) -> None:
        self._open_engine = open_engine
        self._engine: LmEngine = open_engine()
        self._max_waiting = max_waiting
        self._watch = watch
        self._text_timeout_s = text_timeout_s
        self._gpu = shared or SharedGpu()
        self._clock = clock
        self._end_process = end_process
        self._changed = threading.Condition()
        self._gpu.when_free(self._wake)
        self._waiting: deque[Job] = deque()
        self._running: dict[object, Job] = {}
        self._open: dict[object, Job] = {}
        self._starved: dict[Job, float] = {}
        self._unheard = Unheard(isinstance(self._engine, SelectiveEngine))
        self._looked_s = clock()
        self._cancelled: list[Job] = []
        self._named = NamedJobs()
        self._refusal: CosyVoiceError | None = None
        self._closing = False
        self._tokens_per_step = 0
        self._tokens = self._steps = 0
        self._step_s = self._stepped_s = 0.0
        self._finished: Counter[FinishReason] = Counter()
        self._thread = threading.Thread(target=self._run, name="speech-lm-scheduler")
        self._thread.start()

    @property
    def load(self) -> Load:
        with self._changed:  # A request that ends meanwhile would count twice.
            active, waiting, finished = len(self._running), len(self._waiting), Counter(self._finished)
        per_step = self._tokens_per_step if active else 0
        return Load(active, waiting, per_step, self._tokens, finished, self._steps, self._step_s)

    def submit(self, request: Request, reader: Reader) -> None:
        """Queue a request, whose tokens and end go to its reader.

        Raises:
            OverloadedError: too many requests wait, or the scheduler is closing.
            InvalidInput: a request with this id has not ended yet.
            EngineError: no engine is left.
        """
        job = Job(request, reader)
        with self._changed:
            self._check_admission(request)
            self._waiting.append(job)
            self._named.add(job)
            self._changed.notify()

    def push_text(self, request_id: str, ids: Sequence[int], ended: bool) -> None:
        """Add text to a request whose text comes while it runs, or say that no more follows.

        Raises:
            NotFoundError: no such request runs or waits, or has ended before its text did.
            InvalidInput: its text is complete, ends without any, or is too long by now.
        """
        with self._changed:
            self._named.text(request_id).put(ids, ended)
            self._changed.notify()

    def stop(self, request_id: str) -> None:
        """End a request early, with reason ``cancelled``; an InvalidInput tells that the id is empty.

        A request that has ended is left alone.
        """
        if not request_id:
            raise InvalidInput("request_id", request_id, "the id of the request to stop")
        with self._changed:
            job = self._named.find(request_id)
            if job is not None:
                self._cancelled.append(job)
                self._changed.notify()

    def close(self) -> None:
        """Take no further requests, let the others come to their end, and end the thread."""
        with self._changed:
            self._closing = True
            self._refusal = self._refusal or OverloadedError("the server is shutting down; try again later")
            self._changed.notify()
        self._thread.join()

    def _check_admission(self, request: Request) -> None:
        if self._refusal is not None:
            raise copy.copy(self._refusal)  # An error raised again and again collects tracebacks.
        if len(self._running) + len(self._waiting) >= self._engine.slots + self._max_waiting:
            limit = f"{self._engine.slots} requests run and {self._max_waiting} wait"
            raise OverloadedError(f"max_queue_size: {limit}; try again later")
        self._named.require_free(request.id)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def _run(self) -> None:
        try:
            while self._serve():
                self._gpu.rest()
                self._close_broken()
                self._engine = self._open_engine()
        except BaseException as error:  # Any error counts: no request would be answered any more.
            self._give_up(error)
        else:
            self._engine.close()
        finally:
            self._gpu.rest()

    def _serve(self) -> bool:
        """Work until no work is left or will come; True if the engine broke down before.

        Raises:
            Exception: the GPU is lost, so that no engine can be opened in this process any more.
        """
        try:
            while self._wait_for_work():
                self._end_cancelled()
                self._admit()
                self._pass_text()
                self._step()
                self._note_starved()
                self._look_round()
        except Exception as error:
            logger.error("the engine of the speech LM broke down", exc_info=error)
            self._fail(self._running.values(), _breakdown(error))
            if is_fatal(error):
                raise
            return True
        return False

    def _wait_for_work(self) -> bool:
        """Sleep until there is something to do; False when there never will be again."""
        if not self._running:
            self._watch(self.load)
        with self._changed:
            if not self._can_go_on():
                self._gpu.rest()
                self._changed.wait_for(self._can_go_on, LOOK_S if self._running else None)
            return bool(self._running or self._waiting or self._cancelled)

    def _can_go_on(self) -> bool:
        running = len(self._running)
        may_end = self._closing and not running
        return self._has_news() or may_end or len(self._starved) < running

    def _has_news(self) -> bool:
        """Whether a request has come, is cancelled, or has further text. The caller holds the lock."""
        may_start = bool(self._waiting) and len(self._running) < self._engine.slots
        has_text = any(job.text is not None and job.text.has_news for job in self._starved)
        return bool(self._cancelled) or may_start or has_text

    def _end_cancelled(self) -> None:
        while self._cancelled:
            self._remove(self._cancelled.pop())

    def _remove(self, job: Job, error: Exception | None = None) -> None:
        """Take a job out of its place; without effect when it has ended."""
        if job.finish_reason is None:
            if job.handle is not None:
                self._engine.cancel(job.handle)
            self._finish(job, FinishReason.CANCELLED, error)

    def _admit(self) -> None:
        """Start waiting requests, not more than one pass feeds: a step is as long as a cancel may wait."""
        room = min(self._engine.slots - len(self._running), self._engine.prefill_batch)
        while self._waiting and room:
            job = self._waiting[0]
            self._end_if_unread(job)
            if job.finish_reason is None:
                self._start(job)
                room -= 1

    def _end_if_unread(self, job: Job) -> None:
        """End a request that its reader no longer wants; a reader that fails ends its own request alone."""
        try:
            if job.reader.cancelled:
                self._remove(job)
        except Exception as error:
            logger.warning("the reader of a request failed", exc_info=error)
            reason = f"the reader of the speech tokens failed ({type(error).__name__})"
            self._remove(job, CosyVoiceError(reason))

    def _start(self, job: Job) -> None:
        add = self._engine.add if job.text is None else self._text_engine.add_open
        trace.note("the speech LM begins", job.request.id)
        try:
            job.handle = add(job.request.prompt, job.request.options)
        except CosyVoiceError as error:
            self._finish(job, FinishReason.ERROR, error)
            return
        except Exception as error:
            self._finish(job, FinishReason.ERROR, _breakdown(error))
            raise
        with self._changed:
            self._waiting.remove(job)
            self._running[job.handle] = job
        if job.text is not None:
            self._open[job.handle] = job
        elif job.request.with_rows:
            job.rows = self._text_engine.follow(job.handle, job.request.prompt.text_positions)
        self._unheard.add(job)

    @property
    def _text_engine(self) -> TextEngine:
        """The engine, for requests whose text comes in pieces or is followed."""
        return cast(TextEngine, self._engine)

    def _pass_text(self) -> None:
        for job in list(self._open.values()):
            assert job.text is not None
            with self._changed:
                has_news, ids, ended = job.text.has_news, job.text.take(), job.text.is_complete
            if has_news:
                self._starved.pop(job, None)
                self._give(job, ids, ended)

    def _give(self, job: Job, ids: Sequence[int], ended: bool) -> None:
        assert job.handle is not None
        try:
            if ids:
                self._text_engine.push_text(job.handle, ids)
            if ended:
                self._text_engine.end_text(job.handle)
        except CosyVoiceError as error:
            self._remove(job, error)

    def _note_starved(self) -> None:
        """Find requests that wait for text; their readers get the tokens so far."""
        for job in list(self._open.values()):
            if job not in self._starved and self._text_engine.waits_for_text(job.handle):
                self._starved[job] = self._clock()
                if job.has_rest:
                    self._send(job)

    def _step(self) -> None:
        if len(self._starved) == len(self._running):
            return
        waiting = self._unheard.waiting(self._starved)
        if not waiting and self._stands_still():
            return
        with self._gpu.step(urgent=bool(waiting)):
            started = self._clock()
            progress = self._advanced(waiting)
            now = self._stepped_s = self._clock()
            self._step_s += now - started
        self._steps += 1
        tokens = sum([len(each.tokens) for each in progress])
        self._tokens += tokens
        if not self._unheard.apart:  # It says how full steps of all are.
            self._tokens_per_step = tokens
        for each in progress:
            job = self._running.get(each.handle)
            if job is not None:  # Otherwise the reader has refused tokens of this step.
                self._advance(job, each)

    def _advanced(self, waiting: Sequence[Job]) -> Sequence[Progress]:
        """Progress of all requests, or of some that wait for first tokens."""
        first = self._unheard.alone(waiting, len(self._running))
        return cast(SelectiveEngine, self._engine).step_some(first) if first else self._engine.step()

    def _stands_still(self) -> bool:
        """Wait while a first chunk has the steps' partition of the GPU to itself; whether one had.

        The wait ends early when a request comes or leaves, or the GPU tells that the chunk has ended.
        """
        longest_s = self._stepped_s + LONGEST_STILL_S - self._clock()
        with self._changed:  # The GPU tells under this lock, so no end is missed.
            if longest_s <= 0 or not self._gpu.stands_still:
                return False
            if not self._has_news():
                self._changed.wait(longest_s)
        return True

    def _look_round(self) -> None:
        """End requests whose readers have left or whose text does not come, and show the load."""
        now = self._clock()
        if now - self._looked_s < LOOK_S:
            return
        self._looked_s = now
        for job in list(self._running.values()):
            self._end_if_unread(job)
        for job, since_s in list(self._starved.items()):
            if now - since_s > self._text_timeout_s:
                self._remove(job, WithdrawnError(f"no text came for {self._text_timeout_s:g} s"))
        self._watch(self.load)

    def _advance(self, job: Job, progress: Progress) -> None:
        job.add(progress.tokens)
        if progress.finish_reason is not None:
            self._finish(job, progress.finish_reason, progress.error)
            return
        if job.awaits_first:
            trace.note("a token is drawn", job.request.id)
        if job.has_group:
            self._send(job)

    def _send(self, job: Job) -> None:
        """Pass a job's tokens on; a job whose reader does not take them ends."""
        try:
            job.send()
        except Exception as error:
            self._remove(job, error)

    def _finish(self, job: Job, reason: FinishReason, error: Exception | None = None) -> None:
        """Take a job out and tell its reader."""
        with self._changed:
            if job.handle is None:
                self._waiting.remove(job)
            else:
                del self._running[job.handle]
                self._open.pop(job.handle, None)
            self._starved.pop(job, None)
            self._named.end(job)
            self._finished[reason] += 1
        job.end(reason, error)

    def _fail(self, jobs: Iterable[Job], failure: EngineError) -> None:
        for job in list(jobs):
            self._finish(job, FinishReason.ERROR, failure)

    def _close_broken(self) -> None:
        """Free what a broken engine holds, as far as it can still do that."""
        try:
            self._engine.close()
        except Exception:
            logger.exception("the broken engine of the speech LM can't be closed")

    def _give_up(self, error: BaseException) -> None:
        """Answer all requests and end the process."""
        logger.critical("the engine of the speech LM can't be started anew", exc_info=error)
        failure = EngineError("the speech LM's engine broke down and can't be started anew")
        with self._changed:
            self._refusal = failure
        self._fail([*self._running.values(), *self._waiting], failure)
        self._end_process(f"{failure} ({type(error).__name__})")


def _breakdown(error: Exception) -> EngineError:
    return EngineError(f"the speech LM's engine broke down ({type(error).__name__})")

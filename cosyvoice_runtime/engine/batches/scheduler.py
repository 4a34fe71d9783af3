"""The order in which chunks are computed, most urgent first, on one device or several."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial

from cosyvoice_runtime.engine.batches.chunk import WaveChunk, WaveOutcome
from cosyvoice_runtime.engine.batches.job import LaunchedBatch, Share, WaitingJobs, WaveJob
from cosyvoice_runtime.engine.batches.pages import PageAdmission
from cosyvoice_runtime.engine.batches.planner import BatchPlanner
from cosyvoice_runtime.engine.batches.service import WaveService
from cosyvoice_runtime.engine.batches.worker import Assignment, Worker, soonest, workers_of
from cosyvoice_runtime.engine.runtimes.runtime import WaveRuntime
from cosyvoice_runtime.errors import CosyVoiceError, WithdrawnError
from cosyvoice_runtime.gpu.cuda_errors import LAST_WORDS_S, end_process, is_fatal
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu
from cosyvoice_runtime.metrics import trace

logger = logging.getLogger(__name__)


class WaveScheduler:
    """Threads that run the chunks of a :class:`WaveService` in batches, the most urgent first.

    One thread launches the batches. On a GPU one more for each worker waits for their ends, so that the GPU
    may have the next batch before it has done the last; on a CPU a batch has ended when it is launched.
    Chunks of one utterance are computed in the order they came; a cancel withdraws the earlier ones. Every
    accepted chunk gets an outcome, whatever goes wrong; if the GPU is lost, all get an error and the process
    ends.

    Args:
        service: service over the runtime's networks, its concurrent ones included.
        runtime: computes batches.
        max_waiting: most chunks that may wait to begin an utterance, and as many of utterances in progress.
        batch_s: seconds that a batch of a CPU should last at most, because chunks that come meanwhile wait.
        gpu: how the device is shared.
        pages: decides which utterances begin and go on; None where there are pages for all.
        on_waiting: called with the number of chunks that wait, whenever it has changed; raises nothing.
        on_batch: called with the seconds that a batch took, and whether its chunks were urgent; raises
            nothing.
        clock: monotonic seconds.
        end_process: called with the reason why this process can't go on.
    """

    def __init__(
        self,
        service: WaveService,
        runtime: WaveRuntime,
        max_waiting: int,
        batch_s: float,
        gpu: SharedGpu | None = None,
        pages: PageAdmission | None = None,
        on_waiting: Callable[[int], None] = lambda _: None,
        on_batch: Callable[[float, bool], None] = lambda *_: None,
        clock: Callable[[], float] = time.monotonic,
        end_process: Callable[[str], None] = end_process,
    ) -> None:
        self._service = service
        self._gpu = gpu or SharedGpu()
        self._at_work = runtime.at_work
        self._on_gpu = runtime.on_gpu
        self._unit_tokens = runtime.token2wav.unit_tokens
        self._workers = workers_of(runtime, min(runtime.batches_at_once, self._gpu.turns_at_once))
        self._planner = BatchPlanner(
            self._workers, self._gpu, runtime.on_gpu, self._unit_tokens, batch_s, pages, service.speakers
        )
        self._jobs = WaitingJobs(max_waiting, self._begins, on_waiting)
        self._on_batch = on_batch
        self._clock = clock
        self._end_process = end_process
        self._wake = threading.Condition()
        self._closed = False
        self._refusal: CosyVoiceError | None = None
        self._threads = [threading.Thread(target=self._launch_batches, name="token2wav")]
        for worker in self._workers if runtime.on_gpu else ():
            ends = threading.Thread(target=self._finish_batches, args=[worker], name="token2wav-ends")
            self._threads.append(ends)
        service.queued_in(self._queued)
        for thread in self._threads:
            thread.start()

    def submit(self, chunk: WaveChunk, deliver: Callable[[WaveOutcome], None]) -> None:
        """Queue a chunk; ``deliver`` is called with its outcome from a thread of the scheduler.

        A cancel ends the utterance's waiting chunks before it returns, from the calling thread.

        Raises:
            InvalidInput: the chunk says something impossible.
            OverloadedError: too many wait.
            CosyVoiceError: the GPU is lost, or the scheduler has ended.
        """
        trace.note("token2wav has the chunk", chunk.utterance_id)
        chunk.check()
        if chunk.cancel:
            self._withdraw(chunk.utterance_id)
        with self._wake:
            if self._refusal is not None:
                raise copy.copy(self._refusal)
            due, number = self._clock() + chunk.cushion_s, self._service.number(chunk.utterance_id)
            job = WaveJob(chunk, deliver, due, number)
            if self._begins(job):
                chunk.check_opening()
            self._jobs.add(job)
            self._wake.notify()

    @property
    def load(self) -> int:
        """Number of utterances in progress and chunks that wait."""
        return len(self._service) + len(self._jobs)

    def holds(self, utterance_id: str) -> bool:
        """Whether chunks of this utterance wait here or it is in progress; does not wait for a batch."""
        # The jobs are looked at first: a chunk's job goes only after its utterance is open.
        with self._wake:
            if self._jobs.of(utterance_id):
                return True
        return utterance_id in self._service

    def close(self) -> None:
        """Compute what waits, then stop and free everything."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        for thread in self._threads:
            thread.join()
        self._service.close()

    def _begins(self, job: WaveJob) -> bool:
        return job.begins and job.utterance_id not in self._service

    def _withdraw(self, utterance_id: str) -> None:
        """End an utterance's chunks; one that is being computed ends with its batch."""
        with self._wake:
            waiting = self._jobs.of(utterance_id)
        self._end_all(waiting, WithdrawnError("the utterance was cancelled before this was computed"))

    def _launch_batches(self) -> None:
        try:
            with self._at_work():
                while self._serve_next():
                    pass  # This frame holds no jobs, whose audio would stay until the next ones.
        except BaseException as error:
            self._give_up(error)
        finally:
            for worker in self._workers:
                worker.batches.put(None)

    def _serve_next(self) -> bool:
        work = self._next_work()
        if work is not None:
            self._serve(*work)
        return work is not None

    def _next_work(self) -> tuple[Worker, list[WaveJob]] | None:
        """Wait until a batch may be launched; return its worker and that worker's jobs, or None at the
        end."""
        while True:
            with self._wake:
                if self._closed and not self._jobs.first_of_each():
                    self._refusal = self._refusal or CosyVoiceError("token2wav has ended")
                    return None
                now = self._clock()
                assigned, longest_s = self._assigned(now)
                delay_s, worker = soonest(assigned, now)
                if worker is not None and delay_s is not None and delay_s <= 0:
                    return worker, assigned[worker]
                wait_s = longest_s if delay_s is None else min(delay_s, longest_s)
                self._wake.wait(min(wait_s, threading.TIMEOUT_MAX))

    def _queued(self) -> set[str]:
        """Utterances whose chunks have no outcome yet."""
        with self._wake:
            return self._jobs.utterances()

    def _jobs_of(self, worker: Worker) -> list[WaveJob]:
        with self._wake:
            assigned, _ = self._assigned(self._clock())
            return assigned.get(worker, [])

    def _assigned(self, now: float) -> tuple[Assignment, float]:
        """Each worker's jobs, and the seconds for which they stay so if nothing happens."""
        ready = [job for job in self._jobs.first_of_each() if not job.awaits_voice]
        for job in ready:
            job.number = self._service.number(job.utterance_id)
        new = {job for job in ready if self._begins(job)}
        return self._planner.assign(ready, new, len(self._service), now, ends=self._closed)

    def _serve(self, worker: Worker, jobs: list[WaveJob]) -> None:
        """Launch a batch. An error that no single chunk caused is the outcome of all jobs that were looked
        at."""
        try:
            self._forget([job for job in jobs if job.chunk.cancel])
            if all(job.chunk.cancel for job in jobs):
                return
            with ExitStack() as held:
                if held.enter_context(self._gpu.turn()):
                    jobs = self._jobs_of(worker)  # Jobs may have come while others had the GPU.
                known = self._with_voices(job for job in jobs if not job.chunk.cancel)
                shares = self._planner.shares(worker, known, self._clock())
                if shares:
                    self._launch(worker, shares, held)
        except Exception as error:
            if is_fatal(error):
                raise
            logger.exception("a batch of token2wav failed")
            self._end_all(jobs, error)

    def _forget(self, cancels: list[WaveJob]) -> None:
        """End cancelled utterances, which no batch computes."""
        outcomes = self._service.run([job.chunk for job in cancels]) if cancels else []
        for job, outcome in zip(cancels, outcomes, strict=True):
            self._end(job, outcome)

    def _with_voices(self, jobs: Iterable[WaveJob]) -> list[WaveJob]:
        """Note which jobs need a voice, and sort them by urgency.

        Jobs that wait for another scheduler's voice are left out; a job whose voice fails to be looked up
        ends.
        """
        known = []
        for job in jobs:
            job.awaits_voice = True  # The answer may come before the call returns.
            try:
                if self._service.awaits_voice(job.chunk, partial(self._voice_came, job)):
                    continue
                job.needs_voice = self._service.computes_voice(job.chunk)
            except Exception as error:
                self._end(job, error)
            else:
                job.awaits_voice = False
                known.append(job)
        return self._planner.in_order(known, self._clock())

    def _voice_came(self, job: WaveJob) -> None:
        """Wake the job: a voice has come or failed, which its next batch finds out."""
        with self._wake:
            job.awaits_voice = False
            self._wake.notify()

    def _launch(self, worker: Worker, shares: list[Share], held: ExitStack) -> None:
        trace.note("its batch begins", *(share.job.utterance_id for share in shares))
        begun_s = self._clock()
        if worker.urgent and any(share.job.begins for share in shares):
            held.enter_context(self._gpu.first_chunk(len(self._service)))
        with worker.at_launch():
            chunks = [share.job.launch(share.tokens) for share in shares]
            outcomes = self._service.launch(chunks, worker.number)
        batch = LaunchedBatch(shares, outcomes, shares[0].job.needs_voice, held.pop_all())
        try:
            trace.note("its batch is launched", *batch.names())
            with self._wake:
                worker.begin(batch, self._unit_tokens, begun_s, self._clock())
        except BaseException:
            batch.held.close()  # Otherwise steps would wait for ever.
            raise
        if not self._on_gpu:
            self._finish_next(worker)

    def _finish_batches(self, worker: Worker) -> None:
        try:
            while self._finish_next(worker):
                pass  # This frame holds no batch, whose memory would stay until the next one.
        except BaseException as error:
            self._give_up(error)

    def _finish_next(self, worker: Worker) -> bool:
        batch = worker.batches.get()
        if batch is not None:
            self._finish(worker, batch)
        return batch is not None

    def _finish(self, worker: Worker, batch: LaunchedBatch) -> None:
        """Wait for a batch and answer the chunks that it ends."""
        try:
            outcomes = batch.outcomes()
            trace.note("its batch ends", *batch.names())
            for outcome in outcomes:
                if isinstance(outcome, Exception) and is_fatal(outcome):
                    raise outcome
        except Exception as error:
            if is_fatal(error):
                raise
            logger.exception("a batch of token2wav failed")
            outcomes = [error] * len(batch.shares)
        finally:
            self._note_end(worker, batch)
        try:
            for share, outcome in zip(batch.shares, outcomes, strict=True):
                whole = share.job.take(outcome)
                if whole is not None:
                    self._end(share.job, whole)
        finally:  # From here on another worker may have the utterances.
            with self._wake:
                worker.let_go(batch)
                self._wake.notify()

    def _note_end(self, worker: Worker, batch: LaunchedBatch) -> None:
        batch.held.close()
        with self._wake:
            took_s = worker.pace.ended(self._clock())
            self._planner.learn(worker, batch, took_s)
            self._wake.notify()
        self._on_batch(took_s, worker.urgent)

    def _end(self, job: WaveJob, outcome: WaveOutcome) -> None:
        with self._wake:
            if not self._jobs.remove(job):
                return
        try:
            job.deliver(outcome)
        except Exception:
            logger.exception("an outcome of utterance %s could not be delivered", job.utterance_id)

    def _end_all(self, jobs: Iterable[WaveJob], error: Exception) -> None:
        for job in jobs:
            self._end(job, error)

    def _give_up(self, error: BaseException) -> None:
        """Answer all jobs, then end the process: nothing can be computed here any more."""
        logger.critical("token2wav can't go on", exc_info=error)
        reason = f"token2wav can't go on ({type(error).__name__}); its process is started anew"
        with self._wake:
            self._refusal = CosyVoiceError(reason)
            waiting = list(self._jobs)
        # A thread of its own answers: a reader that takes no answer must not keep the process.
        answering = threading.Thread(target=self._end_all, args=(waiting, self._refusal), daemon=True)
        try:
            answering.start()
        except RuntimeError:  # The machine has no thread to spare.
            self._end_all(waiting, self._refusal)
        else:
            answering.join(LAST_WORDS_S)
        with self._wake:
            self._wake.notify()  # A thread in `close` waits for the launching thread.
        self._end_process(reason)

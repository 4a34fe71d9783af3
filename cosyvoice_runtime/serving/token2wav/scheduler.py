"""The order in which chunks are computed, most urgent first, on one device or several."""

from __future__ import annotations

import copy
import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial

from cosyvoice_runtime.cuda_errors import end_process, is_fatal
from cosyvoice_runtime.errors import CosyVoiceError, OverloadedError, WithdrawnError
from cosyvoice_runtime.metrics import moments
from cosyvoice_runtime.serving.token2wav.chunk import WaveChunk
from cosyvoice_runtime.serving.token2wav.gpu_turn import (
    GPU_BLOCKS,
    plan_hurried_turn,
    plan_turn_of_gpu,
    urgent,
)
from cosyvoice_runtime.serving.token2wav.lane import LaneJobs, TurnLane, by_lane, changes_in, jobs_of, soonest
from cosyvoice_runtime.serving.token2wav.pace import TurnPace
from cosyvoice_runtime.serving.token2wav.runtime import TurnsBeside
from cosyvoice_runtime.serving.token2wav.service import WaveOutcome, WaveService
from cosyvoice_runtime.serving.token2wav.turn import (
    DUE_S,
    LaunchedTurn,
    Share,
    TurnBudget,
    WaveJob,
    in_order,
    plan_turn,
)

logger = logging.getLogger(__name__)

LOOK_S = 0.1
"""After which those who wait for pages look again: another scheduler's utterances may have ended."""
LOOK_FOR_FIRST_S = 0.002
"""The same of those who wait for somebody's first chunk, which may not come after all."""


class WaveScheduler:
    """Threads that run the chunks of a :class:`WaveService` in turns, the most urgent first.

    One launches the turns, another waits for what comes of them, so that a GPU may have the next turn before
    it has done the last. There may be turns beside, in lanes of their own, each with a thread that waits.
    Chunks of one utterance are computed in the order they came; a cancel withdraws those that came before it.
    Every chunk that was taken gets an outcome, whatever goes wrong; if the GPU is lost, all get an error and
    the process ends.

    Args:
        max_rows: utterances in a turn.
        max_waiting: chunks that may wait to begin an utterance, and as many of utterances in progress.
        turn_s: seconds that a turn should last at most; whoever comes meanwhile waits for its end.
        unit_tokens: at whose multiples a chunk may be cut.
        on_waiting: told the number of chunks that wait, whenever it has changed.
        on_turn: told the seconds that a turn took, and whether it was in a lane for hurried chunks.
        on_gpu: many short rows cost little more than a few.
        at_work: context that the thread which launches works in.
        turns_at_once: turns that may be under way, for a GPU that computes them by itself one after another.
        turns_overlap: one begins beside the end of the one before.
        at_turn: context of a turn from its launch to its end, on a GPU that others compute on.
        of_few: of the service's lane 0, as `TurnsBeside.of_few`.
        beside: what computes turns at the same time, by the numbers of the service's lanes from 1 on.
        few: told the utterances in progress; whether they are few, where lanes depend on it.
        puts_off: told the same, and whether a first chunk waits; whether chunks that can wait should.
        held: told jobs that would begin utterances, and the clock's time; those of them that have to wait.
        soon_s: whoever runs dry within it comes first, and then the others as their utterances came.
        clock: monotonic seconds.
        end_process: told why this process can't go on.
    """

    def __init__(
        self,
        service: WaveService,
        max_rows: int,
        max_waiting: int,
        turn_s: float,
        unit_tokens: int,
        on_waiting: Callable[[int], None] = lambda _: None,
        on_turn: Callable[[float, bool], None] = lambda *_: None,
        on_gpu: bool = False,
        at_work: Callable[[], AbstractContextManager[object]] = nullcontext,
        turns_at_once: int = 1,
        turns_overlap: bool = False,
        at_turn: Callable[[], AbstractContextManager[object]] = nullcontext,
        of_few: bool | None = None,
        beside: Sequence[TurnsBeside] = (),
        few: Callable[[int], bool] = lambda _: False,
        puts_off: Callable[[int, bool], bool] = lambda *_: False,
        held: Callable[[Collection[WaveJob], float], Collection[WaveJob]] = lambda *_: (),
        soon_s: Callable[[], float] = lambda: math.inf,
        clock: Callable[[], float] = time.monotonic,
        end_process: Callable[[str], None] = end_process,
    ) -> None:
        self._service = service
        self._max_waiting = max_waiting
        self._unit_tokens = unit_tokens
        self._on_gpu = on_gpu
        self._on_waiting = on_waiting
        self._on_turn = on_turn
        self._at_work = at_work
        self._at_turn = at_turn
        self._few = few
        self._puts_off = puts_off
        self._held = held
        self._soon_s = soon_s
        self._clock = clock
        self._end_process = end_process
        self._jobs: list[WaveJob] = []
        self._wake = threading.Condition()
        self._closed = False
        self._refusal: CosyVoiceError | None = None
        self._budget = TurnBudget(turn_s, unit_tokens * (GPU_BLOCKS if on_gpu else 1))
        self._lanes = [
            TurnLane(0, max_rows, TurnPace(turns_at_once, turns_overlap), of_few=of_few),
            *(TurnLane.of(n, turns, turns_at_once, turns_overlap) for n, turns in enumerate(beside, 1)),
        ]
        self._threads = [threading.Thread(target=self._launch_turns, name="token2wav")]
        for lane in self._lanes:
            ends = threading.Thread(target=self._finish_turns, args=[lane], name="token2wav-ends")
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
        moments.note("token2wav has the chunk", chunk.utterance_id)
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
            self._require_place(job)
            self._jobs.append(job)
            self._tell_waiting()
            self._wake.notify()

    @property
    def load(self) -> int:
        """Utterances in progress and chunks that wait."""
        return len(self._service) + len(self._jobs)

    def holds(self, utterance_id: str) -> bool:
        """Whether chunks of this utterance wait here or it is in progress. Does not wait for a turn."""
        # In this order: a chunk's job goes only after its utterance is open.
        with self._wake:
            if any(job.chunk.utterance_id == utterance_id for job in self._jobs):
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

    def _require_place(self, job: WaveJob) -> None:
        """Utterances that wait to begin take no place of those in progress.

        Raises:
            OverloadedError: too many wait.
        """
        if len(self._jobs) < self._max_waiting or job.chunk.cancel:
            return
        begins = self._begins(job)
        alike = sum(self._begins(other) == begins for other in self._jobs)
        if alike >= self._max_waiting:
            raise OverloadedError(f"{alike} chunks wait, the limit; try again later")

    def _begins(self, job: WaveJob) -> bool:
        return job.begins and job.chunk.utterance_id not in self._service

    def _withdraw(self, utterance_id: str) -> None:
        """End an utterance's chunks; of one that is being computed, the turn under way is the last."""
        with self._wake:
            waiting = [job for job in self._jobs if job.chunk.utterance_id == utterance_id]
        self._end_all(waiting, WithdrawnError("the utterance was cancelled before this was computed"))

    def _launch_turns(self) -> None:
        try:
            with self._at_work():
                while (lane := self._next_lane()) is not None:
                    self._serve(lane)
        except BaseException as error:
            self._give_up(error)
        finally:
            for each in self._lanes:
                each.turns.put(None)

    def _next_lane(self) -> TurnLane | None:
        """Wait until a turn may be launched; its lane, or None at the end."""
        with self._wake:
            while True:
                if self._closed and not self._first_jobs():
                    self._refusal = self._refusal or CosyVoiceError("token2wav has ended")
                    return None
                now = self._clock()
                divided, longest_s = self._divided(now)
                delay_s, lane = soonest(divided, now)
                if delay_s is not None and delay_s <= 0:
                    return lane
                self._wake.wait(min(threading.TIMEOUT_MAX if delay_s is None else delay_s, longest_s))

    def _queued(self) -> set[str]:
        """Utterances whose chunks have no outcome yet."""
        with self._wake:
            return {job.chunk.utterance_id for job in self._jobs}

    def _first_jobs(self) -> list[WaveJob]:
        """The first job of each utterance that is not all launched."""
        with self._wake:
            first: dict[str, WaveJob] = {}
            for job in self._jobs:
                if job.waits:
                    first.setdefault(job.chunk.utterance_id, job)
        return list(first.values())

    def _ready_jobs(self) -> list[WaveJob]:
        """Of these, those whose voice nobody else computes now."""
        return [job for job in self._first_jobs() if not job.awaits_voice]

    def _jobs_of(self, lane: TurnLane) -> list[WaveJob]:
        with self._wake:
            divided, _ = self._divided(self._clock())
            return jobs_of(lane, divided)

    def _divided(self, now: float) -> tuple[LaneJobs, float]:
        """Each lane's jobs, and for how long if nothing happens; at the end nobody waits for pages."""
        ready = self._ready_jobs()
        held = self._held([] if self._closed else [job for job in ready if self._begins(job)], now)
        jobs = [job for job in ready if job not in held]
        again_s = LOOK_S if held else threading.TIMEOUT_MAX
        speaking = len(self._service)
        pressing = [job for job in jobs if not job.can_wait(now)]
        some_can_wait = len(pressing) < len(jobs) and not self._closed
        if some_can_wait and self._puts_off(speaking, any(job.begins for job in pressing)):
            jobs, again_s = pressing, LOOK_FOR_FIRST_S
        divided = by_lane(jobs, self._lanes, now, self._unit_tokens, self._few(speaking))
        return divided, min(changes_in(jobs, self._lanes, now), again_s)

    def _serve(self, lane: TurnLane) -> None:
        """Launch a turn. An error of no single chunk is the outcome of all that were looked at."""
        jobs = self._jobs_of(lane)
        try:
            self._forget([job for job in jobs if job.chunk.cancel])
            if all(job.chunk.cancel for job in jobs):
                return
            with ExitStack() as held:
                held.enter_context(self._at_turn())
                jobs = self._jobs_of(lane)  # with those who came while others had the GPU
                shares = self._shares(lane, self._with_voices(job for job in jobs if not job.chunk.cancel))
                if shares:
                    self._launch(lane, shares, held)
        except Exception as error:
            if is_fatal(error):
                raise
            logger.exception("a turn of token2wav failed")
            self._end_all(jobs, error)

    def _forget(self, cancels: list[WaveJob]) -> None:
        """Cancels, which are no part of a turn: there is nothing to compute."""
        outcomes = self._service.run([job.chunk for job in cancels]) if cancels else []
        for job, outcome in zip(cancels, outcomes, strict=True):
            self._end(job, outcome)

    def _with_voices(self, jobs: Iterable[WaveJob]) -> list[WaveJob]:
        """These jobs, most urgent first, once it is known who needs a voice.

        Without those that wait for another scheduler's, and one that can't be asked ends.
        """
        known = []
        for job in jobs:
            job.awaits_voice = True  # before it asks: it may be told at once
            try:
                if self._service.awaits_voice(job.chunk, partial(self._voice_came, job)):
                    continue
                job.needs_voice = self._service.computes_voice(job.chunk)
            except Exception as error:
                self._end(job, error)
            else:
                job.awaits_voice = False
                known.append(job)
        return in_order(known, self._clock() + self._soon_s())

    def _voice_came(self, job: WaveJob) -> None:
        """Or did not: the job's next turn finds out."""
        with self._wake:
            job.awaits_voice = False
            self._wake.notify()

    def _shares(self, lane: TurnLane, jobs: list[WaveJob]) -> list[Share]:
        """What the next turn computes; a new voice is computed in a turn of its own, in lane 0."""
        if jobs and jobs[0].needs_voice and not lane.number:
            return self._plan(lane, jobs[:1])
        known = [job for job in jobs if not job.needs_voice]
        return self._plan(lane, known) if known else []

    def _plan(self, lane: TurnLane, jobs: list[WaveJob]) -> list[Share]:
        if lane.hurried:
            return plan_hurried_turn(jobs, lane.rows, self._unit_tokens)
        if not self._on_gpu:
            return plan_turn(jobs, lane.rows, self._budget.tokens, self._unit_tokens)
        now = self._clock()
        soon_s = self._soon_s()
        return plan_turn_of_gpu(
            urgent(jobs, now), lane.rows, self._budget.tokens, self._unit_tokens, now,
            DUE_S if soon_s == math.inf else soon_s,
        )  # fmt: skip

    def _launch(self, lane: TurnLane, shares: list[Share], held: ExitStack) -> None:
        moments.note("its turn begins", *(share.job.chunk.utterance_id for share in shares))
        begun_s = self._clock()
        with lane.at_launch():
            outcomes = self._service.launch([share.job.launch(share.tokens) for share in shares], lane.number)
        turn = LaunchedTurn(shares, outcomes, shares[0].job.needs_voice, held.pop_all())
        moments.note("its turn is launched", *turn.names())
        with self._wake:
            lane.begin(turn, self._unit_tokens, begun_s, self._clock())

    def _finish_turns(self, lane: TurnLane) -> None:
        try:
            while self._finish_next(lane):
                pass  # without a turn at hand, whose networks' memory would stay until the next one
        except BaseException as error:
            self._give_up(error)

    def _finish_next(self, lane: TurnLane) -> bool:
        turn = lane.turns.get()
        if turn is not None:
            self._finish(lane, turn)
        return turn is not None

    def _finish(self, lane: TurnLane, turn: LaunchedTurn) -> None:
        """Wait for a turn and answer those whose chunks it ends."""
        try:
            outcomes = turn.outcomes()
            moments.note("its turn ends", *turn.names())
            for outcome in outcomes:
                if isinstance(outcome, Exception) and is_fatal(outcome):
                    raise outcome
        except Exception as error:
            if is_fatal(error):
                raise
            logger.exception("a turn of token2wav failed")
            outcomes = [error] * len(turn.shares)
        finally:
            self._note_end(lane, turn)
        try:
            for share, outcome in zip(turn.shares, outcomes, strict=True):
                whole = share.job.take(outcome)
                if whole is not None:
                    self._end(share.job, whole)
        finally:  # only now: another lane's thread may answer what follows
            with self._wake:
                lane.let_go(turn)
                self._wake.notify()

    def _note_end(self, lane: TurnLane, turn: LaunchedTurn) -> None:
        turn.held.close()
        with self._wake:
            took_s = lane.pace.ended(self._clock())
            if not (lane.hurried or turn.of_new_voice):
                self._budget.learn(turn.tokens(self._on_gpu), took_s)
            self._wake.notify()
        self._on_turn(took_s, lane.hurried)

    def _end(self, job: WaveJob, outcome: WaveOutcome) -> None:
        with self._wake:
            if job not in self._jobs:
                return
            self._jobs.remove(job)
            self._tell_waiting()
        try:
            job.deliver(outcome)
        except Exception:
            logger.exception("an outcome of utterance %s could not be delivered", job.chunk.utterance_id)

    def _end_all(self, jobs: Iterable[WaveJob], error: Exception) -> None:
        for job in jobs:
            self._end(job, error)

    def _give_up(self, error: BaseException) -> None:
        """Answer everybody, then end the process: nothing can be computed here any more."""
        logger.critical("token2wav can't go on", exc_info=error)
        reason = f"token2wav can't go on ({type(error).__name__}); its process is started anew"
        with self._wake:
            self._refusal = CosyVoiceError(reason)
            waiting = list(self._jobs)
        self._end_all(waiting, self._refusal)
        self._end_process(reason)

    def _tell_waiting(self) -> None:
        try:
            self._on_waiting(len(self._jobs))
        except Exception:
            logger.exception("the number of waiting chunks could not be told")

"""Whose chunks the next turn of each lane computes, and how much of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from cosyvoice_runtime.engine.batches.gpu_turn import plan_hurried_turn, plan_turn_of_gpu
from cosyvoice_runtime.engine.batches.lane import LaneJobs, TurnLane, by_lane, changes_in
from cosyvoice_runtime.engine.batches.openings import Openings
from cosyvoice_runtime.engine.batches.service import Speaker
from cosyvoice_runtime.engine.batches.turn import (
    LaunchedTurn,
    Share,
    TurnBudget,
    WaveJob,
    in_order,
    plan_turn,
)
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu

BLOCKS_OF_ROW = 2
"""Blocks of a GPU's turn for each of its rows. With 64 clients of an H200 lengths that are learned, up to 130
ms, make 337 s of speech a second and this 339."""

LOOK_S = 0.1
"""After which those who wait for pages look again: another scheduler's utterances may have ended."""


class TurnPlanner:
    """
    Args:
        lanes: by their numbers.
        gpu: how the device is shared.
        on_gpu: many short rows cost little more than a few.
        unit_tokens: at whose multiples a chunk may be cut.
        turn_s: seconds that a turn of a CPU should last at most; whoever comes meanwhile waits for its end.
        openings: which utterances may begin and go on; None where there are pages for all.
        speakers: utterances in progress, the earliest first.
    """

    def __init__(
        self,
        lanes: Sequence[TurnLane],
        gpu: SharedGpu,
        on_gpu: bool,
        unit_tokens: int,
        turn_s: float,
        openings: Openings | None = None,
        speakers: Callable[[], Sequence[Speaker]] = tuple,
    ) -> None:
        self._lanes, self._gpu, self._on_gpu, self._openings = lanes, gpu, on_gpu, openings
        self._unit_tokens, self._speakers = unit_tokens, speakers
        self._budget = TurnBudget(turn_s, unit_tokens)
        self._took_s = 0.0

    def divided(
        self, jobs: Sequence[WaveJob], new: Collection[WaveJob], speaking: int, now: float, ends: bool = False
    ) -> tuple[LaneJobs, float]:
        """Each lane's jobs, and for how many seconds if nothing happens.

        Args:
            jobs: at most one of each utterance.
            new: those of them that would begin one.
            speaking: utterances in progress.
            now: by the scheduler's clock.
            ends: nobody waits for pages any more.
        """
        held = self._without_pages(jobs, new, now, ends)
        able = [job for job in jobs if job not in held]
        again_s = LOOK_S if held else math.inf
        divided = by_lane(able, self._lanes, now, self._unit_tokens, self._gpu.few(speaking))
        return divided, min(changes_in(able, self._lanes, now), again_s)

    def _without_pages(
        self, jobs: Sequence[WaveJob], new: Collection[WaveJob], now: float, ends: bool
    ) -> Collection[WaveJob]:
        """Those that wait for pages."""
        if self._openings is None:
            return ()
        held = self._openings.held(() if ends else new, now)
        if self._on_gpu and not ends:
            idle = not any(lane.pace.busy for lane in self._lanes)
            held |= self._openings.saving(jobs, self._speakers, self._unit_tokens, now, idle)
        return held

    def in_order(self, jobs: Sequence[WaveJob], now: float) -> list[WaveJob]:
        """The most urgent first."""
        return in_order(jobs, now + self._soon_s())

    def shares(self, lane: TurnLane, jobs: Sequence[WaveJob], now: float) -> list[Share]:
        """What the next turn computes; a new voice is computed in a turn of its own, in lane 0.

        Args:
            jobs: in order.
        """
        if jobs and jobs[0].needs_voice and not lane.number:
            return self._plan(lane, jobs[:1], now)
        known = [job for job in jobs if not job.needs_voice]
        return self._plan(lane, known, now) if known else []

    def learn(self, lane: TurnLane, turn: LaunchedTurn, took_s: float) -> None:
        """Note how long a turn took."""
        if not (lane.hurried or turn.of_new_voice):
            self._budget.learn(turn.padded_tokens, took_s)
            self._took_s = took_s

    def _plan(self, lane: TurnLane, jobs: Sequence[WaveJob], now: float) -> list[Share]:
        if lane.hurried:
            return plan_hurried_turn(jobs, lane.rows, self._unit_tokens)
        if not self._on_gpu:
            return plan_turn(jobs, lane.rows, self._budget.tokens, self._unit_tokens)
        most = BLOCKS_OF_ROW * lane.rows
        return plan_turn_of_gpu(jobs, lane.rows, most, self._unit_tokens, now, self._took_s)

    def _soon_s(self) -> float:
        """Within which whoever runs dry comes before those who came earlier; on a CPU all do."""
        return math.inf if self._openings is None or not self._on_gpu else self._openings.soon_s()

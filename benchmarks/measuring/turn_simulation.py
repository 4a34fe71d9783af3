"""token2wav's turns on a GPU without the GPU: the product plans them, their lengths are those of an H200."""

from __future__ import annotations

import heapq
import itertools
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cosyvoice_runtime.engine.batches.chunk import WaveChunk
from cosyvoice_runtime.engine.batches.job import LaunchedBatch, Share, WaitingJobs, WaveJob
from cosyvoice_runtime.engine.batches.pages import PageAdmission
from cosyvoice_runtime.engine.batches.planner import BatchPlanner
from cosyvoice_runtime.engine.batches.utterances import Speaker
from cosyvoice_runtime.engine.batches.worker import Pace, Worker, soonest
from cosyvoice_runtime.engine.runtimes.torch_graphs import URGENT_ROWS
from cosyvoice_runtime.gpu.partitions.division import FIRST_LANES_OF_FEW
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu
from cosyvoice_runtime.settings.token2wav import GPU_BATCH
from measuring.simulated_pages import SimulatedPages

BLOCK, TOKEN_RATE = 25, 25
FIRST_TOKENS, FIRST_HEARD_S = 19, 0.22
"""Of CosyVoice2 with the product's defaults."""
VARY, LAUNCHES_VARY = 0.17, 0.5
"""Standard deviation of the time that turns of one size and past take, and of launches (of its logarithm)."""
NEXT_CHUNK_S, SENT_S = 0.009, 0.008
"""From a chunk's end until the next one is in token2wav, and until its client has it."""
WARM_UP_S = 3.0
"""Before anything counts."""


PAGES, PAGES_OF_VOICE = 1034, 8
"""Pages of an H200 with 140 GB, and of those the voice's."""
PART = 4
"""Blocks of a call that computes an utterance's lost pages again."""

Lengths = Callable[[random.Random], float]
"""Seconds of speech of an answer."""


def sentences(chance: random.Random) -> float:
    """As of the built-in ones."""
    return min(max(1.2, chance.gauss(10.9, 5.2)), 28.0)


PARTS, SECONDS = (0.0, 0.25, 0.5, 0.75, 0.95, 1.0), (0.8, 5.4, 8.3, 17.1, 30.5, 33.5)
"""Shares of the answers to the built-in texts by random weights, and how long those are at most; of 5,714."""


def spoken(chance: random.Random) -> float:
    """As a server with random weights answered the built-in ones."""
    return float(np.interp(chance.random(), PARTS, SECONDS))


def some_long(chance: random.Random) -> float:
    """The same on average, but one of ten has a minute."""
    return 60.0 if chance.random() < 0.1 else 5.4


LENGTHS: dict[str, Lengths] = {"sentences": sentences, "spoken": spoken, "some-long": some_long}


@dataclass(frozen=True)
class Division:
    """How a GPU is divided, and what that takes.

    Attributes:
        turns: milliseconds of a turn with 1, 2, 3 and 4 blocks, by rows; of 16 rows those with nothing
            spoken before.
        urgent: the same with 1 and 2 blocks, of urgent chunks.
        urgent_lanes: how many.
        first_tokens_s: from a request until its first chunk is in token2wav, on average.
        launch_ms: what a launch takes without rows, and what each row adds: one thread launches all turns.
    """

    turns: Mapping[int, Sequence[float]]
    urgent: Mapping[int, Sequence[float]]
    urgent_lanes: int
    first_tokens_s: float
    launch_ms: tuple[float, float]


PAST_MS, LONGEST_PAST_MS = (1.06, 1.06, 1.27, 1.47), (0.3, 0.48, 0.8, 1.11)
"""Time that each earlier second adds, for 1 to 4 blocks: of the mean of 16 rows, of the longest."""
OF_MANY = Division(
    {
        1: (19, 24, 29, 30),
        2: (23, 28, 33, 37),
        4: (28, 38, 46, 53),
        8: (34, 54, 70, 82),
        12: (38, 72, 95, 120),
        16: (40, 71, 100, 140),
    },
    {1: (35, 48), 2: (42, 55), 4: (44, 62)},
    urgent_lanes=1,
    first_tokens_s=0.072,
    launch_ms=(3.0, 0.37),
)
"""100 multiprocessors for turns, 32 for urgent chunks and the speech LM."""
OF_FEW = Division(
    {
        1: (20, 25.5, 30, 30),
        2: (25, 28, 33, 37),
        4: (31, 41, 50, 60),
        8: (41, 60, 80, 98),
        12: (46, 78, 105, 133),
        16: (47, 84, 115, 155),
    },
    {1: (30.5, 40), 2: (33, 43), 4: (36, 46)},
    urgent_lanes=FIRST_LANES_OF_FEW,
    first_tokens_s=0.036,
    launch_ms=(2.7, 0.3),
)
"""84 and 48."""


@dataclass(eq=False)
class Utterance:
    """
    Attributes:
        number: utterances before it.
        tokens: all that it has.
        asked_s: when it was asked for.
        position: tokens that are computed.
        plays_from_s: when its listener would have had to begin to be where he is now; None before the first
            chunk.
        late_s: the longest silence.
    """

    number: int
    tokens: int
    asked_s: float
    client: int | None
    position: int = 0
    heard_s: float = 0.0
    plays_from_s: float | None = None
    late_s: float = 0.0

    def cushion_s(self, now: float) -> float:
        """Seconds that are left to play."""
        return 0.0 if self.plays_from_s is None else max(self.plays_from_s + self.heard_s - now, 0.0)

    def take(self, tokens: int, now: float) -> None:
        """A chunk is there."""
        heard_s = tokens / TOKEN_RATE
        if self.plays_from_s is None:
            self.plays_from_s, heard_s = now, FIRST_HEARD_S
        elif (silence_s := now - self.plays_from_s - self.heard_s) > 0:
            self.late_s, self.plays_from_s = max(self.late_s, silence_s), self.plays_from_s + silence_s
        self.heard_s += heard_s
        self.position += tokens


@dataclass
class Figures:
    """
    Attributes:
        first_s: seconds to each first chunk.
        turns: lane 0's, by rows and blocks.
        filled: blocks that were computed in them, and that there was room for.
        lost: how often an utterance lost its pages.
    """

    tokens: int = 0
    first_s: list[float] = field(default_factory=list)
    utterances: int = 0
    late: int = 0
    turns: Counter[tuple[int, int]] = field(default_factory=Counter)
    filled: Counter[str] = field(default_factory=Counter)
    lost: int = 0


class Simulation:
    """Clients of a server of which token2wav's turns and launches take a GPU's and a host's time.

    Args:
        clients: at once, who ask again when they have their answer.
        rate: or requests a second, whatever becomes of them.
        seconds: after which all ends.
        pages: seconds of speech that the GPU has memory for.
        lengths: of answers.
    """

    def __init__(
        self,
        division: Division,
        seconds: float,
        clients: int = 0,
        rate: float = 0.0,
        seed: int = 0,
        pages: int = PAGES,
        lengths: Lengths = sentences,
    ) -> None:
        self._division, self._end_s = division, seconds
        self._chance = random.Random(seed)
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._now = 0.0
        self._looks_s = -1.0
        self._launches_until_s = 0.0
        urgent = range(1, 1 + division.urgent_lanes)
        self._workers = [
            Worker(0, GPU_BATCH, Pace(2, overlaps=True)),
            *(Worker(n, URGENT_ROWS, Pace(2, overlaps=True), urgent=True) for n in urgent),
        ]
        self._free_s: defaultdict[int, float] = defaultdict(float)
        self._gpu = SharedGpu()
        self._pages, self._lengths = SimulatedPages(pages, PAGES_OF_VOICE), lengths
        openings = PageAdmission(self._pages)  # type: ignore[arg-type]
        self._planner = BatchPlanner(self._workers, self._gpu, True, BLOCK, 0.0, openings, self._speakers)
        self._jobs = WaitingJobs(sys.maxsize, lambda job: job.begins, lambda _: None)
        self._speaking: dict[str, Utterance] = {}
        self.figures = Figures()
        for client in range(clients):
            self._at(0.005 * client, self._ask, client)
        due_s = 0.0
        while rate and (due_s := due_s + self._chance.expovariate(rate)) < seconds:
            self._at(due_s, self._ask, None)

    def run(self) -> Figures:
        """All of it."""
        while self._events:
            at_s, _, happens, arguments = heapq.heappop(self._events)
            if at_s > self._end_s:
                break
            self._now = at_s
            happens(*arguments)
        self.figures.lost = self._pages.lost
        return self.figures

    def _at(self, at_s: float, happens: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._events, (at_s, next(self._numbers), happens, arguments))

    def _ask(self, client: int | None) -> None:
        tokens = max(int(TOKEN_RATE * self._lengths(self._chance)), 1)
        utterance = Utterance(next(self._numbers), tokens, self._now, client)
        takes_s = self._division.first_tokens_s * self._chance.uniform(0.75, 1.25)
        self._at(self._now + takes_s, self._send, utterance, FIRST_TOKENS)

    def _send(self, utterance: Utterance, tokens: int) -> None:
        name, left = str(utterance.number), utterance.tokens - utterance.position
        count = left if left - tokens < BLOCK // 3 else tokens
        self._speaking[name] = utterance
        cushion_s = utterance.cushion_s(self._now)
        chunk = WaveChunk(
            utterance_id=name,
            tokens=[0] * count,
            position=utterance.position,
            last=count == left,
            voice_key="",
            noise_seed=0,
            cushion_s=cushion_s,
        )
        self._jobs.add(WaveJob(chunk, lambda _: None, self._now + cushion_s, utterance.number))
        self._go_on()

    def _look(self, at_s: float) -> None:
        if at_s == self._looks_s:
            self._go_on()

    def _go_on(self) -> None:
        """Launch what may be launched now, and look again when more may be."""
        while True:
            if (busy_s := self._launches_until_s - self._now) > 0:
                self._look_later(busy_s, busy_s)
                return
            jobs = self._jobs.first_of_each()
            new = {job for job in jobs if job.number not in self._pages.held}
            divided, longest_s = self._planner.assign(jobs, new, self._pages.speaking, self._now)
            delay_s, lane = soonest(divided, self._now)
            if lane is None or delay_s is None or delay_s > 0:
                self._look_later(delay_s, longest_s)
                return
            in_order = self._planner.in_order(divided.get(lane, []), self._now)
            self._launch(lane, self._planner.shares(lane, in_order, self._now))

    def _speakers(self) -> list[Speaker]:
        found = []
        for number, pages in sorted(self._pages.held.items()):
            done = self._speaking[str(number)].position // BLOCK
            found.append(Speaker(str(number), number, pages or 0, done if pages is None else 0))
        return found

    def _look_later(self, delay_s: float | None, longest_s: float) -> None:
        in_s = longest_s if delay_s is None else min(delay_s, longest_s)
        if in_s < self._end_s and not self._now < self._looks_s <= self._now + in_s:
            self._looks_s = self._now + max(in_s, 2e-4)
            self._at(self._looks_s, self._look, self._looks_s)

    def _launch(self, lane: Worker, shares: list[Share]) -> None:
        chunks = [share.job.launch(share.tokens) for share in shares]
        turn = LaunchedBatch(shares, list, of_new_voice=False, held=ExitStack())
        size = turn.size(BLOCK)
        assert size is not None
        self._launches_until_s = launched_s = self._now + self._launch_s(len(shares))
        lane.pace.launched(size, self._now, launched_s)
        lane.utterances.update(turn.names())
        takes_s = self._length_s(lane, chunks, size.units) * max(self._chance.gauss(1, VARY), 0.6)
        takes_s += self._again_s(shares, chunks)
        self._free_s[lane.number] = max(launched_s, self._free_s[lane.number]) + takes_s
        self._at(self._free_s[lane.number], self._end, lane, turn)
        if not lane.urgent and self._now > WARM_UP_S:
            self.figures.turns[len(shares), size.units] += 1
            self.figures.filled["blocks"] += sum(-(-share.tokens // BLOCK) for share in shares)
            self.figures.filled["room"] += len(shares) * size.units

    def _launch_s(self, rows: int) -> float:
        alone_ms, each_ms = self._division.launch_ms
        return (alone_ms + each_ms * rows) / 1e3 * self._chance.lognormvariate(0, LAUNCHES_VARY)

    def _length_s(self, lane: Worker, chunks: Sequence[WaveChunk], blocks: int) -> float:
        times = self._division.urgent if lane.urgent else self._division.turns
        rows = next(rows for rows in sorted(times) if rows >= len(chunks))
        place = min(blocks, len(times[rows])) - 1
        length_ms = times[rows][place]
        if rows == GPU_BATCH:
            past_s = [chunk.position / TOKEN_RATE for chunk in chunks]
            length_ms += PAST_MS[place] * sum(past_s) / len(past_s) + LONGEST_PAST_MS[place] * max(past_s)
        return length_ms / 1e3

    def _again_s(self, shares: Sequence[Share], chunks: Sequence[WaveChunk]) -> float:
        """Time to compute blocks again whose pages were lost."""
        under_way = {int(name) for lane in self._workers for name in lane.utterances}
        again_s = 0.0
        for (job, tokens), chunk in zip(shares, chunks, strict=True):
            blocks = self._pages.take(job.number, chunk.position // BLOCK, -(-tokens // BLOCK), under_way)
            again_s += -(-blocks // PART) * self._division.turns[1][PART - 1] / 1e3
        return again_s

    def _end(self, lane: Worker, turn: LaunchedBatch) -> None:
        took_s = lane.pace.ended(self._now)
        self._planner.learn(lane, turn, took_s)
        lane.let_go(turn)
        for job, tokens in turn.shares:
            self.figures.tokens += tokens if self._now > WARM_UP_S else 0
            if job.take(np.zeros(tokens, np.float32)) is not None:
                self._jobs.remove(job)
                self._deliver(job)
        self._go_on()

    def _deliver(self, job: WaveJob) -> None:
        utterance = self._speaking[job.chunk.utterance_id]
        if utterance.position == 0 and self._now > WARM_UP_S:
            self.figures.first_s.append(self._now + SENT_S - utterance.asked_s)
        utterance.take(len(job.chunk.tokens), self._now)
        if not job.chunk.last:
            cushion_s = utterance.cushion_s(self._now)
            blocks = 1 if cushion_s < 1 else min(int(1.7 * cushion_s), 4)  # as chunks of a GPU grow
            self._at(self._now + NEXT_CHUNK_S, self._send, utterance, blocks * BLOCK)
            return
        del self._speaking[job.chunk.utterance_id]
        self._pages.end(utterance.number, -(-utterance.tokens // BLOCK))
        self.figures.utterances += 1
        self.figures.late += utterance.late_s > 0.1
        if utterance.client is not None:
            self._at(self._now + 0.003, self._ask, utterance.client)

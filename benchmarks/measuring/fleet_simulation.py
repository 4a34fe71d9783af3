"""A fleet in simulated time: GPUs that utterances share, fronts that choose one, pods that come and go.

A GPU with k utterances in progress speaks as fast as the measured curve says, to each of them alike. Requests
come by themselves. First audio is drawn from what was measured with as many in progress. What a balancer, a
refusal asked again elsewhere, a lost server, an update or an autoscaler do follows from there.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np

from measuring.figures import PERCENTILES
from measuring.speed_curve import Curve, Floats

SHAPE, MEAN_S = 4.0, 11.0
"""Gamma distribution of the seconds of speech of an utterance."""
WARM_UP_S = 10.0
"""Before anything counts."""
LOOKS_S, TOLERANCE = 15.0, 0.1
"""How often an autoscaler looks, and by which share the pods must be too few before it does anything."""
DEVIATIONS = [NormalDist().inv_cdf(percentile / 100) for percentile in PERCENTILES]


@dataclass(frozen=True)
class Fleet:
    """
    Attributes:
        servers: with a GPU each.
        fronts: processes that choose servers, each for itself.
        places: utterances of a server at once.
        balancer: a name of :data:`BALANCERS`.
        tries: servers that a request is sent to before it is refused.
        pod_s: seconds until a server that is started serves.
        planned: utterances in progress a server at which an autoscaler starts one more; 0: there is none.
        most: servers that the autoscaler may have.
    """

    servers: int
    fronts: int = 6
    places: int = 128
    balancer: str = "round robin"
    tries: int = 3
    pod_s: float = 60.0
    planned: int = 0
    most: int = 100


@dataclass
class Figures:
    """
    Attributes:
        first_ms: of each request that was admitted: when it came, and its first audio.
        refused: requests that no server took.
        elsewhere: servers that refused and were not the last that was asked.
        resumed: utterances whose server was lost, and that another one took.
        cut: those that no other one took.
        most_in_progress: of one server.
        servers: when their number changed, and to how many that are asked.
    """

    first_ms: list[tuple[float, float]] = field(default_factory=list)
    refused: int = 0
    elsewhere: int = 0
    resumed: int = 0
    cut: int = 0
    most_in_progress: int = 0
    servers: list[tuple[float, int]] = field(default_factory=list)

    @property
    def refused_share(self) -> float:
        return self.refused / max(self.refused + len(self.first_ms), 1)

    def first_audio_ms(self, begin_s: float = 0.0, end_s: float = math.inf) -> tuple[float, float]:
        """p50 and p95 of those that came between two moments; NaN if none did."""
        values = [value for at_s, value in self.first_ms if begin_s <= at_s < end_s]
        if not values:
            return math.nan, math.nan
        p50, p95 = np.percentile(values, (50, 95))
        return float(p50), float(p95)


class Server:
    """
    A GPU whose utterances all advance alike.

    Args:
        speeds: seconds of speech a second with 0, 1, 2, ... utterances.
    """

    def __init__(self, speeds: Sequence[float]) -> None:
        self._speeds = speeds
        self._advanced_s, self._at_s = 0.0, 0.0
        self._ends: list[tuple[float, float]] = []
        self.asked = True
        self.state = 0

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def full(self) -> bool:
        return len(self._ends) == len(self._speeds) - 1

    def begin(self, now: float, length_s: float) -> None:
        """Admit an utterance."""
        self._advance(now)
        heapq.heappush(self._ends, (self._advanced_s + length_s, length_s))

    def end(self, now: float) -> None:
        """The utterance with the least left is spoken."""
        self._advance(now)
        heapq.heappop(self._ends)

    def drop(self) -> list[float]:
        """Lose all utterances; returns their lengths in seconds."""
        lengths_s = [length_s for _, length_s in self._ends]
        self._ends = []
        return lengths_s

    def next_end(self) -> float:
        """When the next one is spoken if none comes before."""
        return self._at_s + (self._ends[0][0] - self._advanced_s) * len(self) / self._speeds[len(self)]

    def _advance(self, now: float) -> None:
        if self._ends:
            self._advanced_s += (now - self._at_s) * self._speeds[len(self)] / len(self)
        self._at_s = now


class Simulation:
    """
    Requests, and everything that happens to servers meanwhile.

    Args:
        fleet: what it begins with.
        demand: seconds of speech asked for a second, at a moment.
        most_demand: that the demand never exceeds.
    """

    def __init__(
        self,
        curve: Curve,
        fleet: Fleet,
        demand: Callable[[float], float],
        most_demand: float,
        seconds: float,
        seed: int = 0,
    ) -> None:
        counts = np.arange(1.0, fleet.places + 1)
        self._speeds = [0.0, *map(float, curve.speeds(counts))]
        self._first_audio = curve.first_audio(counts)
        self._fleet, self._demand, self._most_demand, self._end_s = fleet, demand, most_demand, seconds
        self._chance = random.Random(seed)
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._now = 0.0
        self._starting = 0
        self.servers = [Server(self._speeds) for _ in range(fleet.servers)]
        self._turns = [self._chance.randrange(fleet.servers) for _ in range(fleet.fronts)]
        self._choose = BALANCERS[fleet.balancer]
        self.figures = Figures(servers=[(0.0, fleet.servers)])
        self._at(0.0, self._come)
        if fleet.planned:
            self._at(LOOKS_S, self._look)

    def run(self) -> Figures:
        """All of it."""
        while self._events:
            at_s, _, happens, arguments = heapq.heappop(self._events)
            if at_s > self._end_s:
                break
            self._now = at_s
            happens(*arguments)
        return self.figures

    def lose(self, at_s: float) -> Simulation:
        """A server is killed, and its utterances are spoken again by others; a new one comes after pod_s."""
        self._at(at_s, self._lose)
        return self

    def update(self, at_s: float, surge: bool) -> Simulation:
        """Each server is replaced, one by one; with surge a new one comes before an old one goes."""
        self._at(at_s, self._replace_next, [*self.servers], surge)
        return self

    def _at(self, at_s: float, happens: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), happens, arguments))

    def _come(self) -> None:
        wait_s = self._chance.expovariate(self._most_demand / MEAN_S)
        self._at(self._now + wait_s, self._come)
        if self._chance.random() * self._most_demand < self._demand(self._now):
            length_s = self._chance.gammavariate(SHAPE, MEAN_S / SHAPE)
            found = self._ask(length_s)
            if self._now < WARM_UP_S:
                return
            if found is None:
                self.figures.refused += 1
            else:
                self.figures.first_ms.append(
                    (self._now, first_ms(self._first_audio[len(found) - 1], self._chance))
                )

    def _ask(self, length_s: float) -> Server | None:
        """Send a request to one server after the other; returns who took it."""
        front, tried = self._chance.randrange(self._fleet.fronts), list[Server]()
        while len(tried) < self._fleet.tries:
            left = [server for server in self.servers if server.asked and server not in tried]
            chosen = self._choose(self, front, left)
            if chosen is None:
                break
            if not chosen.full:
                self.figures.elsewhere += len(tried)
                self._begin(chosen, length_s)
                return chosen
            tried.append(chosen)
        return None

    def _begin(self, server: Server, length_s: float) -> None:
        server.begin(self._now, length_s)
        self.figures.most_in_progress = max(self.figures.most_in_progress, len(server))
        self._wait_for(server)

    def _wait_for(self, server: Server) -> None:
        server.state += 1
        if len(server):
            self._at(server.next_end(), self._end, server, server.state)

    def _end(self, server: Server, state: int) -> None:
        if state == server.state:
            server.end(self._now)
            self._wait_for(server)

    def _lose(self) -> None:
        server = self._chance.choice([server for server in self.servers if server.asked])
        server.asked = False
        server.state += 1
        for length_s in server.drop():
            if self._ask(length_s) is None:
                self.figures.cut += 1
            else:
                self.figures.resumed += 1
        self._changed()
        self._start()

    def _start(self) -> None:
        self._starting += 1
        self._at(self._now + self._fleet.pod_s, self._serve)

    def _serve(self) -> None:
        self._starting -= 1
        self.servers.append(Server(self._speeds))
        self._changed()

    def _changed(self) -> None:
        self.servers = [server for server in self.servers if server.asked]
        self.figures.servers.append((self._now, len(self.servers)))

    def _replace_next(self, old: list[Server], surge: bool) -> None:
        if old:
            self._start()
            self._at(self._now + (self._fleet.pod_s if surge else 0.0), self._drain, old[0])
            self._at(self._now + self._fleet.pod_s, self._replace_next, old[1:], surge)

    def _drain(self, server: Server) -> None:
        """It takes no request, and speaks to its end what it has."""
        server.asked = False
        self._changed()

    def _look(self) -> None:
        self._at(self._now + LOOKS_S, self._look)
        wanted = sum(map(len, self.servers)) / self._fleet.planned
        there = len(self.servers) + self._starting
        if wanted > there * (1 + TOLERANCE):
            for _ in range(min(math.ceil(wanted), self._fleet.most) - there):
                self._start()

    def _by_chance(self, front: int, left: list[Server]) -> Server | None:  # noqa: ARG002
        return self._chance.choice(left) if left else None

    def _in_turn(self, front: int, left: list[Server]) -> Server | None:
        self._turns[front] += 1
        return left[self._turns[front] % len(left)] if left else None

    def _least(self, front: int, left: list[Server]) -> Server | None:  # noqa: ARG002
        return min(left, key=lambda server: (len(server), self._chance.random()), default=None)

    def _pinned(self, front: int, left: list[Server]) -> Server | None:
        connected = [server for server in self.servers if server.asked]
        mine = connected[front % len(connected)] if connected else None
        return mine if mine in left else None


BALANCERS: dict[str, Callable[[Simulation, int, list[Server]], Server | None]] = {
    "random": Simulation._by_chance,
    "round robin": Simulation._in_turn,
    "least": Simulation._least,
    "pinned": Simulation._pinned,
}
"""How a front chooses. Pinned is one connection to one server, as with gRPC's pick_first."""


def first_ms(row: Floats, chance: random.Random) -> float:
    """First audio in milliseconds, drawn from percentiles as :meth:`Curve.first_audio` gives them."""
    deviation = chance.gauss(0, 1)
    place = min(max(int(np.searchsorted(DEVIATIONS, deviation)), 1), len(DEVIATIONS) - 1)
    low, high = DEVIATIONS[place - 1], DEVIATIONS[place]
    return math.exp(row[place - 1] + (row[place] - row[place - 1]) * (deviation - low) / (high - low))

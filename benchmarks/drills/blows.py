"""Blows that a fleet gets one after the other, and the times at which a part of it is away."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence

from drills.fleet import Fleet
from drills.front import Front
from drills.program import Program
from drills.speech_server import SpeechServer

AWAY_S = 1.0
"""How long a killed part is away, if somebody has to start it again."""
FROZEN_S = 8.0
"""How long a frozen server is frozen: longer than it takes to be noticed."""
MARGIN_S = 2.0
"""After a part is back, it may take so long until others have noticed."""
Deal = Callable[[], None]


class Blows:
    """Deals one blow after the other, each time until everything is back.

    Args:
        fronts: that may be killed.

    Attributes:
        dealt: names, in order.
    """

    def __init__(self, fleet: Fleet, fronts: Sequence[Front], seed: int = 0) -> None:
        self._fleet = fleet
        self._fronts = fronts
        self._chance = random.Random(seed)
        self._away: list[tuple[Program, float]] = []
        self._lock = threading.Lock()
        self._deals = itertools.cycle(self._all().items())
        self.dealt: list[str] = []

    def next(self) -> str:
        """Deal the next blow, and return when everything is back."""
        name, deal = next(self._deals)
        self.dealt.append(name)
        deal()
        self._fleet.bring_back()
        return name

    def was_away(self, program: Program, since: float) -> bool:
        """Whether it was dead at any time from then on, by the monotonic clock."""
        with self._lock:
            return any(each is program and until > since for each, until in self._away)

    def _all(self) -> dict[str, Deal]:
        """Every blow by its name; those that cost nobody anything and those that do take turns."""
        fleet = self._fleet
        return {
            "server killed": lambda: self._server.kill(),
            "gateway killed": lambda: self._server.strike("gateway grpc"),
            "front killed": lambda: self._kill(self._chance.choice(self._fronts)),
            "networks killed": lambda: self._server.strike("token2wav"),
            "server frozen": self._freeze,
            "balancer killed": lambda: self._kill(fleet.balancer),
            "bucket killed": lambda: self._kill(fleet.bucket),
            "server stopped": lambda: self._server.stop(),
            "Redis killed": lambda: self._kill(fleet.redis),
            "tritonserver killed": lambda: self._server.strike("tritonserver"),
            "supervisor killed": lambda: self._server.strike("supervisor"),
        }

    @property
    def _server(self) -> SpeechServer:
        """One of the servers, by chance."""
        return self._chance.choice(self._fleet.servers)

    def _freeze(self) -> None:
        server = self._server
        server.freeze()
        time.sleep(FROZEN_S)
        server.thaw()

    def _kill(self, program: Program) -> None:
        """Kill it, and start it again after a while, during which its absence excuses much."""
        with self._lock:
            self._away.append((program, float("inf")))
        program.kill()
        time.sleep(AWAY_S)
        program.start()
        with self._lock:
            self._away[-1] = (program, time.monotonic() + MARGIN_S)

"""Three real servers, and everything that people put around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from drills.bucket import Bucket
from drills.envoy import Envoy
from drills.front import Front
from drills.program import Program
from drills.redis import Redis
from drills.speech_server import PLACES, SpeechServer
from drills.waiting import wait_until

SERVERS = 3
GRACE_S = 600
"""How long voices are spoken with while the bucket is away: no drill takes longer on a slow machine."""


def span_variables(receiver: str) -> dict[str, str]:
    """Variables of processes that send the spans of those traces alone that a client has begun."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{receiver}",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "OTEL_TRACES_SAMPLER": "parentbased_always_off",
    }


class Fleet:
    """Servers, a balancer, a bucket and a Redis, all on free ports of this machine.

    Args:
        receiver: ``host:port`` of a receiver of spans, who gets those of sampled traces; empty for none.

    Attributes:
        servers: each with places for PLACES utterances.
        balancer: Envoy before all of them.
    """

    def __init__(self, folder: Path, checkpoint: Path, receiver: str = "") -> None:
        self._folder = folder
        self.redis = Redis("redis", folder / "redis")
        self.bucket = Bucket("bucket", folder / "bucket")
        self._variables = self.bucket.variables() | (span_variables(receiver) if receiver else {})
        names = [f"server{number}" for number in range(SERVERS)]
        self.servers = [
            SpeechServer(
                name, folder / name, checkpoint, self._variables, *map("=".join, self.voices.items())
            )
            for name in names
        ]
        self.balancer = Envoy("envoy", folder / "envoy", self.addresses, receiver)
        self._fronts = 0

    @property
    def programs(self) -> list[Program]:
        """All but the fronts."""
        return [*self.servers, self.balancer, self.bucket, self.redis]

    @property
    def voices(self) -> dict[str, str]:
        """The settings by which servers and fronts keep voices with names."""
        return {
            "cosyvoice2.voices_url": f"{self.bucket.url}/voices",
            "cosyvoice2.voices_grace_s": f"{GRACE_S}",
        }

    @property
    def addresses(self) -> list[str]:
        """``host:port`` of each server's gRPC."""
        return [server.grpc_url for server in self.servers]

    @property
    def places(self) -> int:
        """Utterances at a time in all servers together."""
        return PLACES * len(self.servers)

    @property
    def speaking(self) -> list[int]:
        """Utterances in progress on each server."""
        return [server.speaking for server in self.servers]

    def start(self) -> None:
        """Start everything: the bucket first, which servers try before they start."""
        self._bring_back([self.redis, self.bucket])
        self._bring_back(self.servers)
        self.balancer.start()

    @contextmanager
    def fronts(self, count: int, grpc_url: str, **settings: object) -> Iterator[list[Front]]:
        """Fronts before this address, with these settings of their section, until the context is left."""
        names = [f"front{self._fronts + number}" for number in range(count)]
        self._fronts += count
        fronts = [Front(name, self._folder / name, grpc_url, self._variables, **settings) for name in names]
        with closing(fronts):
            for front in fronts:
                front.begin()
            for front in fronts:
                front.wait()
                front.wait_until_ready()
            yield fronts

    def heal(self) -> None:
        """Bring back what a drill has left dead or frozen, and wait until nobody speaks."""
        self.bring_back()
        self.wait_for_silence()

    def bring_back(self) -> None:
        """Start what is dead and thaw what is frozen, until all of it answers."""
        self._bring_back([self.redis, self.bucket])
        self._bring_back([*self.servers, self.balancer])

    def wait_for_silence(self) -> None:
        """Return when no server has an utterance in progress."""
        wait_until(lambda: not any(self.speaking), "somebody speaks still")

    def _bring_back(self, programs: Sequence[Program]) -> None:
        for program in programs:
            if program.running:
                program.thaw()
            else:
                program.begin()
        for program in programs:
            program.wait()

    def close(self) -> None:
        with closing(self.programs):
            pass


@contextmanager
def closing(programs: Sequence[Program]) -> Iterator[None]:
    """End all of them, whatever happens."""
    with ExitStack() as stack:
        for program in programs:
            stack.callback(program.close)
        yield

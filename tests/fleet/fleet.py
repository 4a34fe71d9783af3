"""Three real servers, and everything that people put around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from eventually import eventually
from tests.fleet.bucket import Bucket
from tests.fleet.envoy import Envoy
from tests.fleet.front import Front
from tests.fleet.program import Program
from tests.fleet.redis import Redis
from tests.fleet.speech_server import PLACES, SpeechServer

SERVERS = 3


class Fleet:
    """
    Attributes:
        servers: each with places for PLACES utterances.
        balancer: Envoy before all of them.
    """

    def __init__(self, folder: Path, checkpoint: Path) -> None:
        self._folder = folder
        self.redis = Redis("redis", folder / "redis")
        self.bucket = Bucket("bucket", folder / "bucket")
        names = [f"server{number}" for number in range(SERVERS)]
        self.servers = [
            SpeechServer(
                name, folder / name, checkpoint, self.bucket, f"cosyvoice2.voices_url={self.voices_url}"
            )
            for name in names
        ]
        self.balancer = Envoy("envoy", folder / "envoy", self.addresses)
        self._fronts = 0

    @property
    def voices_url(self) -> str:
        """Where all servers keep voices with names."""
        return f"{self.bucket.url}/voices"

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
        fronts = [Front(name, self._folder / name, grpc_url, self.bucket, **settings) for name in names]
        with closing(fronts):
            for front in fronts:
                front.begin()
            for front in fronts:
                front.wait()
                eventually(lambda front=front: front.ready)  # it is connected with the servers
            yield fronts

    def heal(self) -> None:
        """Bring back what a test has left dead or frozen, and wait until nobody speaks."""
        self._bring_back([self.redis, self.bucket])
        self._bring_back([*self.servers, self.balancer])
        eventually(lambda: not any(self.speaking))

    def _bring_back(self, programs: Sequence[Program]) -> None:
        for program in programs:
            if program.running:
                program.thaw()
            else:
                program.begin()
        for program in programs:
            program.wait()

    def close(self) -> None:
        with closing([self.balancer, *self.servers, self.bucket, self.redis]):
            pass


@contextmanager
def closing(programs: Sequence[Program]) -> Iterator[None]:
    """End all of them, whatever happens."""
    with ExitStack() as stack:
        for program in programs:
            stack.callback(program.close)
        yield

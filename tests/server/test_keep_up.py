"""A server is started again after what passes, and not after what would be the same again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cosyvoice_runtime.supervisor import keep_up as keeping
from cosyvoice_runtime.supervisor.errors import (
    PreflightError,
    ServerDiedError,
    StartError,
    SupervisorError,
)

DIED, TAKEN, LOST = ServerDiedError("died"), PreflightError(["port 8001 can't be used"]), StartError("lost")
RESTARTS = 2


class Server:
    """Fails so often, each time it is started (``start``) or while it runs."""

    settings = SimpleNamespace(max_restarts=RESTARTS)

    def __init__(self, *fates: tuple[str, SupervisorError]) -> None:
        self._fates = list(fates)
        self.starts = 0

    def _meet(self, when: str) -> None:
        if self._fates and self._fates[0][0] == when:
            raise self._fates.pop(0)[1]

    def __enter__(self) -> None:
        self.starts += 1
        self._meet("start")

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self) -> None:
        self._meet("run")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(keeping, "RETRY_S", 0.0)


@pytest.mark.parametrize("failure", [TAKEN, LOST])
def test_server_that_was_up_is_tried_again_when_it_can_not_be_started(failure):
    server = Server(("run", DIED), ("start", failure))
    keeping.keep_up(server)
    assert server.starts == 3


@pytest.mark.parametrize("failure", [TAKEN, LOST])
def test_server_that_was_never_up_is_not(failure):
    server = Server(("start", failure))
    with pytest.raises(type(failure)):
        keeping.keep_up(server)
    assert server.starts == 1


def test_tries_have_an_end():
    server = Server(("run", DIED), *[("start", TAKEN)] * RESTARTS)
    with pytest.raises(PreflightError):
        keeping.keep_up(server)
    assert server.starts == 1 + RESTARTS

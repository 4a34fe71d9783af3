"""What a probe makes of a real server's errors."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from cosyvoice_runtime.supervisor import Probe, Server
from cosyvoice_runtime.supervisor.calls import ProbeError

TIMEOUT_S = 60.0


def probe(model: str, count: int) -> Probe:
    return Probe(model, {"COUNT": np.array([count], np.int32), "PAUSE_MS": np.zeros(1, np.int32)})


def test_status_of_an_error_decides_and_its_text_does_not(lasting_server: Server) -> None:
    probe("count", 1)(lasting_server.grpc_url, TIMEOUT_S)
    probe("count", -2)(lasting_server.grpc_url, TIMEOUT_S)
    with pytest.raises(ProbeError, match="try again later"):
        probe("count", -3)(lasting_server.grpc_url, TIMEOUT_S)
    with pytest.raises(ProbeError, match="nobody"):
        probe("nobody", 1)(lasting_server.grpc_url, TIMEOUT_S)


def test_stream_without_end_is_a_failure_after_its_time(lasting_server: Server) -> None:
    with pytest.raises(ProbeError, match="no end of the answer in time"):
        Probe("count", {"COUNT": np.array([60], np.int32), "PAUSE_MS": np.array([50], np.int32)})(
            lasting_server.grpc_url, 0.5
        )


def test_server_that_was_stopped_is_a_failure_after_its_time(lasting_server: Server) -> None:
    os.kill(lasting_server.session, signal.SIGSTOP)
    try:
        with pytest.raises(ProbeError, match="no end of the answer in time"):
            probe("count", 1)(lasting_server.grpc_url, 0.5)
    finally:
        os.kill(lasting_server.session, signal.SIGCONT)

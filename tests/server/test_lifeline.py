"""The helper that outlives the supervisor holds up no stop."""

from __future__ import annotations

import os
import signal
import subprocess
import threading

from cosyvoice_runtime.supervisor.lifeline import Lifeline

TIMEOUT_S = 60.0


def test_helper_that_was_stopped_holds_up_no_release(tmp_path):
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as server:
        lifeline = Lifeline(server.pid, f"cosyvoice_{os.getpid()}_none_", tmp_path / "run")
        os.kill(lifeline._helper.pid, signal.SIGSTOP)
        releasing = threading.Thread(target=lifeline.release, daemon=True)
        releasing.start()
        releasing.join(TIMEOUT_S)
        held_up = releasing.is_alive()
        lifeline._helper.kill()
        assert server.poll() is None
        server.kill()
    assert not held_up

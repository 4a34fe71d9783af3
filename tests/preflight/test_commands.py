"""Programs that are asked something."""

from __future__ import annotations

import subprocess
import threading

from cosyvoice_runtime.preflight.commands import Answer, ask

TIMEOUT_S = 60.0


def test_program_that_can_not_be_killed_is_left(monkeypatch):
    """As one is that waits in the kernel for a driver that hangs (state D)."""
    asked: list[subprocess.Popen[str]] = []
    monkeypatch.setattr(subprocess.Popen, "kill", lambda program: asked.append(program))
    answers: list[Answer] = []
    asking = threading.Thread(target=lambda: answers.append(ask(["sleep", "600"], 0.1)), daemon=True)
    asking.start()
    asking.join(TIMEOUT_S)
    monkeypatch.undo()
    for program in asked:
        program.kill()
    assert answers == [Answer("", "has not answered within 0.1 s")]

"""What the machine says of processes."""

from __future__ import annotations

import pytest

from cosyvoice_runtime.process.processes import STUB, Process


@pytest.mark.parametrize(
    ("command", "model"),
    [
        ((f"/opt/{STUB}", "/run/models/token2wav/1/model.py", "shm"), "token2wav"),
        ((f"/opt/{STUB}",), None),  # between its start and its arguments
        ((f"/opt/{STUB}", ""), None),
        (("/usr/bin/python3", "/run/models/token2wav/1/model.py"), None),
        ((), None),
    ],
)
def test_model_of_a_process(command, model):
    assert Process(1, 0, 1, command).model == model

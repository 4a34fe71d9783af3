"""Streams that wait for others, with stand-ins for a GPU's."""

from __future__ import annotations

import pytest
import torch

from cosyvoice_runtime.flow.torch.stream import Milestone
from stream_fake import Work


@pytest.fixture
def work(monkeypatch) -> Work:
    work = Work()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: work)
    return work


def test_streams_wait_until_it_is_done(work):
    milestone = Milestone(torch.device("cpu"))
    milestone.before_next()
    milestone.before_next()
    assert work.waited_for == 2
    work.done = True
    for _ in range(3):
        milestone.before_next()
    assert (work.waited_for, work.asked) == (2, 3)
    milestone.wait()
    assert work.host_waits == 0


def test_nobody_asks_after_the_host_has_waited(work):
    milestone = Milestone(torch.device("cpu"))
    milestone.wait()
    milestone.wait()
    milestone.before_next()
    assert (work.host_waits, work.asked, work.waited_for) == (1, 0, 0)

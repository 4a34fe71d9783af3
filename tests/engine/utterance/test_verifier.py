"""Verifiers of a deployment: how they are found, and how many of their calls run at a time."""

from __future__ import annotations

import asyncio
from threading import Barrier

import pytest

from cosyvoice_runtime.engine.utterance.verifier import in_threads, load_verifier
from cosyvoice_runtime.errors import InvalidInput

PATIENCE_S = 30.0


@pytest.mark.parametrize("name", ["nothing", "no.such:Thing", "math:Thing", "math:pi", ":"])
def test_name_that_is_no_class_is_told_with_its_field(name):
    for field in ("verifier", "cosyvoice2.verifier"):
        with pytest.raises(InvalidInput, match=r"MODULE:CLASS") as caught:
            load_verifier(name, field)
        assert caught.value.field == field


class Slow:
    """Ends when as many calls run as may at a time."""

    def __init__(self, at_once: int | None) -> None:
        self._barrier = Barrier(at_once or 1)
        self.running = self.most = 0
        if at_once is not None:
            self.at_once = at_once

    def __call__(self, samples, rate, text) -> bool:
        self.running += 1
        self.most = max(self.most, self.running)
        self._barrier.wait(PATIENCE_S)
        self.running -= 1
        self._barrier.wait(PATIENCE_S)
        return True


@pytest.mark.parametrize("at_once", [None, 1, 2])
def test_as_many_calls_run_at_a_time_as_the_verifier_says(at_once):
    verifier = Slow(at_once)
    judge = in_threads(verifier)

    async def calls() -> list:
        return await asyncio.gather(*(judge([], 24_000, "text") for _ in range(6)))

    assert asyncio.run(calls()) == [True] * 6
    assert verifier.most == (at_once or 1)

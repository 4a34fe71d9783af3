"""Models that are away for a while."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from cosyvoice_runtime.errors import StageLostError
from cosyvoice_runtime.serving.triton.stage_watch import StageWatch


@pytest.mark.parametrize("steps", range(8))
def test_model_that_is_back_at_the_last_moment_is_back_or_lost(steps):
    async def use() -> None:
        watch = StageWatch(None, lambda _: None)

        async def away() -> None:
            for _ in range(steps):
                await asyncio.sleep(0)
            del watch._away["token2wav"]

        watch._away["token2wav"] = asyncio.create_task(away())
        with suppress(StageLostError):
            await watch.back(0.0)

    asyncio.run(use())

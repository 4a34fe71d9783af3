"""Several coroutines at once, of which none outlives the others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def together(*works: Coroutine[Any, Any, None]) -> None:
    """Run all of them; when one fails, the others are cancelled and its error is raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        await cancelled(*tasks)


async def ended(tasks: list[asyncio.Task[None]]) -> None:
    """Wait until the tasks have ended, however they do. They go on when this is cancelled."""
    if tasks:
        await asyncio.wait(tasks)


async def cancelled(*tasks: asyncio.Task[None]) -> None:
    """Cancel the tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

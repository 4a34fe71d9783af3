"""The task that started each asyncio task."""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakKeyDictionary, ref

_PARENTS: WeakKeyDictionary[asyncio.Task[Any], ref[asyncio.Task[Any]]] = WeakKeyDictionary()


def note_parents(loop: asyncio.AbstractEventLoop) -> None:
    """Record the parents of all tasks that a loop starts from now on."""
    loop.set_task_factory(_task)


def parent_of(task: asyncio.Task[Any]) -> asyncio.Task[Any] | None:
    """The task in which another task was started; None if there was none, or it is gone."""
    parent = _PARENTS.get(task)
    return None if parent is None else parent()


def _task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    task = asyncio.Task(coroutine, loop=loop, **options)
    if parent := asyncio.current_task(loop):
        _PARENTS[task] = ref(parent)
    return task

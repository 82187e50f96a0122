"""Steps of asyncio's tasks: between them, a task awaits something and does not work."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

from . import _native

_is_followed = False


def follow() -> None:
    """Reports the steps of all tasks from now on. The task that calls it has a step that ends later.

    An event loop runs a step of a task by a handle, whose callback is a method of the task. Other event loops than those of asyncio
    have handles of another kind, and their steps are not known.
    """
    global _is_followed
    if not _is_followed:
        _is_followed = True
        run = asyncio.events.Handle._run

        @functools.wraps(run)
        def run_handle(self: Any) -> None:
            task = getattr(self._callback, "__self__", None)
            if not isinstance(task, asyncio.Task):
                return run(self)
            _native.task_step(task, True)
            try:
                return run(self)
            finally:
                _end(task)

        setattr(asyncio.events.Handle, "_run", run_handle)  # noqa: B010
    loop = asyncio._get_running_loop()
    current = None if loop is None else asyncio.current_task(loop)
    if loop is not None and current is not None:
        loop.call_soon(_end, current)


def _end(task: asyncio.Task[Any]) -> None:
    if not task.done():
        _native.task_step(task, False)

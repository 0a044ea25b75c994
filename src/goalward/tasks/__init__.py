"""The benchmark tasks and their simulators."""

from __future__ import annotations

import difflib

from goalward.core.checks import format_value
from goalward.tasks.cube import CUBE
from goalward.tasks.push_t import PUSH_T
from goalward.tasks.reacher import REACHER
from goalward.tasks.task import Task
from goalward.tasks.two_room import TWO_ROOM

TASKS: dict[str, Task] = {task.name: task for task in (TWO_ROOM, PUSH_T, CUBE, REACHER)}


def get_task(name: str) -> Task:
    """The task called `name`.

    Raises:
        ValueError: there is none; the message offers the nearest name.
    """
    if not isinstance(name, str):
        raise ValueError(f"unknown task {format_value(name)}; tasks are: {', '.join(TASKS)}")
    if name in TASKS:
        return TASKS[name]
    near = difflib.get_close_matches(name, TASKS, n=1, cutoff=0.3)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"unknown task {format_value(name)}; {hint}tasks are: {', '.join(TASKS)}")

"""The tasks: ours, those of installed packages, and a user's own."""

from __future__ import annotations

import copyreg
from typing import Any

from goalward.core.checks import format_value
from goalward.core.registry import Registry
from goalward.tasks.task import Task

TASKS: Registry[Task] = Registry(
    "task",
    {
        "two-room": "goalward.tasks.two_room:TWO_ROOM",
        "push-t": "goalward.tasks.push_t:PUSH_T",
        "cube": "goalward.tasks.cube:CUBE",
        "reacher": "goalward.tasks.reacher:REACHER",
    },
    lambda thing: isinstance(thing, Task),
)


def get_task(task: str | Task) -> Task:
    """A task by its name or place. From then on, its own name stands for it in this process.

    Args:
        task: A registered name, `package.module:ATTRIBUTE`, `path/to/file.py:ATTRIBUTE`, or a task.
    """
    found = task if isinstance(task, Task) else TASKS.get(task)
    if found.name not in TASKS or TASKS.get(found.name) is not found:
        TASKS.register(found.name, found)
    return found


def find_task(name: str | None) -> Task | None:
    """The task that a file states, or None: recordings may be of a task that is unknown here."""
    return get_task(name) if name is not None and name in TASKS else None


def register_task(task: Task) -> None:
    """Lets a task's name stand for it in this process, also in place of an earlier task."""
    if not isinstance(task, Task):
        raise ValueError(f"a goalward.Task is expected, got {format_value(task)}")
    TASKS.register(task.name, task)


def _reduce(task: Task) -> Any:
    """Pickles a task as the place that it was loaded from; one without a place, by value."""
    place = TASKS.place_of(task)
    return task.__reduce_ex__(2) if place is None else (get_task, (place,))


copyreg.pickle(Task, _reduce)

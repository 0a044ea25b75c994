"""The tasks: ours, those of installed packages, and a user's own."""

from __future__ import annotations

import copyreg
from typing import Any

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

    Raises:
        ValueError: the name is unknown; the message offers the nearest one.
    """
    found = task if isinstance(task, Task) else TASKS.get(task)
    if found.name not in TASKS or TASKS.get(found.name) is not found:
        TASKS.register(found.name, found)
    return found


def find_task(name: str | None) -> Task | None:
    """The task that a file names, if there is one of that name here: recordings may be of any."""
    return get_task(name) if name is not None and name in TASKS else None


def register_task(task: Task) -> None:
    """Lets a task's name stand for it in this process, also in place of an earlier task."""
    TASKS.register(getattr(task, "name", ""), task)


def _reduce(task: Task) -> Any:
    """A task is pickled as the place that it was loaded from; one without a place, by value."""
    place = TASKS.place_of(task)
    return task.__reduce_ex__(2) if place is None else (get_task, (place,))


copyreg.pickle(Task, _reduce)

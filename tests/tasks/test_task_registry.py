"""Tasks register: ours, and a stranger's from a file; another process can take either."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from goalward.tasks import TASKS, find_task, get_task

OWN = """
from dataclasses import replace
from goalward.tasks.two_room import TWO_ROOM
MINE = replace(TWO_ROOM, name="my-rooms", summary="mine")
"""


@pytest.fixture
def own_file(tmp_path: Path) -> str:
    (tmp_path / "my_task.py").write_text(OWN)
    return f"{tmp_path / 'my_task.py'}:MINE"


def test_a_task_of_a_file_is_known_by_its_own_name_afterwards(own_file: str) -> None:
    task = get_task(own_file)
    assert task.name == "my-rooms" and get_task("my-rooms") is task and find_task("my-rooms")
    assert find_task(None) is None and find_task("of-nobody") is None


@pytest.mark.parametrize("name", TASKS.names())
def test_our_tasks_are_pickled_as_the_place_that_they_come_from(name: str) -> None:
    task = get_task(name)
    assert len(pickle.dumps(task)) < 200
    assert pickle.loads(pickle.dumps(task)) is task

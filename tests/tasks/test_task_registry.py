"""Tasks register: ours, and a stranger's from a file; another process can take either."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cloudpickle
import pytest

from goalward.tasks import TASKS, find_task, get_task, register_task

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


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ValueError, match="did you mean 'push-t'"):
        get_task("pusht")


@pytest.mark.parametrize("name", TASKS.names())
def test_our_tasks_are_pickled_as_the_place_that_they_come_from(name: str) -> None:
    task = get_task(name)
    assert len(pickle.dumps(task)) < 200
    assert pickle.loads(pickle.dumps(task)) is task


def test_another_process_loads_a_task_of_a_file(own_file: str, tmp_path: Path) -> None:
    (tmp_path / "task.pickle").write_bytes(pickle.dumps(get_task(own_file)))
    code = f"import pickle; print(pickle.load(open({str(tmp_path / 'task.pickle')!r}, 'rb')).name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "my-rooms\n", done.stderr


def test_a_task_that_is_registered_as_an_object_travels_by_value() -> None:
    register_task(replace(get_task("two-room"), name="by-value"))
    again = cloudpickle.loads(cloudpickle.dumps(get_task("by-value")))
    assert again.name == "by-value" and again.protocols.keys() == {"paper", "moderate", "strict"}

"""Fixtures shared by the tests: small datasets and trained models, made once for all processes."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from goalward.data.collect import CollectConfig, collect
from goalward.tasks import get_task
from goalward.tasks.task import RenderConfig, Simulator

pytest_plugins = ["world_helpers", "controller_helpers", "episode_helpers", "evaluation_helpers"]
torch.set_num_threads(1)  # tiny tensors: two threads mostly wait for each other

EPISODES = {"two-room": 8, "push-t": 6, "cube": 6, "reacher": 6}


@pytest.fixture(autouse=True)
def seeded() -> None:
    """No test depends on what others drew before it."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all of pytest-xdist's processes have in common."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """No other process is within this for the same folder."""
    with folder.with_name(f"{folder.name}.turn").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def dataset(shared_folder: Path) -> Callable[[str], Path]:
    """A small collection of a task by two workers, made when first asked for; not to be changed."""

    def get(task: str) -> Path:
        folder = shared_folder / f"dataset-{task}"
        config = CollectConfig.for_task(task, episodes=EPISODES[task], seed=5)
        with alone(folder):
            collect(config, folder, workers=2)
        return folder

    return get


@pytest.fixture
def smoke_runs(shared_folder: Path, tmp_path: Path) -> Path:
    """A copy of runs of the preset `smoke` with Two-Room's world model and controller (seed 42)."""
    from goalward.experiments.experiment import RunSpec
    from goalward.experiments.runner import Runner

    shared = shared_folder / "smoke-runs"
    with alone(shared):
        runner = Runner(preset="smoke", runs=shared, pairs=2, device="cpu")
        runner.trained(RunSpec(task="two-room", controller="gc-idm"))
    shutil.copytree(shared, tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture(scope="session")
def simulator() -> Callable[[str], Simulator]:
    """The one simulator of a task in this process, drawing at 64 pixels."""
    made: dict[str, Simulator] = {}

    def get(task: str) -> Simulator:
        if task not in made:
            made[task] = get_task(task).simulator(RenderConfig(image_size=64))
        return made[task]

    return get

"""Fixtures shared by the tests: small datasets, collected once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from goalward.data.collect import CollectConfig, collect
from goalward.tasks import TASKS
from goalward.tasks.spec import SceneConfig, Simulator

torch.set_num_threads(1)  # tiny tensors: two threads mostly wait for each other

EPISODES = {"two-room": 8, "push-t": 6, "cube": 6, "reacher": 6}


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A small collection of a task by two workers, made when first asked for."""
    root = tmp_path_factory.mktemp("datasets")

    def get(task: str) -> Path:
        config = CollectConfig.for_task(task, episodes=EPISODES[task], seed=5)
        collect(config, root / task, workers=2)
        return root / task

    return get


@pytest.fixture(scope="session")
def simulator() -> Callable[[str], Simulator]:
    """The one simulator of a task in this process, drawing at 64 pixels."""
    made: dict[str, Simulator] = {}

    def get(task: str) -> Simulator:
        if task not in made:
            made[task] = TASKS[task].simulator(SceneConfig(image_size=64))
        return made[task]

    return get

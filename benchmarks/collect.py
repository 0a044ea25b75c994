"""Collection speed: goalward and `stable_worldmodel.World.collect`, frames of the same size.

stable-worldmodel records uniform random actions, because its scripted policies do not exist for
every task; goalward records its demonstrator, which costs more. Start-up is left out of both: each
side is timed from a finished episode (one for each worker) until its file is complete.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from benchmarks.setting import calls_per_second, show_rates
from goalward.core.machine import usable_cpus
from goalward.data.collect import CollectConfig, collect
from goalward.engines.local import LocalEngine
from goalward.tasks import get_task
from goalward.tasks.rendering import prepare_gl
from goalward.tasks.task import RenderConfig


@dataclass(frozen=True, kw_only=True)
class Case:
    """How a task is measured."""

    wanted: float  # ratio
    ours: int  # timed episodes of goalward
    theirs: int  # timed episodes of stable-worldmodel
    options: dict[str, Any] = field(default_factory=dict)  # of stable-worldmodel's environment


CASES = {
    "two-room": Case(wanted=3.0, ours=200, theirs=10),
    "push-t": Case(wanted=3.0, ours=60, theirs=4),
    "reacher": Case(wanted=5.0, ours=60, theirs=2, options={"task": "qpos_match"}),
    "cube": Case(
        wanted=10.0,
        ours=20,
        theirs=1,
        options={"env_type": "single", "mode": "data_collection", "visualize_info": False},
    ),
}


def our_rate(task: str, image_size: int, workers: int) -> float:
    """Frames per second of goalward."""
    config = CollectConfig.for_task(
        task, episodes=CASES[task].ours + workers, render=RenderConfig(image_size=image_size)
    )
    marks: list[tuple[float, int]] = []

    def mark(_done: int, frames: int) -> None:
        marks.append((time.perf_counter(), frames))

    with tempfile.TemporaryDirectory() as folder:
        collect(config, Path(folder, "episodes"), workers=workers, on_progress=mark)
        end = time.perf_counter()  # merging the episodes into one file included
    finished = [(when, frames) for when, frames in marks if frames]
    start, before = finished[workers - 1]
    return (finished[-1][1] - before) / (end - start)


def their_rate(job: tuple[str, int]) -> float:
    """Frames per second of `World.collect`. A worker process calls this."""
    name, image_size = job
    warnings.simplefilter("ignore")
    prepare_gl()
    import stable_worldmodel as swm

    task, case = get_task(name), CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["STABLEWM_HOME"] = folder
        world = swm.World(
            task.env_id,
            num_envs=1,
            image_shape=(image_size, image_size),
            max_episode_steps=task.episode_steps,
            **case.options,
        )
        world.set_policy(swm.policy.RandomPolicy(seed=0))

        def record(file: str, episodes: int) -> None:
            path = Path(folder, file)
            world.collect(path, episodes=episodes, seed=0, format="hdf5", progress=False)

        record("warm-up.h5", 1)
        rate = calls_per_second(lambda: record("timed.h5", case.theirs))
        world.close()
    return case.theirs * task.episode_steps * rate


def main(
    tasks: tuple[str, ...] = tuple(CASES), image_size: int = 64, workers: int = usable_cpus()
) -> int:
    """Measure collection speed; exit code 1 if a ratio is below what is wanted.

    Args:
        tasks: Tasks to measure.
        image_size: Pixels a side of the frames.
        workers: Processes of goalward; stable-worldmodel's collection is serial.
    """
    enough = True
    for task in tasks:
        with LocalEngine(1) as engine:
            (theirs,) = engine.map(their_rate, [(task, image_size)])
        ours = our_rate(task, image_size, workers)
        reached = show_rates(
            f"Collecting {task}, frames per second at {image_size} px",
            {"World.collect": np.array([theirs])},
            {f"goalward, {workers} workers": np.array([ours])},
            wanted=CASES[task].wanted,
        )
        enough = enough and reached
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(tyro.cli(main))

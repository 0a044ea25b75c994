"""Collection speed: goalward beside `stable_worldmodel.World.collect`, same image size, one run.

Both sides record the same number of steps from the same environment with the same kind of policy
(uniform random actions for stable-worldmodel, whose scripted policies do not exist for every
task, and the scripted demonstrator for goalward, which costs more). Start-up is left out of both:
each side is timed from a first finished episode (one a worker) until its file is complete.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from goalward.core.console import show_line, show_table
from goalward.core.machine import usable_cpus
from goalward.data.collect import CollectConfig, collect
from goalward.engines.local import process_pool
from goalward.tasks import TASKS, get_task
from goalward.tasks.rendering import prepare_gl
from goalward.tasks.task import RenderConfig

WANTED = {"two-room": 3.0, "push-t": 3.0, "reacher": 5.0, "cube": 10.0}
ENV_KWARGS: dict[str, dict[str, Any]] = {
    "cube": {"env_type": "single", "mode": "data_collection", "visualize_info": False},
    "reacher": {"task": "qpos_match"},
}
EPISODES = {"two-room": (200, 10), "push-t": (60, 4), "reacher": (60, 2), "cube": (20, 1)}


@dataclass(frozen=True)
class Arguments:
    """Measure collection speed."""

    tasks: tuple[str, ...] = TASKS.names()
    """Tasks to measure."""
    image_size: int = 64
    """Pixels a side."""
    workers: int = usable_cpus()
    """Processes of goalward; stable-worldmodel's collection is serial."""


def goalward_rate(task: str, image_size: int, workers: int, episodes: int) -> float:
    """Frames a second of goalward, from when each worker has finished an episode to the end."""
    marks: list[tuple[float, int]] = []
    scene = RenderConfig(image_size=image_size)
    config = CollectConfig.for_task(task, episodes=episodes + workers, scene=scene)
    with tempfile.TemporaryDirectory() as folder:
        collect(
            config,
            Path(folder, "run"),
            workers=workers,
            on_progress=lambda _, frames: marks.append((time.perf_counter(), frames)),
        )
        end = time.perf_counter()  # merging the episodes into one file included
    finished = [(when, frames) for when, frames in marks if frames > 0]
    (start, before), (_, after) = finished[workers - 1], finished[-1]
    return (after - before) / (end - start)


def upstream_rate(job: tuple[str, int, int]) -> float:
    """Frames a second of `World.collect`; runs in a process of its own."""
    task, image_size, episodes = job
    warnings.simplefilter("ignore")
    prepare_gl()
    import stable_worldmodel as swm

    spec = get_task(task)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["STABLEWM_HOME"] = folder
        world = swm.World(
            spec.env_id,
            num_envs=1,
            image_shape=(image_size, image_size),
            max_episode_steps=spec.episode_steps,
            **ENV_KWARGS.get(task, {}),
        )
        world.set_policy(swm.policy.RandomPolicy(seed=0))
        options: dict[str, Any] = {"format": "hdf5", "progress": False}
        world.collect(Path(folder, "warm-up.h5"), episodes=1, seed=0, **options)
        start = time.perf_counter()
        world.collect(Path(folder, "timed.h5"), episodes=episodes, seed=1, **options)
        seconds = time.perf_counter() - start
        world.close()
    return episodes * spec.episode_steps / seconds


def main(arguments: Arguments) -> int:
    """Measure and print the table; exit code 1 when a ratio is below what is wanted."""
    rows, fast_enough = [], True
    for task in arguments.tasks:
        ours, theirs = EPISODES[task]
        with process_pool(1) as pool:
            job = (task, arguments.image_size, theirs)
            upstream = next(iter(pool.map_unordered(upstream_rate, [job])))
        rate = goalward_rate(task, arguments.image_size, arguments.workers, ours)
        ratio = rate / upstream
        verdict = "ok" if ratio >= WANTED[task] else "below"
        fast_enough = fast_enough and ratio >= WANTED[task]
        rows.append(
            (
                task,
                f"{upstream:,.0f}",
                f"{rate:,.0f}",
                f"{ratio:.1f}x",
                f"{WANTED[task]:.0f}x {verdict}",
            )
        )
    title = f"Frames a second at {arguments.image_size} px"
    header = ("task", "World.collect", f"goalward, {arguments.workers} workers", "ratio", "wanted")
    show_table(title, header, rows)
    show_line("One run on this machine; other load on it lowers both columns, not always alike.")
    return 0 if fast_enough else 1


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Arguments)))

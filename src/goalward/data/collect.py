"""Collecting demonstrations with parallel simulators.

Every episode is a function of the seed and its number, and is written to a file of its own as soon
as it ends; the files are merged in order when all are there. So the result does not depend on the
number of processes, and an interrupted collection goes on where it stopped.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from goalward import defaults
from goalward.core.arrays import Array
from goalward.core.artifacts import Stage
from goalward.core.config import require_at_least, require_at_most, require_types
from goalward.core.random import generator
from goalward.data.episodes import open_episodes
from goalward.data.hdf5 import merge_episodes, write_episode
from goalward.data.splits import MOST_EPISODES
from goalward.engines.local import process_pool, require_workers
from goalward.tasks import get_task
from goalward.tasks.rendering import prepare_gl
from goalward.tasks.task import RenderConfig, Simulator, Task

MOST_STEPS = 10**6  # an episode
STAGE = "collect"
STAGE_VERSION = 1
EPISODES_FILE = "episodes.h5"
PARTS_FOLDER = "parts"

OnProgress = Callable[[int, int], None]  # (episodes done, frames done), of this sitting


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectConfig:
    """What a collection depends on. `for_task` fills in a task's own defaults."""

    task: str
    demonstrator: str
    episodes: int
    episode_steps: int  # actions an episode; it has one frame more
    seed: int
    scene: RenderConfig
    gl: str  # the GL back-end that draws, since frames differ between them; "" where none does

    def __post_init__(self) -> None:
        require_types(self)
        task = get_task(self.task)
        if self.demonstrator not in task.demonstrators:
            known = ", ".join(task.demonstrators)
            raise ValueError(
                f"task {task.name} has no demonstrator {self.demonstrator!r}, only: {known}"
            )
        require_at_least(self, 1, "episodes", "episode_steps")
        require_at_most(self, MOST_EPISODES, "episodes")
        require_at_most(self, MOST_STEPS, "episode_steps")
        require_at_least(self, 0, "seed")

    @classmethod
    def for_task(
        cls,
        task: str,
        *,
        episodes: int,
        seed: int = defaults.SEED,
        demonstrator: str | None = None,
        episode_steps: int | None = None,
        scene: RenderConfig | None = None,
    ) -> CollectConfig:
        """A full configuration; what is left out is the task's own choice."""
        spec = get_task(task)
        return cls(
            task=spec.name,
            demonstrator=demonstrator or spec.default_demonstrator,
            episodes=episodes,
            episode_steps=spec.episode_steps if episode_steps is None else episode_steps,
            seed=seed,
            scene=scene or RenderConfig(),
            gl=prepare_gl() if spec.needs_gl else "",
        )


@dataclass(frozen=True, kw_only=True)
class CollectReport:
    """What a collection did."""

    folder: Path
    file: Path
    id: str
    episodes: int
    frames: int
    new_episodes: int  # collected in this sitting
    seconds: float  # of this sitting
    frames_per_second: float


def collect(
    config: CollectConfig, folder: Path, *, workers: int, on_progress: OnProgress | None = None
) -> CollectReport:
    """Collect demonstrations into the stage folder `folder`, or find them complete there.

    Raises:
        ValueError: the folder holds something else, or a simulator cannot run here.
        OSError: the folder cannot be written; finished episodes are kept.
    """
    require_workers(workers)
    stage = Stage(folder=folder, name=STAGE, version=STAGE_VERSION, config=config)
    started, new = time.perf_counter(), 0
    if not stage.is_complete():
        with stage.writing() as partial:
            new = _fill(config, partial, workers, on_progress)
    seconds = time.perf_counter() - started
    with open_episodes(folder / EPISODES_FILE) as episodes:
        frames = episodes.num_rows
    return CollectReport(
        folder=folder,
        file=folder / EPISODES_FILE,
        id=stage.id,
        episodes=config.episodes,
        frames=frames,
        new_episodes=new,
        seconds=seconds,
        frames_per_second=new * (config.episode_steps + 1) / seconds,
    )


def _fill(
    config: CollectConfig, partial: Path, workers: int, on_progress: OnProgress | None
) -> int:
    """Bring the partial stage folder to its final content; returns the new episodes' number."""
    merged, parts = partial / EPISODES_FILE, partial / PARTS_FOLDER
    paths = [parts / f"{episode:06d}.h5" for episode in range(config.episodes)]
    new = 0
    if not merged.exists():  # it appears whole, after the last part and before they are removed
        parts.mkdir(exist_ok=True)
        missing = [episode for episode, path in enumerate(paths) if not path.exists()]
        if on_progress is not None:
            on_progress(config.episodes - len(missing), 0)
        for frames in _collect_parts(config, parts, missing, workers):
            new += 1
            if on_progress is not None:
                on_progress(config.episodes - len(missing) + new, frames)
        merge_episodes(paths, merged)
    shutil.rmtree(parts, ignore_errors=True)
    return new


def _collect_parts(
    config: CollectConfig, parts: Path, missing: list[int], workers: int
) -> Iterator[int]:
    """Collect the missing episodes; yields the number of new frames after each."""
    if not missing:
        return
    frames = 0
    with process_pool(min(workers, len(missing))) as pool:
        for size in pool.map_unordered(_collect_part, [(config, parts, e) for e in missing]):
            frames += size
            yield frames


def _collect_part(job: tuple[CollectConfig, Path, int]) -> int:
    """Collect one episode in a worker process; returns its number of frames."""
    config, parts, episode = job
    rng = generator("demonstration", config.seed, episode)
    task, simulator = get_task(config.task), _simulator(config.task, config.scene)
    columns = record_episode(task, simulator, config.demonstrator, config.episode_steps, rng)
    attributes = {
        "task": config.task,
        "demonstrator": config.demonstrator,
        "rendering": config.scene.rendering,
        "gl": config.gl,
    }
    write_episode(parts / f"{episode:06d}.h5", columns, attributes=attributes)
    return len(columns["pixels"])


@lru_cache(maxsize=1)
def _simulator(task: str, scene: RenderConfig) -> Simulator:
    """The one simulator of a worker process."""
    return get_task(task).simulator(scene)


def record_episode(
    task: Task, simulator: Simulator, demonstrator: str, steps: int, rng: np.random.Generator
) -> dict[str, Array]:
    """Run a demonstrator for one episode.

    Returns:
        Columns of `steps + 1` rows: row t holds frame t, the state that restores it, and the
        action taken there. The last row has no action; NaN says so.
    """
    simulator.reset(rng)
    policy = task.demonstrators[demonstrator](simulator, rng)
    rows, frames = [simulator.state()], [simulator.render()]
    actions = np.full((steps + 1, task.action_dim), np.nan, dtype=np.float32)
    for t in range(steps):
        actions[t] = policy()
        simulator.step(actions[t])
        rows.append(simulator.state())
        frames.append(simulator.render())
    columns = {name: np.stack([row[name] for row in rows]) for name in task.state_columns}
    return {"pixels": np.stack(frames), "action": actions, **columns}

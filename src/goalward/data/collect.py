"""Collecting demonstrations with parallel simulators.

Every episode is a function of the seed and its number, and is written to a file of its own as soon
as it ends; the files are merged in order when all are there. So the result does not depend on the
number of processes, and an interrupted collection resumes with the missing episodes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import cloudpickle
import numpy as np
from pydantic import Field

from goalward import defaults
from goalward.core.arrays import Array
from goalward.core.artifacts import Stage
from goalward.core.config import NonNegative, config
from goalward.core.random import generator
from goalward.data.hdf5 import merge_episodes, write_episode
from goalward.data.splits import NumEpisodes
from goalward.engines.local import LocalEngine
from goalward.tasks import get_task
from goalward.tasks.demonstrations import KINDS, MixedPolicy, Mixture, RecipeConfig
from goalward.tasks.rendering import prepare_gl
from goalward.tasks.task import Demonstrator, RenderConfig, Simulator, Task

STAGE = "collect"
STAGE_VERSION = 2
EPISODES_FILE = "episodes.h5"
PARTS_FOLDER = "parts"

OnProgress = Callable[[int, int], None]  # (episodes done, frames of this session)


@config
class CollectConfig:
    """What a collection depends on. `for_task` fills in a task's own defaults."""

    task: str
    demonstrator: str
    episodes: NumEpisodes
    episode_steps: Annotated[int, Field(ge=1, le=10**6)]  # actions; there is one frame more
    seed: NonNegative
    render: RenderConfig
    gl: str  # the GL back-end that draws, since frames differ between them; "" where none does
    recipe: RecipeConfig | None = None  # of a demonstrator that is a mixture

    def __post_init__(self) -> None:
        known = get_task(self.task).demonstrators
        if self.demonstrator not in known:
            raise ValueError(
                f"task {self.task} has no demonstrator {self.demonstrator!r}, "
                f"only: {', '.join(known)}"
            )

    @classmethod
    def for_task(
        cls,
        task: str | Task,
        *,
        episodes: int,
        seed: int = defaults.SEED,
        demonstrator: str | None = None,
        episode_steps: int | None = None,
        render: RenderConfig | None = None,
    ) -> CollectConfig:
        """A full configuration; what is left out is the task's own choice."""
        found = get_task(task)
        name = demonstrator or found.default_demonstrator
        mixture = found.demonstrators.get(name)
        return cls(
            task=found.name,
            demonstrator=name,
            episodes=episodes,
            episode_steps=found.episode_steps if episode_steps is None else episode_steps,
            seed=seed,
            render=render or RenderConfig(),
            gl=prepare_gl() if found.needs_gl else "",
            recipe=mixture.recipe if isinstance(mixture, Mixture) else None,
        )


def collect(
    config: CollectConfig, folder: Path, *, workers: int, on_progress: OnProgress | None = None
) -> Path:
    """Collect demonstrations into the stage folder `folder`, or find them there: their file."""
    stage = Stage(folder=folder, name=STAGE, version=STAGE_VERSION, config=config)
    if not stage.is_complete():
        with stage.writing() as partial:
            _fill(config, partial, workers, on_progress)
    return folder / EPISODES_FILE


def _fill(
    config: CollectConfig, partial: Path, workers: int, on_progress: OnProgress | None
) -> None:
    """Bring the partial stage folder to its final content."""
    merged, parts = partial / EPISODES_FILE, partial / PARTS_FOLDER
    if not merged.exists():  # it is written after the last part and before they are removed
        parts.mkdir(exist_ok=True)
        paths = [parts / f"{episode:06d}.h5" for episode in range(config.episodes)]
        missing = [episode for episode, path in enumerate(paths) if not path.exists()]
        frames = 0
        for new, rows in enumerate(_collect_parts(config, parts, missing, workers)):
            frames += rows
            if on_progress is not None:
                on_progress(config.episodes - len(missing) + new, frames)
        merge_episodes(paths, merged)
    shutil.rmtree(parts, ignore_errors=True)


def _collect_parts(
    config: CollectConfig, parts: Path, missing: list[int], workers: int
) -> Iterator[int]:
    """Collect the missing episodes; yields 0 at the start, then the frames of each."""
    yield 0
    if missing:
        # By value where it was registered as an object: a worker does not know its name.
        setting = cloudpickle.dumps((get_task(config.task), config, parts))
        with LocalEngine(min(workers, len(missing))) as engine:
            yield from engine.map(_collect_part, [(setting, e) for e in missing])


def _collect_part(job: tuple[bytes, int]) -> int:
    """Collect one episode in a worker process; returns its number of frames."""
    task, config, parts, simulator = _open_setting(job[0])
    rng = generator("demonstration", config.seed, job[1])
    demonstrator = task.demonstrators[config.demonstrator]
    attributes = {
        "task": config.task,
        "demonstrator": config.demonstrator,
        "rendering": config.render.rendering,
        "renderer": str(task.renderer),
        "gl": config.gl,
    }
    if isinstance(demonstrator, Mixture):
        assert config.recipe is not None
        demonstrator = replace(demonstrator, recipe=config.recipe)
        attributes["kinds"] = ", ".join(KINDS)
    columns = record_episode(task, simulator, demonstrator, config.episode_steps, rng)
    write_episode(parts / f"{job[1]:06d}.h5", columns, attributes=attributes)
    return len(columns["pixels"])


@lru_cache(maxsize=1)
def _open_setting(setting: bytes) -> tuple[Task, CollectConfig, Path, Simulator]:
    """What a worker process keeps: the task, and its one simulator."""
    task, config, parts = cloudpickle.loads(setting)
    return task, config, parts, task.simulator(config.render)


def record_episode(
    task: Task,
    simulator: Simulator,
    demonstrator: Demonstrator,
    steps: int,
    rng: np.random.Generator,
) -> dict[str, Array]:
    """Run a demonstrator for one episode.

    Returns:
        Columns of `steps + 1` rows: row t holds frame t, the state that restores it, and the
        action taken there. The last row has no action: it holds NaN. The episodes of a mixture
        have a column `kind`, an index into the file's attribute `kinds`.
    """
    simulator.reset(rng)
    policy = demonstrator(simulator, rng)
    states, frames = [simulator.state()], [simulator.render()]
    actions = np.full((steps + 1, task.action_dim), np.nan, dtype=np.float32)
    for t in range(steps):
        actions[t] = policy()
        simulator.step(actions[t])
        states.append(simulator.state())
        frames.append(simulator.render())
    columns = {name: np.stack([state[name] for state in states]) for name in task.state_columns}
    if isinstance(policy, MixedPolicy):
        columns["kind"] = np.full(steps + 1, policy.kind, dtype=np.uint8)
    return {"pixels": np.stack(frames), "action": actions, **columns}

"""Train controllers on world models, and write `results/controllers/`, for docs/CONTROLLERS.md.

Needs what `benchmarks.world` made, under the same run folder. Stages are found again there, so
that an interrupted measurement goes on. Horizons at test time are compared on pairs of the
validation episodes: the test episodes are left for the results.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro

from benchmarks.setting import PICTURES, RESULTS, RUNS, bench_pipeline
from goalward import defaults
from goalward.control.act import GCIDMController
from goalward.control.checkpoint import load_trained_idm
from goalward.control.goals import GoalSampler
from goalward.control.horizon import HorizonConfig
from goalward.control.metrics import action_errors, validate_controller
from goalward.control.train import (
    CURVES,
    REPORT,
    ControllerConfig,
    ControllerReport,
    train_controller,
)
from goalward.core.artifacts import load_manifest
from goalward.core.config import override, read_config, to_json, write_json
from goalward.core.console import progress, show_line
from goalward.core.machine import machine, usable_cpus
from goalward.data.episodes import open_episodes
from goalward.defaults import PresetName
from goalward.evaluation.pairs import Pair, attempts, draw_pair_index
from goalward.evaluation.rollout import run_attempts
from goalward.evaluation.simulators import simulator_pool
from goalward.evaluation.statistics import success_rate
from goalward.presets import controller_config
from goalward.tasks import TASKS, get_task
from goalward.tasks.task import RenderConfig
from goalward.world.latents import Latents

CONTROLLERS = RESULTS / "controllers"
HORIZONS = (
    HorizonConfig(mode="budget"),
    *(HorizonConfig(mode="time-to-go", level=level) for level in (0.5, 0.25, 0.1, 0.05)),
    *(HorizonConfig(mode="fixed", steps=steps) for steps in (1, 5, 10, 25)),
)
SIGMAS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)  # Table A of the paper
PAIRWISE_TASK, FRAMESKIPS = "two-room", (1, 5)
ENVIRONMENTS = 8
FREE = 0.05  # pixels; a step that falls shorter of its action has met a wall


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to measure."""

    preset: PresetName = "cpu"
    """The preset to train with."""
    tasks: tuple[str, ...] = TASKS.names()
    """The tasks, one after the other."""
    pairs: int = 100
    """Validation pairs a horizon."""
    runs: Path = RUNS
    """Where `benchmarks.world` put datasets and weights."""


def measure(task: str, arguments: Arguments) -> None:
    """Embed and train one task, and keep what was found in `results/controllers/`."""
    pipeline = bench_pipeline(task, arguments.preset, arguments.runs)
    latents, runs = pipeline.latents(), pipeline.folder
    report = read_config(ControllerReport, pipeline.controller() / REPORT)
    facts: dict[str, Any] = {
        "task": task,
        "preset": arguments.preset,
        "machine": machine(),
        "torch": torch.__version__,
        "git_revision": load_manifest(runs / "controller").git_revision,
        "embed_seconds": load_manifest(runs / "latents").seconds,
        "report": to_json(report),
        "test": to_json(validate_controller(runs / "controller", latents.folder)),
        "horizons": compare_horizons(task, runs, latents, arguments.pairs),
    }
    if task == PAIRWISE_TASK:
        facts["pairwise"] = [pairwise(latents, runs, arguments.preset, k) for k in FRAMESKIPS]
    (CONTROLLERS / arguments.preset).mkdir(parents=True, exist_ok=True)
    write_json(CONTROLLERS / arguments.preset / f"{task}.json", facts)
    name = f"controller-{arguments.preset}-{task}-{CURVES}"
    shutil.copy(runs / "controller" / CURVES, PICTURES / name)


def train(config: ControllerConfig, latents: Latents, folder: Path) -> ControllerReport:
    """Train, with a bar."""
    steps = config.schedule.steps
    with progress(f"train {folder.name}", steps, unit="examples", quiet=False) as tick:
        return train_controller(config, latents.folder, folder, on_progress=tick)


def compare_horizons(
    task: str, runs: Path, latents: Latents, number: int
) -> list[dict[str, object]]:
    """Success on the same validation pairs for every way of telling the horizon."""
    model = load_trained_idm(runs / "controller")
    known, protocol = get_task(task), get_task(task).protocols["paper"]
    with open_episodes(runs / "episodes") as episodes:
        among = latents.split.validation
        pairs = draw_pair_index(episodes, known, protocol, number, seed=0, among=among)
        work = attempts(episodes, known, pairs)
        size = episodes.columns["pixels"].shape[0]
    scene = RenderConfig(image_size=size, physics=protocol.physics)
    found = []
    pool_size = min(ENVIRONMENTS, number)
    with (
        simulator_pool(task, "paper", scene, number=pool_size, workers=usable_cpus()) as pool,
        progress(f"horizons {task}", len(HORIZONS), unit="settings", quiet=False) as tick,
    ):
        for k, horizon in enumerate(HORIZONS):
            controller = GCIDMController(model, horizon)
            episodes_run = run_attempts(controller, pool, work, budget=defaults.BUDGET)
            hits = np.array([episode.success for episode in episodes_run])
            steps = float(np.mean([episode.steps for episode in episodes_run]))
            found.append(
                {"horizon": to_json(horizon), "rates": rates(task, work, hits), "steps": steps}
            )
            tick(k + 1, k + 1)
    return found


def rates(task: str, work: Sequence[Pair], hits: np.ndarray) -> dict[str, object]:
    """Success on all pairs and on the task's subsets of them."""
    subsets = {"all": np.ones(len(work), dtype=bool)}
    for name, belongs in get_task(task).pair_subsets.items():
        subsets[name] = np.array([bool(belongs(a.start, a.goal)) for a in work])
    return {
        name: to_json(success_rate(int(hits[inside].sum()), int(inside.sum())))
        for name, inside in subsets.items()
        if inside.any()
    }


def pairwise(latents: Latents, runs: Path, preset: PresetName, frameskip: int) -> dict[str, Any]:
    """The oracle of Appendix D: errors on test episodes, clean and under noise."""
    config = controller_config(preset, latents, kind="pairwise")
    folder = runs / f"pairwise-{frameskip}"
    report = train(override(config, [f"network.frameskip={frameskip}"]), latents, folder)
    quality = validate_controller(folder, latents.folder, sigmas=SIGMAS if frameskip == 1 else ())
    found = {"frameskip": frameskip, "report": to_json(report), "test": to_json(quality)}
    if frameskip == 1:
        found["free"] = free_moves(latents, runs, folder)
    return found


def free_moves(latents: Latents, runs: Path, folder: Path) -> dict[str, Any]:
    """The same errors on the steps that no wall stopped: a wall hides the action that met it."""
    with open_episodes(runs / "episodes") as episodes:
        rows = episodes.window_starts(2, latents.split.test)
        moved = episodes.rows("state", rows + 1) - episodes.rows("state", rows)
        scale = episodes.rows("action", rows)
    large = np.abs(scale) > 0.5
    speed = float(np.median(moved[large] / scale[large]))  # pixels a unit of action
    free = (np.abs(moved - speed * scale) < FREE).all(axis=1)
    sampler = GoalSampler(
        torch.from_numpy(latents.z),
        torch.from_numpy(latents.actions),
        latents.lengths,
        latents.split.test,
        min_horizon=1,
        max_horizon=1,
    )
    chosen = torch.from_numpy(rows[free])
    examples = sampler.examples(chosen, torch.ones_like(chosen))
    error = action_errors(load_trained_idm(folder).network, examples)[0]
    return {"share": float(free.mean()), "error": to_json(error)}


if __name__ == "__main__":
    given = tyro.cli(Arguments)
    for name in given.tasks:
        measure(name, given)
        show_line(f"wrote {CONTROLLERS / given.preset / name}.json")

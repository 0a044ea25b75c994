"""GC-IDM on the true state instead of latents, and write `results/upper-bound/`.

It is what the controller, the demonstrations and the horizon allow; what GC-IDM on latents lacks
of it is lost in the representation, or in learning from it. The same network, schedule, seeds,
pairs and budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro

from benchmarks.setting import RESULTS, RUNS, bench_pipeline
from goalward import defaults
from goalward.control.act import ActionHead
from goalward.control.metrics import NETWORK, TIME_TO_GO
from goalward.control.networks import TimeToGo
from goalward.control.train import ControllerConfig, Training
from goalward.core.arrays import Array
from goalward.core.config import content_id, to_json, write_json
from goalward.core.console import progress, show_line, show_table
from goalward.core.machine import git_revision, machine, usable_cpus
from goalward.data.episodes import open_episodes
from goalward.defaults import PresetName
from goalward.evaluation.pairs import Pair, Pairs, PairsConfig
from goalward.evaluation.rollout import waves
from goalward.evaluation.run import prepare_pairs
from goalward.evaluation.simulators import SimulatorPool, simulator_pool
from goalward.evaluation.statistics import success_rate
from goalward.pipeline import Pipeline
from goalward.presets import controller_config
from goalward.tasks import TASKS
from goalward.tasks.task import State, Task
from goalward.world.latents import Latents

CPU = torch.device("cpu")
MODES: tuple[Literal["time-to-go", "budget"], ...] = ("time-to-go", "budget")


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to measure."""

    preset: PresetName = "cpu"
    """Demonstrations, network and schedule."""
    tasks: tuple[str, ...] = TASKS.names()
    """The tasks, one after the other."""
    protocol: str = "paper"
    """When an episode counts as a success."""
    pairs: int = defaults.PAIRS
    """Pairs of test episodes, those of `benchmarks.compare`."""
    seeds: tuple[int, ...] = (42,)
    """Of the controllers."""
    runs: Path = RUNS
    """Where datasets and latents are."""


def state_features(task: Task, rows: Mapping[str, Array]) -> Array:
    """What the task's measures tell of N states: (N, D) float32; angles as sine and cosine."""
    parts = []
    for measure in task.probe_targets:
        values = np.asarray(rows[measure.column])[:, list(measure.index)]
        parts += [np.sin(values), np.cos(values)] if measure.angle else [values]
    return np.concatenate(parts, axis=1).astype(np.float32)


def state_latents(pipeline: Pipeline) -> Latents:
    """The demonstrations with true states in place of latents."""
    latents, task = pipeline.latents(), pipeline.task
    with open_episodes(pipeline.episodes()) as episodes:
        columns = {m.column for m in task.probe_targets}
        rows = {name: episodes.read(name, 0, episodes.num_rows) for name in columns}
    states = replace(latents, z=state_features(task, rows))
    train_ND = states.of_episodes(states.split.train)
    mean, std = (tuple(map(float, f(axis=0))) for f in (train_ND.mean, train_ND.std))
    return replace(states, metadata=replace(latents.metadata, mean=mean, std=std))


def train(config: ControllerConfig, latents: Latents, folder: Path, title: str) -> Training:
    """Train, or find the trained weights in the folder."""
    assert config.time_to_go is not None
    folder.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        network = config.network.build()
        head = TimeToGo(config.time_to_go, config.network.latent_dim, config.network.max_horizon)
    training = Training(config, latents, network, folder, device=CPU, time_to_go=head)
    with progress(title, config.schedule.steps, unit="examples", quiet=False) as update:
        training.run(save_seconds=defaults.SAVE_SECONDS, on_progress=update)
    training.trainer.restore_best()
    return training


def successes(
    decide: ActionHead, pool: SimulatorPool, pairs: Pairs, task: Task, latents: Latents
) -> list[bool]:
    """Whether each pair is solved within the budget."""
    bounds = (latents.metadata.action_low, latents.metadata.action_high)
    low, high = (np.asarray(edge, dtype=np.float32) for edge in bounds)

    def act(states: Sequence[State], goals: Sequence[State], left: int) -> Array:
        z_BD, goal_BD = (torch.from_numpy(_stacked(task, rows)) for rows in (states, goals))
        steps_B = torch.full((len(z_BD),), left)
        with torch.inference_mode():
            return np.clip(decide(z_BD, goal_BD, steps_B).numpy(), low, high)

    def run(wave: Sequence[Pair]) -> list[bool]:
        moments = pool.begin({k: (a.start, a.goal) for k, a in enumerate(wave)})
        for left in range(defaults.BUDGET, 0, -1):
            active = [k for k in moments if not moments[k].success]
            if not active:
                break
            actions = act([moments[k].row for k in active], [wave[k].goal for k in active], left)
            moments |= pool.step(dict(zip(active, actions, strict=True)))
        return [moments[k].success for k in range(len(wave))]

    return [won for wave in waves(pairs.attempts, pool.number) for won in run(wave)]


def _stacked(task: Task, rows: Sequence[State]) -> Array:
    columns = {measure.column for measure in task.probe_targets}
    return state_features(task, {c: np.stack([row[c] for row in rows]) for c in columns})


def _trained_on(latents: Latents, preset: PresetName, seed: int) -> str:
    """What tells a training apart from those on other episodes or by another configuration."""
    config = controller_config(preset, latents, seed=seed)
    return content_id([to_json(config), to_json(latents.metadata)])[:8]


def measure(task_name: str, arguments: Arguments) -> dict[str, Any]:
    """Success of every seed, told the budget or the time to go."""
    pipeline = bench_pipeline(task_name, arguments.preset, arguments.runs)
    wanted = PairsConfig(
        task=task_name,
        protocol=arguments.protocol,
        count=arguments.pairs,
        split=pipeline.world_config().split,
    )
    pairs = prepare_pairs(pipeline.pairs_folder(wanted), wanted, pipeline.episodes())
    latents, config = state_latents(pipeline), pairs.metadata.config
    found: dict[str, list[list[bool]]] = {mode: [] for mode in MODES}
    with simulator_pool(
        config.task,
        config.protocol,
        pairs.metadata.scene,
        number=min(defaults.ENVIRONMENTS, arguments.pairs),
        workers=usable_cpus(),
    ) as pool:
        for seed in arguments.seeds:
            training = train(
                controller_config(arguments.preset, latents, seed=seed),
                latents,
                pipeline.folder / f"upper-bound-{_trained_on(latents, arguments.preset, seed)}",
                f"train {task_name} on states",
            )
            network, head = (
                training.trainer.modules[part].eval() for part in (NETWORK, TIME_TO_GO)
            )
            for mode in MODES:
                horizon = replace(training.config.horizon, mode=mode)
                decide = ActionHead(network, head, horizon)  # type: ignore[arg-type]
                found[mode].append(successes(decide, pool, pairs, pipeline.task, latents))
    return {
        "arguments": {k: v for k, v in asdict(arguments).items() if k != "runs"},
        "task": task_name,
        "pairs": pairs.id,
        "config": to_json(config),
        "success": found,
        "machine": machine(),
        "torch": torch.__version__,
        "git_revision": git_revision(),
    }


if __name__ == "__main__":
    given = tyro.cli(Arguments)
    for name in given.tasks:
        result = measure(name, given)
        path = RESULTS / "upper-bound" / given.preset / name / f"{given.protocol}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, result)
        rates = [
            (mode, str(success_rate(float(np.mean(wins, axis=0).sum()), len(wins[0]))))
            for mode, wins in result["success"].items()
        ]
        show_table(f"{name}: GC-IDM on the true state", ("told", "success"), rates)
        show_line(f"wrote {path}")

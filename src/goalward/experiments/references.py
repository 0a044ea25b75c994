"""References for success rates: policies that know nothing, recorded actions, the true state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from goalward import defaults
from goalward.control.act import ActionHead
from goalward.control.networks import GCIDM, PairwiseIDM, TimeToGo
from goalward.control.train import ControllerConfig, Training
from goalward.core.arrays import Array
from goalward.core.config import content_id, to_json
from goalward.data.episodes import open_episodes
from goalward.data.summary import summarise
from goalward.engines.local import LocalEngine
from goalward.evaluation.baselines import measure_baselines, solved_at_start
from goalward.evaluation.pairs import Pair, PairsConfig, draw_pairs, draw_starts, state_rows
from goalward.evaluation.results import ALL, MethodSummary
from goalward.evaluation.rollout import batches
from goalward.evaluation.simulators import SimulatorPools
from goalward.evaluation.statistics import design_effect, success_rate
from goalward.experiments.experiment import Row, preset_run
from goalward.experiments.runner import Runner
from goalward.pipeline import Pipeline
from goalward.presets import controller_config
from goalward.tasks import get_task
from goalward.tasks.task import RenderConfig, State, Task
from goalward.world.latents import Latents

CHECKED = 100  # recorded rows, and pairs, that are restored


def baselines(runner: Runner, task: str) -> Iterator[Row]:
    """Success of policies that learn nothing, under every protocol, for every demonstrator.

    Nothing is trained, so that pairs are of all episodes.
    """
    for name, data in _datasets(runner, task):
        for protocol in get_task(task).protocols:
            wanted = PairsConfig(task=task, protocol=protocol, count=runner.pairs, split="all")
            found = measure_baselines(draw_pairs(data, wanted), workers=runner.workers)
            for one in found.summary():
                yield baseline_name(name, one), {f"{protocol}, %": one.rate}


def baseline_name(demonstrator: str, baseline: MethodSummary) -> str:
    """Such as `random, moved pairs, goals of oracle`."""
    subset = "" if baseline.subset == ALL else f", {baseline.subset} pairs"
    return f"{baseline.method}{subset}, goals of {demonstrator}"


def _datasets(runner: Runner, task: str) -> Iterator[tuple[str, Path]]:
    """The episodes of every demonstrator of a task."""
    for name in get_task(task).demonstrators:
        yield name, runner.pipeline(replace(preset_run(task), demonstrator=name)).episodes()


def recordings(runner: Runner, task: str) -> Iterator[Row]:
    """How exactly recorded states restore and replay, and how rough recorded actions are."""
    for name, data in _datasets(runner, task):
        with LocalEngine(1) as engine:
            ((different, error),) = engine.map(check_exactness, [(task, data)])
        with open_episodes(data) as episodes:
            summary, solved = summarise(episodes), solved_at_start(episodes, get_task(task))
        assert summary.action is not None
        values = {
            "episodes": summary.episodes,
            f"frames of {CHECKED} that differ": different,
            "replay error, 99th percentile": error,
            "second difference of actions": summary.action.roughness,
            **{f"solved at the start, {key}, %": 100 * share for key, share in solved.items()},
        }
        yield f"demonstrations of {name}", values


def check_exactness(job: tuple[str, Path]) -> tuple[int, float]:
    """Restored frames that differ, and the 99th percentile of the error of replayed pairs.

    The error is the largest in the column of the first probe target. A worker process calls this.
    """
    task = get_task(job[0])
    simulator, column = task.simulator(RenderConfig()), task.probe_targets[0].column
    wanted = PairsConfig(task=task.name, protocol="paper", count=CHECKED, seed=1, split="all")
    with open_episodes(job[1]) as episodes:
        number = min(CHECKED, episodes.num_rows)
        index = np.random.default_rng(0).choice(episodes.num_rows, number, replace=False)
        frames, rows = episodes.rows("pixels", index), state_rows(episodes, task, index)
        first, offset = draw_starts(episodes, wanted), wanted.goal_offset
        actions = episodes.windows(first, offset, columns=["action"])["action"]
        starts, goals = (state_rows(episodes, task, first + k) for k in (0, offset))
    different = 0
    for i, frame in enumerate(frames):
        simulator.restore({name: values[i] for name, values in rows.items()})
        different += not np.array_equal(simulator.render(), frame)
    errors = []
    for i in range(len(actions)):
        simulator.restore({name: values[i] for name, values in starts.items()})
        for action in actions[i]:
            simulator.step(action)
        errors.append(np.abs(simulator.state()[column] - goals[column][i]).max())
    return different, float(np.percentile(errors, 99))


def true_state(runner: Runner, task: str) -> Iterator[Row]:
    """Success of GC-IDM on the true state instead of latents: same network, schedule and pairs.

    What it lacks is due to controller, demonstrations and horizon; what GC-IDM on latents lacks of
    it is due to the latents.
    """
    spec = preset_run(task)
    pipeline, pairs = runner.pipeline(spec), runner.pairs_of(spec)
    latents = state_latents(pipeline)
    config, network, time_to_go = _trained(runner, pipeline, latents, spec.seed)
    number = min(defaults.NUM_ENVS, len(pairs.pairs))
    episodes = [pair.episode for pair in pairs.pairs]
    with runner.simulators(pairs, number) as simulators:
        for mode in ("budget", "time-to-go"):
            head = ActionHead(network, time_to_go, replace(config.horizon, mode=mode))
            solved = [
                success
                for batch in batches(pairs.pairs, number)
                for success in _successes(head, pipeline.task, latents, simulators, batch)
            ]
            rate = success_rate(sum(solved), len(solved), design=design_effect(solved, episodes))
            yield f"GC-IDM on the true state, {mode} horizon", {"success, %": rate}


def state_features(task: Task, rows: Mapping[str, Array]) -> Array:
    """What the task's probe targets say of N states: (N, D) float32; angles as sine and cosine."""
    parts = []
    for target in task.probe_targets:
        values = np.asarray(rows[target.column])[:, list(target.index)]
        parts += [np.sin(values), np.cos(values)] if target.angle else [values]
    return np.concatenate(parts, axis=1).astype(np.float32)


def state_latents(pipeline: Pipeline) -> Latents:
    """The demonstrations with true states in place of latents."""
    latents, columns = pipeline.latents(), {one.column for one in pipeline.task.probe_targets}
    with open_episodes(pipeline.episodes()) as episodes:
        rows = {name: episodes.read(name, 0, episodes.num_rows) for name in columns}
    states = replace(latents, z=state_features(pipeline.task, rows))
    train_ND = states.of_episodes(states.split.train)
    mean, std = (tuple(map(float, f(axis=0))) for f in (train_ND.mean, train_ND.std))
    return replace(states, metadata=replace(latents.metadata, mean=mean, std=std))


def _trained(
    runner: Runner, pipeline: Pipeline, latents: Latents, seed: int
) -> tuple[ControllerConfig, GCIDM | PairwiseIDM, TimeToGo]:
    """The network and the head with their best weights; an interrupted training goes on."""
    config = controller_config(pipeline.preset, latents, seed=seed)
    if config.time_to_go is None:
        raise ValueError(f"preset {runner.preset} learns no time to go, which true-state needs")
    key = content_id([to_json(config), to_json(latents.metadata)])[:8]
    folder = pipeline.folder / f"true-state-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        network = config.network.build()
        head = TimeToGo(config.time_to_go, config.network.latent_dim, config.network.max_horizon)
    device = torch.device("cpu")
    training = Training(config, latents, network, folder, device=device, time_to_go=head)
    with runner.bar("train on true states", config.schedule.steps, "examples") as update:
        training.run(save_seconds=defaults.SAVE_SECONDS, on_progress=update)
    training.trainer.restore_best()
    return config, network.eval(), head.eval()


def _successes(
    head: ActionHead,
    task: Task,
    latents: Latents,
    simulators: SimulatorPools,
    batch: Sequence[Pair],
) -> list[bool]:
    """Whether each pair is solved within the budget."""
    metadata = latents.metadata
    low, high = np.array([metadata.action_low, metadata.action_high], dtype=np.float32)
    results = simulators.begin(dict(enumerate(batch)))
    for left in range(defaults.BUDGET, 0, -1):
        active = [k for k in results if not results[k].success]
        if not active:
            break
        z_BD = _features(task, [results[k].row for k in active])
        goal_BD = _features(task, [batch[k].goal for k in active])
        with torch.inference_mode():
            actions = head(z_BD, goal_BD, torch.full((len(active),), left)).numpy()
        results |= simulators.step(dict(zip(active, np.clip(actions, low, high), strict=True)))
    return [results[k].success for k in range(len(batch))]


def _features(task: Task, states: Sequence[State]) -> torch.Tensor:
    columns = {one.column for one in task.probe_targets}
    rows = {name: np.stack([state[name] for state in states]) for name in columns}
    return torch.from_numpy(state_features(task, rows))

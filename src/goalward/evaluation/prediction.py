"""Whether a world model predicts what actions do that its data seldom hold: does search work in it?

A search asks about actions that no demonstrator takes. So recorded actions, white noise and CEM's
own plans are executed in the simulator from the same held-out states, and what the world model
predicts for the end is compared with what comes of it. The error of a model that is of use is far
below that of copying the first latent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from goalward import defaults
from goalward.core.arrays import Array
from goalward.core.random import generator, torch_seed
from goalward.data.episodes import open_episodes
from goalward.data.splits import split_episodes
from goalward.data.summary import task_name
from goalward.data.windows import action_scale
from goalward.evaluation.pairs import Pairs, PairsConfig, draw_pairs
from goalward.evaluation.simulators import SimulatorPools
from goalward.planning.cost import LatentCost, last_latent
from goalward.planning.mpc import RawActions
from goalward.planning.solvers import CEM, SeededNoise
from goalward.tasks import find_task
from goalward.world.checkpoint import World
from goalward.world.frozen import FrameEncoder
from goalward.world.metrics import OutcomeError

RECORDED, WHITE_NOISE, CEM_PLANS = "recorded", "white noise", "CEM's plans"


def outcome_errors(
    world: World, pairs: Pairs, *, plans: int, workers: int = 1, seed: int = defaults.SEED
) -> tuple[OutcomeError, ...]:
    """Errors of predictions from one latent to the end of the pairs' goal distance.

    Args:
        world: The world model.
        pairs: Their starts, goals and recorded actions.
        plans: On how many of the pairs CEM plans.
        workers: Simulator processes.
        seed: Of white noise and plans.
    """
    task, encode = pairs.task, FrameEncoder(world.model)
    raw = RawActions(world, [-1.0] * task.action_dim, [1.0] * task.action_dim)
    steps = len(pairs.pairs[0].recorded) // world.frameskip * world.frameskip
    recorded_BLR = np.stack([pair.recorded[:steps] for pair in pairs.pairs])
    blocks_BHA = raw.to_blocks(torch.from_numpy(recorded_BLR))
    noise_BHA = torch.from_numpy(generator("white noise", seed).normal(size=blocks_BHA.shape))
    with SimulatorPools(workers) as pools:
        frames = _outcomes(pools, pairs, recorded_BLR)
        z_BD = encode(torch.from_numpy(frames[0]))
        goals_BHWC = np.stack([pair.goal_frame for pair in pairs.pairs[:plans]])
        planned_BHA = _plans(world, z_BD[:plans], encode(torch.from_numpy(goals_BHWC)), steps, seed)
        tried = {
            RECORDED: recorded_BLR,
            WHITE_NOISE: raw.from_blocks(noise_BHA.float()),
            CEM_PLANS: raw.from_blocks(planned_BHA),
        }
        found = []
        for name, actions_BLR in tried.items():
            few = replace(pairs, pairs=pairs.pairs[: len(actions_BLR)])
            _, after = frames if name == RECORDED else _outcomes(pools, few, actions_BLR)
            blocks = raw.to_blocks(torch.from_numpy(actions_BLR))
            start_BD, end_BD = z_BD[: len(after)], encode(torch.from_numpy(after))
            with torch.inference_mode():
                predicted_BD = last_latent(
                    world.model, start_BD[None], blocks.transpose(0, 1).to(start_BD)
                )
            found.append(
                OutcomeError(
                    actions=name,
                    model=float((predicted_BD - end_BD).square().mean()),
                    copy_first=float((start_BD - end_BD).square().mean()),
                    sequences=len(after),
                )
            )
    return tuple(found)


def simulated_outcomes(
    world: World,
    dataset: Path,
    task: str | None,
    *,
    pairs: int,
    plans: int,
    workers: int,
    seed: int,
) -> tuple[OutcomeError, ...]:
    """The same on held-out pairs of a dataset; none where its states cannot be simulated."""
    with open_episodes(dataset) as episodes:
        name = task_name(episodes, task)
        known = find_task(name)
        if known is None or any(one not in episodes.columns for one in known.restore_columns):
            return ()
        split = split_episodes(episodes.num_episodes, world.split)
        scale = world.actions or action_scale(episodes, split.train)
        count = min(pairs, len(episodes.window_starts(defaults.GOAL_OFFSET + 1, split.test)))
    if not count:
        return ()
    wanted = PairsConfig(task=known.name, count=count, seed=seed, split_config=world.split)
    return outcome_errors(
        replace(world, actions=scale),
        draw_pairs(dataset, wanted),
        plans=min(plans, count),
        workers=workers,
        seed=seed,
    )


def _plans(world: World, z_BD: Tensor, z_goal_BD: Tensor, steps: int, seed: int) -> Tensor:
    """CEM's first plans (B, H, A), of the paper's size."""
    horizon = steps // world.frameskip
    mean_BHA = z_BD.new_zeros(len(z_BD), horizon, world.model.config.block_dim)
    seeds = [torch_seed("planning", seed, k) for k in range(len(z_BD))]
    generators = [torch.Generator().manual_seed(one) for one in seeds]
    noise = SeededNoise(generators=generators, like=mean_BHA)
    with torch.inference_mode():
        return CEM()(
            LatentCost(world.model, z_BD[:, None], z_goal_BD), mean_BHA, noise=noise
        ).actions


def _outcomes(pools: SimulatorPools, pairs: Pairs, actions_BLR: Array) -> tuple[Array, Array]:
    """The first and the last frame of every action sequence, from its pair's start."""
    before, after = [], []
    numbers = range(len(pairs))
    for first in numbers[:: defaults.NUM_ENVS]:
        some = numbers[first : first + defaults.NUM_ENVS]
        pools.use(*pairs.setting, defaults.NUM_ENVS)
        shown = pools.begin({k - first: pairs.pairs[k] for k in some})
        before += [shown[k - first].frame for k in some]
        for t in range(actions_BLR.shape[1]):
            actions: Mapping[int, Array] = {k - first: actions_BLR[k, t] for k in some}
            shown = pools.step(actions)
        after += [shown[k - first].frame for k in some]
    return np.stack(before), np.stack(after)

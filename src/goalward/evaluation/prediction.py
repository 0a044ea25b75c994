"""Whether a world model predicts what actions do that its data seldom hold: does search work in it?

A search asks about actions that no demonstrator takes. So recorded actions, white noise and CEM's
own plans are executed in the simulator from the same held-out states, and what the world model
predicts for the end is compared with what comes of it. The error of a model that is of use is far
below that of copying the first latent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from goalward import defaults
from goalward.core.arrays import Array
from goalward.core.random import generator, torch_seed
from goalward.evaluation.pairs import Pairs
from goalward.evaluation.simulators import SimulatorPools
from goalward.planning.cost import LatentCost, last_latent
from goalward.planning.mpc import RawActions
from goalward.planning.solvers import CEM, SeededNoise
from goalward.world.checkpoint import World
from goalward.world.frozen import FrameEncoder

RECORDED, WHITE_NOISE, CEM_PLANS = "recorded", "white noise", "CEM's plans"


@dataclass(frozen=True, kw_only=True)
class OutcomeError:
    """Mean squared error of a latent's number, predicted for the end of some action sequences."""

    actions: str  # which ones
    model: float
    copy_first: float  # error of predicting that nothing changes
    sequences: int

    @property
    def ratio(self) -> float:
        """Below 1: better than copying."""
        return self.model / max(self.copy_first, 1e-12)


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

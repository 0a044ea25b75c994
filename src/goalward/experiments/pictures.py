"""Studies that end in pictures: latents over training, plans in latent space, executions.

Shapes: N points, S candidate plans, H model steps, T frames, D latent numbers, A numbers of an
action block.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from goalward.control.checkpoint import TrainedIDM
from goalward.core.arrays import Array
from goalward.core.figures import (
    GREEN,
    INK,
    ORANGE,
    VERMILION,
    add_common_legend,
    add_heading,
    label_axes,
    new_figure,
    save_figure,
    style_axes,
)
from goalward.evaluation.pairs import Pair
from goalward.evaluation.rollout import run_wave
from goalward.evaluation.simulators import SimulatorPool
from goalward.evaluation.video import save_comparison
from goalward.experiments.experiment import GC_IDM, Cell, Findings
from goalward.experiments.run import Bench, Lab
from goalward.planning.cost import LatentCost
from goalward.planning.mpc import MPCConfig
from goalward.planning.solvers import CEM, SeededNoise
from goalward.world.frozen import FrameEncoder
from goalward.world.train import LATENTS

SHOWN_PAIRS = 4  # as in the paper
SHOWN_PLANS = 200  # of those that CEM tries out
SHOWN_LATENTS = 2_000
PALE = "#BBBBBB"
METHODS = (GC_IDM, "cem")


def compared_cells(task: str) -> list[Cell]:
    """GC-IDM and CEM."""
    return [Cell(task=task, method=method) for method in METHODS]


def latents_over_training(lab: Lab, task: str, folder: Path) -> Findings:
    """One episode's latents while the world model learns, as its training drew them."""
    drawn = lab.pipeline(task).world() / LATENTS
    if not drawn.exists():  # an episode too short to draw
        return Findings()
    path = folder / f"latents-{task}.png"
    shutil.copyfile(drawn, path)
    return Findings(pictures=(path,))


def executions(lab: Lab, task: str, folder: Path) -> Findings:
    """Demonstration, GC-IDM and CEM on the same pairs, as filmstrips and as moving pictures."""
    benches = [lab.bench(cell) for cell in compared_cells(task)]
    pairs = benches[0].setting.pairs
    shown = range(min(SHOWN_PAIRS, len(pairs.attempts)))
    runs = [bench.run for bench in benches]
    (folder / task).mkdir(exist_ok=True)
    paths = save_comparison(folder / task, pairs, runs, shown=shown)
    return Findings(pictures=tuple(paths))


def plans_in_latent_space(lab: Lab, task: str, folder: Path) -> Findings:
    """What CEM tries out before it acts, and the ways that both methods take."""
    benches = [lab.bench(cell) for cell in compared_cells(task)]
    pairs = benches[0].setting.pairs
    attempt = pairs.attempts[0]
    model = lab.model(compared_cells(task)[0])
    encode = FrameEncoder(model.world)
    with lab.simulators(pairs, number=1) as pool:
        ways = [_way(bench, pool, attempt, encode) for bench in benches]
    z_goal_D = _encoded(encode, attempt.goal_frame[None])[0]
    latents = lab.pipeline(task).latents()
    others = latents.of_episodes(latents.split.test)
    scene = _Scene(
        task=task,
        others=others[:: max(1, len(others) // SHOWN_LATENTS)],
        plans=candidate_rollouts(model, ways[0][0], z_goal_D),
        goal=z_goal_D,
        ways=dict(zip(("GC-IDM", "CEM"), ways, strict=True)),
    )
    path = folder / f"plans-{task}.png"
    _draw(path, scene)
    return Findings(pictures=(path,))


def candidate_rollouts(model: TrainedIDM, z_D: Array, z_goal_D: Array) -> Array:
    """Latents (S, H + 1, D) along plans as CEM evaluates them for its first decision.

    They are taken evenly from all its iterations, from blind guesses to the last ones.
    """
    world, config = model.world, MPCConfig()
    device = next(world.parameters()).device
    z_BTD, goal_BD = (torch.from_numpy(x).to(device) for x in (z_D[None, None], z_goal_D[None]))
    cost, tried = LatentCost(world, z_BTD, goal_BD), []

    def remembering(plans_BSHA: Tensor) -> Tensor:
        tried.append(plans_BSHA[0])
        return cost(plans_BSHA)

    mean_BHA = torch.zeros(1, config.horizon, world.config.block_dim, device=device)
    generator = torch.Generator().manual_seed(config.seed)
    CEM()(remembering, mean_BHA, noise=SeededNoise(generators=[generator], like=mean_BHA))
    plans_NHA = torch.cat(tried)
    chosen_SHA = plans_NHA[:: max(1, len(plans_NHA) // SHOWN_PLANS)]
    start_SD = z_BTD[0].expand(len(chosen_SHA), -1)
    with torch.inference_mode():
        later_SHD = world.rollout(start_SD[:, None], chosen_SHA)
    return torch.cat([start_SD[:, None], later_SHD], dim=1).cpu().numpy()


def _way(bench: Bench, pool: SimulatorPool, attempt: Pair, encode: FrameEncoder) -> Array:
    """Latents (T, D) of an execution."""
    run = bench.run
    controller = run.method.make(run.seed)
    (episode,) = run_wave(controller, pool, [attempt], budget=bench.setting.budget)
    return _encoded(encode, episode.frames)


def _encoded(encode: FrameEncoder, frames: Array) -> Array:
    return encode(torch.from_numpy(frames)).cpu().numpy()


@dataclass(frozen=True, kw_only=True)
class _Scene:
    """What there is to draw of one attempt."""

    task: str
    others: Array  # (N, D), held-out latents
    plans: Array  # (S, H + 1, D)
    goal: Array  # (D,)
    ways: dict[str, Array]  # (T, D) by method


def _draw(path: Path, scene: _Scene) -> None:
    """Plans and ways on the plane in which the plans and ways differ most.

    A plane, not t-SNE as in the paper: straight lines stay straight, and what looks nearer to the
    goal is nearer in these two directions.
    """
    sample_plans = np.concatenate([*scene.ways.values(), scene.plans.reshape(-1, len(scene.goal))])
    centre_D = sample_plans.mean(axis=0)
    axes_2D = np.linalg.svd(sample_plans - centre_D, full_matrices=False)[2][:2]

    def place(z: Array) -> Array:
        return (z - centre_D) @ axes_2D.T

    figure = new_figure(7.5, 5.6)
    add_heading(figure, f"{scene.task}: what CEM tries out, and what is done")
    axes = figure.add_subplot()
    style_axes(axes, "")
    x, y = place(scene.others).T
    axes.scatter(x, y, s=3, color=PALE, label="held-out latents", zorder=1)
    for number, plan_HD in enumerate(scene.plans):
        label = f"{len(scene.plans)} of CEM's plans" if number == 0 else None
        axes.plot(*place(plan_HD).T, color=ORANGE, alpha=0.2, linewidth=0.7, label=label)
    for colour, (name, way_TD) in zip((GREEN, VERMILION), scene.ways.items(), strict=True):
        label = f"{name}, {len(way_TD) - 1} steps"
        axes.plot(
            *place(way_TD).T, color=colour, linewidth=2, marker=".", markersize=5, label=label
        )
    start, goal = place(scene.ways["GC-IDM"][0]), place(scene.goal)
    axes.plot(*start, marker="o", markersize=9, color=INK, linestyle="", label="start")
    axes.plot(*goal, marker="*", markersize=15, color=INK, linestyle="", label="goal")
    label_axes(axes, "first principal axis", "second")
    # Below, because inside its marks would be taken for another start and goal.
    add_common_legend(figure, axes)
    for shown in figure.legends[0].legend_handles:
        assert shown is not None
        shown.set_alpha(1)  # pale lines are many in the picture, and one here
    save_figure(figure, path)

"""Analyses that draw pictures: plans in latent space, executions.

Shapes: N points, S candidate plans, H model steps, T frames, D latent numbers, A numbers of an
action block.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from goalward.control.checkpoint import TrainedIDM
from goalward.core import figures as style
from goalward.core.arrays import Array
from goalward.evaluation.rollout import run_batch
from goalward.evaluation.video import save_comparison
from goalward.experiments import experiment
from goalward.experiments.experiment import GC_IDM, RunSpec, preset_run
from goalward.experiments.runner import Runner
from goalward.planning.cost import LatentCost
from goalward.planning.mpc import MPCConfig
from goalward.planning.solvers import CEM, SeededNoise
from goalward.world.frozen import FrameEncoder
from goalward.world.train import LATENTS

SHOWN_PAIRS = 4  # as in the paper
SHOWN_PLANS = 200  # of those that CEM considers
SHOWN_LATENTS = 2_000
PALE = "#BBBBBB"
COMPARED = {"GC-IDM": GC_IDM, "CEM": experiment.CEM}


def compared_runs(task: str) -> dict[str, RunSpec]:
    """GC-IDM and CEM."""
    return {name: RunSpec(task=task, controller=one.controller) for name, one in COMPARED.items()}


def latents_over_training(runner: Runner, task: str, folder: Path) -> list[Path]:
    """One episode's latents while the world model learns, as its training drew them."""
    drawn = runner.pipeline(preset_run(task)).world() / LATENTS
    if not drawn.exists():  # an episode too short to draw
        return []
    path = folder / f"latents-{task}.png"
    shutil.copyfile(drawn, path)
    return [path]


def executions(runner: Runner, task: str, folder: Path) -> list[Path]:
    """Demonstration, GC-IDM and CEM on the same pairs, as filmstrips and as animations."""
    runs = [*compared_runs(task).values()]
    pairs = runner.pairs_of(runs[0])
    shown = range(min(SHOWN_PAIRS, len(pairs.pairs)))
    (folder / task).mkdir(exist_ok=True)
    return save_comparison(folder / task, pairs, [*map(runner.controller, runs)], numbers=shown)


def plans_in_latent_space(runner: Runner, task: str, folder: Path) -> list[Path]:
    """Plans that CEM considers before it acts, and the paths of both controllers."""
    runs = compared_runs(task)
    spec = runs["GC-IDM"]
    pairs, model = runner.pairs_of(spec), runner.model(spec)
    latents = runner.pipeline(spec).latents()
    encode, pair = FrameEncoder(model.world.model), pairs.pairs[0]
    paths = {}
    with runner.simulators(pairs, number=1) as simulators:
        for name, run in runs.items():
            controller = runner.controller(run).controller()
            (episode,) = run_batch(controller, simulators, [pair], budget=run.budget)
            paths[name] = _encoded(encode, episode.frames)
    z_goal_D = _encoded(encode, pair.goal_frame[None])[0]
    others_ND = latents.of_episodes(latents.split.test)
    path = folder / f"plans-{task}.png"
    _draw(
        path,
        f"{task}: plans of CEM, and what both controllers do",
        others_ND[:: max(1, len(others_ND) // SHOWN_LATENTS)],
        candidate_rollouts(model, paths["GC-IDM"][0], z_goal_D),
        paths,
        z_goal_D,
    )
    return [path]


def candidate_rollouts(model: TrainedIDM, z_D: Array, z_goal_D: Array) -> Array:
    """Latents (S, H + 1, D) along plans as CEM evaluates them for its first decision.

    They are taken evenly from all its iterations, from blind guesses to the last ones.
    """
    world, config = model.world.model, MPCConfig()
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


def _encoded(encode: FrameEncoder, frames: Array) -> Array:
    return encode(torch.tensor(frames)).cpu().numpy()  # a copy: pairs are read-only


def _draw(
    path: Path,
    title: str,
    others_ND: Array,
    plans_SHD: Array,
    paths_TD: Mapping[str, Array],
    z_goal_D: Array,
) -> None:
    """Plans and paths on the plane in which they differ most.

    Not t-SNE, as in the paper: straight lines stay straight, and what looks nearer to the goal is
    nearer in these two directions.
    """
    sample_ND = np.concatenate([*paths_TD.values(), plans_SHD.reshape(-1, len(z_goal_D))])
    centre_D = sample_ND.mean(axis=0)
    axes_2D = np.linalg.svd(sample_ND - centre_D, full_matrices=False)[2][:2]

    def place(z: Array) -> Array:
        return (z - centre_D) @ axes_2D.T

    figure = style.new_figure(7.5, 5.6)
    style.add_heading(figure, title)
    axes = figure.add_subplot()
    style.style_axes(axes, "")
    x, y = place(others_ND).T
    axes.scatter(x, y, s=3, color=PALE, label="held-out latents", zorder=1)
    for number, plan_HD in enumerate(plans_SHD):
        label = f"{len(plans_SHD)} of CEM's plans" if number == 0 else None
        axes.plot(*place(plan_HD).T, color=style.ORANGE, alpha=0.2, linewidth=0.7, label=label)
    for colour, (name, path_TD) in zip(
        (style.GREEN, style.VERMILION), paths_TD.items(), strict=True
    ):
        label = f"{name}, {len(path_TD) - 1} steps"
        axes.plot(
            *place(path_TD).T, color=colour, linewidth=2, marker=".", markersize=5, label=label
        )
    start, goal = place(paths_TD["GC-IDM"][0]), place(z_goal_D)
    axes.plot(*start, marker="o", markersize=9, color=style.INK, linestyle="", label="start")
    axes.plot(*goal, marker="*", markersize=15, color=style.INK, linestyle="", label="goal")
    style.label_axes(axes, "first principal axis", "second")
    # Below, because inside its marks would be taken for another start and goal.
    style.add_common_legend(figure, axes)
    for shown in figure.legends[0].legend_handles:
        assert shown is not None
        shown.set_alpha(1)  # pale lines are many in the picture, and one here
    style.save_figure(figure, path)

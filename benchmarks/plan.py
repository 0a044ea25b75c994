"""Planning speed: goalward's CEM, stable-worldmodel's CEMSolver, and the bare arithmetic.

Both plan with the paper's settings (300 samples, horizon 5) on the same random weights, at the size
of the preset `cpu`, from latents to plan: neither encodes frames. Every iteration of a search does
the same work, so a few are timed and multiplied.

stable-worldmodel solves for one environment after the other unless its `batch_size` says otherwise.
With goals as frames it must: its LeWM then takes the goals' axis of environments for that of
samples. With goals as latents, as here, it need not; both ways are timed.
"""

from __future__ import annotations

import io
import sys
import warnings
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import tyro
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.setting import (
    Work,
    matrix_product,
    rates_in_turns,
    show_arithmetic,
    show_rates,
)
from goalward.bundle import controller_path
from goalward.control.checkpoint import load_trained_idm
from goalward.core.console import show_line
from goalward.core.machine import use_threads
from goalward.planning.cost import LatentCost
from goalward.planning.mpc import MPCConfig
from goalward.planning.solvers import CEM, SeededNoise
from goalward.world.lewm import LeWM, LeWMConfig

WANTED = {1: 1.0, 16: 1.3}  # goalward over stable-worldmodel, by environments at once
WITHIN = 1.5  # goalward's time over that of the arithmetic
ACTION = 2  # numbers of a raw action
HORIZON = MPCConfig().horizon
SIDE = 1024  # of the bare matrix products

OURS, ONE, ALL, PRODUCT = "goalward", "stable-worldmodel, one by one", "all at once", "product"


def make_model() -> LeWM:
    """A world model of the preset `cpu`'s size, with random weights whose gates are open."""
    bundled = load_trained_idm(controller_path("two-room")).world.model
    torch.manual_seed(0)
    model = LeWM(bundled.config).eval()
    with torch.no_grad():
        for parameter in model.predictor.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    return model


def their_model(ours: LeWM) -> Any:
    """stable-worldmodel's LeWM with the same weights, all but the encoder."""
    from stable_worldmodel.wm.lewm import module
    from stable_worldmodel.wm.lewm.lewm import LeWM as TheirLeWM

    config, dim = ours.config, ours.config.latent_dim
    predictor = module.Predictor(
        num_frames=config.history,
        input_dim=dim,
        hidden_dim=dim,
        depth=config.predictor.depth,
        heads=config.predictor.heads,
        dim_head=config.predictor.dim_head,
        mlp_dim=config.predictor.mlp_dim,
    )
    actions = module.Embedder(config.block_dim, smoothed_dim=config.block_dim, emb_dim=dim)
    head = module.MLP(dim, config.projector_dim, norm_fn=nn.BatchNorm1d)
    theirs = TheirLeWM(nn.Identity(), predictor, actions, pred_proj=head).eval()
    tensors = ours.state_dict()
    theirs.load_state_dict({name: tensors[name] for name in theirs.state_dict()})
    return theirs


def latents(environments: int, dim: int) -> tuple[Tensor, Tensor]:
    """Where plans start (B, D), and where they should end (B, D)."""
    rng = torch.Generator().manual_seed(environments)
    z, goal = torch.randn(2, environments, dim, generator=rng)
    return z, goal


def our_plan(model: LeWM, environments: int, solver: CEM) -> Tensor:
    """Plans (B, H, A) of goalward."""
    z_BD, goal_BD = latents(environments, model.config.latent_dim)
    generators = [torch.Generator().manual_seed(k) for k in range(environments)]
    start_BHA = torch.zeros(environments, HORIZON, model.config.block_dim)
    cost = LatentCost(model, z_BD[:, None], goal_BD)
    noise = SeededNoise(generators=generators, like=start_BHA)
    return solver(cost, start_BHA, noise=noise).actions


def their_info(environments: int, dim: int) -> dict[str, Tensor]:
    """What stable-worldmodel's LeWM would have made of frames, which are not needed themselves."""
    z_BD, goal_BD = latents(environments, dim)
    frames = torch.zeros(environments, 1, 1)
    return {"pixels": frames, "goal": frames, "emb": z_BD[:, None], "goal_emb": goal_BD[:, None]}


def their_plan(model: Any, environments: int, solver: CEM, batch_size: int) -> Tensor:
    """Plans (B, H, A) of stable-worldmodel."""
    import gymnasium as gym
    from stable_worldmodel.policy import PlanConfig
    from stable_worldmodel.solver import CEMSolver

    theirs = CEMSolver(
        model,
        batch_size=batch_size,
        num_samples=solver.num_samples,
        n_steps=solver.num_iters,
        topk=solver.num_elites,
    )
    input_dim, dim = model.action_encoder.input_dim, model.predictor.input_dim
    space = gym.spaces.Box(-1, 1, (environments, ACTION), dtype=np.float32)
    config = PlanConfig(HORIZON, HORIZON, action_block=input_dim // ACTION)
    theirs.configure(action_space=space, n_envs=environments, config=config)
    with redirect_stdout(io.StringIO()):  # it prints its own time
        return theirs.solve(their_info(environments, dim))["actions"]


def rollout_operations(config: LeWMConfig, horizon: int) -> int:
    """Floating-point operations of a rollout's matrix products, as the model is written down.

    A call of the predictor sees all steps so far, at most `config.history`; only the last one goes
    through the head.
    """
    dim, inner = config.latent_dim, config.predictor.heads * config.predictor.dim_head
    step = dim * 6 * dim + dim * 3 * inner + inner * dim + 2 * dim * config.predictor.mlp_dim
    windows = [min(t, config.history) for t in range(1, horizon + 1)]
    blocks = sum(steps * step + 2 * steps**2 * inner for steps in windows)  # and attention
    head = 2 * dim * config.projector_dim
    actions = config.block_dim**2 + config.block_dim * 4 * dim + 4 * dim * dim
    return 2 * (config.predictor.depth * blocks + horizon * (head + actions))


def computed_operations(model: LeWM, solver: CEM) -> float:
    """Floating-point operations of the linear layers that goalward computes in a plan."""
    with FlopCounterMode(display=False) as counter:
        our_plan(model, 1, replace(solver, num_iters=1))
    return float(counter.get_total_flops()) * solver.num_iters


def works_of(ours: LeWM, theirs: Any, environments: int, solver: CEM) -> dict[str, Work]:
    """A search of every side, for so many environments at once."""
    works: dict[str, Work] = {ONE: partial(their_plan, theirs, environments, solver, 1)}
    if environments > 1:
        works[ALL] = partial(their_plan, theirs, environments, solver, environments)
    return {**works, OURS: partial(our_plan, ours, environments, solver)}


def main(
    environments: tuple[int, ...] = tuple(WANTED),
    iterations: int = 3,
    repeats: int = 5,
    threads: int | None = None,
) -> int:
    """Measure planning speed; exit code 1 if something is slower than is wanted.

    Args:
        environments: How many plans are made at once.
        iterations: Iterations of a search that are timed; a plan has 30.
        repeats: Turns of each side.
        threads: CPU threads of torch (default: torch's choice).
    """
    use_threads(threads)
    warnings.simplefilter("ignore")  # stable-worldmodel's own, about what nothing here uses
    solver, model = CEM(), make_model()
    theirs, few = their_model(model), replace(solver, num_iters=iterations)
    product, operations = matrix_product(SIDE, SIDE, SIDE)
    works: dict[tuple[int, str], Work] = {(0, PRODUCT): product}
    for number in environments:
        works |= {(number, side): w for side, w in works_of(model, theirs, number, few).items()}
    calls = rates_in_turns(works, repeats, seconds=0.2)

    enough = True
    for number in environments:
        share = number * iterations / solver.num_iters  # of whole plans in a call
        rates = {side: share * found for (n, side), found in calls.items() if n == number}
        ours = {OURS: rates.pop(OURS)}
        title = f"CEM plans per second, {number} at once, {torch.get_num_threads()} threads"
        enough = show_rates(title, rates, ours, wanted=WANTED.get(number)) and enough

    fewest = min(environments)
    plan_seconds = solver.num_iters / (iterations * fewest * np.median(calls[fewest, OURS]))
    rollouts, written = solver.num_samples * solver.num_iters, "as the model is written"
    over = show_arithmetic(
        "plan",
        operations * float(np.median(calls[0, PRODUCT])),
        {
            written: (rollouts * rollout_operations(model.config, HORIZON), plan_seconds),
            "as goalward computes it": (computed_operations(model, solver), plan_seconds),
        },
    )[written]
    close = over <= WITHIN
    verdict = "reached" if close else "above"
    show_line(f"Arithmetic {written}: {over:.2f}x, wanted at most {WITHIN}x, {verdict}.")
    return 0 if enough and close else 1


if __name__ == "__main__":
    sys.exit(tyro.cli(main))

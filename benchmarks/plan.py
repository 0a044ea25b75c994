"""Seconds a CEM plan: goalward beside stable-worldmodel's CEMSolver, and beside bare arithmetic.

Both plan with the paper's settings (300 samples, horizon 5) on the same random weights, at the size
of the preset `cpu`, from latents to plan: neither encodes frames. Every iteration of a search does
the same work, so a few are timed and multiplied. Sides take turns, so that other load on the
machine meets both.

stable-worldmodel solves for one environment after the other unless told otherwise. With goals given
as frames it must: its LeWM then takes the goals' axis of environments for that of samples. Given as
latents, as here, goals survive its `batch_size`; it is measured both ways, and the quicker counts.
"""

from __future__ import annotations

import io
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
import tyro
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from goalward.core.console import show_line, show_table
from goalward.core.machine import use_threads
from goalward.planning.cost import LatentCost
from goalward.planning.mpc import MPCConfig
from goalward.planning.solvers import CEM, SeededNoise
from goalward.presets import _cpu
from goalward.world.lewm import LeWM, LeWMConfig

WANTED = {1: 1.0, 16: 1.3}  # stable-worldmodel's time over goalward's, by environments at once
WITHIN = 1.5  # goalward's time over that of its arithmetic
ACTION = 2  # numbers of a raw action
HORIZON = MPCConfig().horizon
SIDE, PRODUCTS = 1024, 8  # of the bare matrix products

OURS, ONE, ALL, PRODUCT = "goalward", "stable-worldmodel, one by one", "all at once", "product"

Work = Callable[[], object]
Key = tuple[str, int]  # a side, and environments at once


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Measure the speed of planning."""

    environments: tuple[int, ...] = tuple(WANTED)
    """How many plans are made at once."""
    iterations: int = 3
    """Iterations of a search that are timed; a plan has 30."""
    repeats: int = 5
    """Turns of each side; medians are shown."""
    threads: int | None = None
    """CPU threads of torch; its own choice where this is left out."""


def make_model() -> LeWM:
    """A world model of the preset `cpu`, with random weights whose gates are open."""
    torch.manual_seed(0)
    model = LeWM(_cpu("cpu", None, ACTION, 0).model).eval()
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
    """What stable-worldmodel's LeWM would have made of frames; those themselves are not needed."""
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


def bare_products(left: Tensor, right: Tensor, out: Tensor) -> None:
    """Large matrix products and nothing else."""
    for _ in range(PRODUCTS):
        torch.mm(left, right, out=out)


def rollout_operations(config: LeWMConfig, horizon: int) -> int:
    """Floating-point operations of a rollout's matrix products, done as the model is written down.

    A call of the predictor sees as many steps as there are so far, at most `config.history`; only
    the last one goes through the head.
    """
    dim, inner = config.latent_dim, config.predictor.heads * config.predictor.dim_head
    step = dim * 6 * dim + dim * 3 * inner + inner * dim + 2 * dim * config.predictor.mlp_dim
    windows = [min(t, config.history) for t in range(1, horizon + 1)]
    blocks = sum(steps * step + 2 * steps**2 * inner for steps in windows)  # and attention
    head = 2 * dim * config.projector_dim
    actions = config.block_dim**2 + config.block_dim * 4 * dim + 4 * dim * dim
    return 2 * (config.predictor.depth * blocks + horizon * (head + actions))


def done_operations(model: LeWM, solver: CEM) -> float:
    """Floating-point operations of the linear layers in a plan, as goalward does them."""
    with FlopCounterMode(display=False) as counter:
        our_plan(model, 1, replace(solver, num_iters=1))
    return float(counter.get_total_flops()) * solver.num_iters


def seconds_of(work: Work) -> float:
    """How long one call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def measure(ours: LeWM, arguments: Arguments) -> dict[Key, float]:
    """Median seconds of each side's work, taking turns."""
    theirs, quick = their_model(ours), replace(CEM(), num_iters=arguments.iterations)
    square = [torch.rand(SIDE, SIDE) for _ in range(3)]
    works: dict[Key, Work] = {(PRODUCT, 0): partial(bare_products, *square)}
    for number in arguments.environments:
        works[OURS, number] = partial(our_plan, ours, number, quick)
        works[ONE, number] = partial(their_plan, theirs, number, quick, 1)
        if number > 1:
            works[ALL, number] = partial(their_plan, theirs, number, quick, number)
    for side in (OURS, ONE):  # what either needs but once in a process
        works[side, arguments.environments[0]]()
    turns = [
        {key: seconds_of(work) for key, work in works.items()} for _ in range(arguments.repeats)
    ]
    return {key: statistics.median(turn[key] for turn in turns) for key in works}


def plan_seconds(seconds: dict[Key, float], arguments: Arguments) -> dict[Key, float]:
    """Seconds of a whole plan for one environment, of every side."""
    iterations = CEM().num_iters / arguments.iterations
    return {
        (side, number): iterations * found / number
        for (side, number), found in seconds.items()
        if side != PRODUCT
    }


def ratio(plans: dict[Key, float], number: int) -> float:
    """The quicker one of stable-worldmodel's times over goalward's."""
    return (
        min(plans[side, number] for side in (ONE, ALL) if (side, number) in plans)
        / plans[OURS, number]
    )


def show_plans(plans: dict[Key, float]) -> None:
    """Print seconds a plan, and ratios."""
    rows = [
        (str(number), side, f"{found:.2f}", f"{found / plans[OURS, number]:.2f}x")
        for (side, number), found in plans.items()
    ]
    title = f"Seconds a plan and environment: CEM, preset cpu, {torch.get_num_threads()} threads"
    show_table(title, ("environments", "planner", "seconds", "over goalward's"), rows)


def show_arithmetic(model: LeWM, plans: dict[Key, float], speed: float) -> float:
    """Print how long the arithmetic alone would take; the time over it, at one environment."""
    solver, number = CEM(), min(number for _, number in plans)
    rollouts = solver.num_samples * solver.num_iters
    written = rollouts * rollout_operations(model.config, HORIZON)
    rows, found = [], plans[OURS, number]
    for name, operations in (
        (f"{rollouts * HORIZON:,} predictor calls as written", written),
        ("what goalward computes of them", done_operations(model, solver)),
    ):
        bound = operations / speed
        rows.append((name, f"{operations / 1e9:.0f}", f"{bound:.2f}", f"{found / bound:.2f}x"))
    title = f"Matrix products at this machine's {speed / 1e9:.0f} GFLOP/s (float32, measured)"
    show_table(title, ("arithmetic of a plan", "GFLOP", "seconds", "goalward's time over it"), rows)
    return found * speed / written


def verdicts(plans: dict[Key, float], over: float, environments: Sequence[int]) -> bool:
    """Print whether what is wanted is reached."""
    reached = over <= WITHIN
    show_line(f"Within {WITHIN}x of the arithmetic: {over:.2f}x, {'ok' if reached else 'above'}.")
    for number in environments:
        found, wanted = ratio(plans, number), WANTED.get(number, 0.0)
        verdict = "ok" if found >= wanted else "below"
        show_line(f"{number} at once: {found:.2f}x, wanted {wanted:.1f}x: {verdict}.")
        reached = reached and found >= wanted
    return reached


def main(arguments: Arguments) -> int:
    """Measure and print; exit code 1 when something is below what is wanted."""
    use_threads(arguments.threads)
    model = make_model()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # stable-worldmodel's own, about what nothing here uses
        seconds = measure(model, arguments)
    plans = plan_seconds(seconds, arguments)
    show_plans(plans)
    speed = PRODUCTS * 2 * SIDE**3 / seconds[PRODUCT, 0]
    over = show_arithmetic(model, plans, speed)
    return 0 if verdicts(plans, over, arguments.environments) else 1


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Arguments)))

"""Bad calls of planners."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from bad_call_kit import SCALE, SOLVERS, Call, Draw, Kit, api, one_bad
from bad_values import (
    NAN,
    NO_NUMBER,
    NO_TEXT,
    TEXT,
    Values,
    either,
    no_shape,
    no_tensor,
    no_whole_number,
    not_none,
)
from goalward.planning.cost import LatentCost
from goalward.planning.mpc import MPCController
from goalward.planning.solvers import SeededDraws, make_solver
from goalward.world.checkpoint import World

NO_COST: Values = st.one_of(
    NO_NUMBER,
    st.just(lambda plans: plans.sum(dim=(2, 3)) * NAN),
    no_tensor("B", "S").map(lambda value: lambda plans: value),
    st.sampled_from([(0, 1), (2,), (3,), (1, 2, 3)]).map(
        lambda axes: lambda plans: plans.sum(dim=axes)
    ),
)
NO_DRAWS: Values = st.one_of(
    NO_NUMBER,
    no_tensor(2, "S", 3, 4).map(lambda value: lambda *shape: value),
    st.sampled_from([1, 3, 5]).map(
        lambda number: SeededDraws(generators=[torch.Generator() for _ in range(number)])
    ),
)


def solver_call(name: str) -> None:
    def search(kit: Kit, **changes: Any) -> object:
        generators = [torch.Generator().manual_seed(seed) for seed in range(2)]
        good: dict[str, Any] = {
            "cost": lambda plans: plans.square().sum(dim=(2, 3)),
            "mean_BHA": torch.zeros(2, 3, 4),
            "draws": SeededDraws(generators=generators),
        }
        return SOLVERS[name](**{**good, **changes})

    @api("mean|cost|draws", search, examples=150, of=name)
    def search_for_plans(draw: Draw, kit: Kit) -> Call:
        bad = one_bad(
            draw, {}, mean_BHA=no_tensor("B", "H", "A", finite=True), cost=NO_COST, draws=NO_DRAWS
        )
        return lambda: search(kit, **bad)


for solver_name in SOLVERS:
    solver_call(solver_name)


@api("solver", lambda kit: make_solver("cem"), examples=60)
def make_a_solver(draw: Draw, kit: Kit) -> Call:
    name = draw(either(NO_TEXT, TEXT))
    return lambda: make_solver(name)


NO_STEPS: Values = st.sampled_from([torch.zeros(2, 0, 2, 4), torch.zeros(2, 3, 0, 4)])
LATENTS: dict[str, Any] = {"z_BTD": torch.zeros(2, 1, 16), "z_goal_BD": torch.zeros(2, 16)}


@api(
    "latents|goals|actions|max_rollouts",
    lambda kit: LatentCost(kit.world, **LATENTS)(torch.zeros(2, 3, 2, 4)),
    examples=150,
)
def latent_cost(draw: Draw, kit: Kit) -> Call:
    arguments = one_bad(
        draw,
        dict(LATENTS),
        z_BTD=no_tensor("B", 1, 16, finite=True),
        z_goal_BD=no_tensor(2, 16, finite=True),
        actions_BTA=not_none(no_tensor(2, 0, 4)),
        max_rollouts=no_whole_number(),
    )
    return lambda: LatentCost(kit.world, **arguments)


@api("plans", lambda kit: LatentCost(kit.world, **LATENTS)(torch.zeros(2, 3, 2, 4)))
def latent_cost_of_plans(draw: Draw, kit: Kit) -> Call:
    plans = draw(either(no_tensor(2, "S", "H", 4), NO_STEPS))
    return lambda: LatentCost(kit.world, **LATENTS)(plans)


NO_EDGE: Values = st.sampled_from([np.full(2, NAN), np.array(["a", "b"])])


def bounded(kit: Kit, **changes: Any) -> MPCController:
    bounds: dict[str, Any] = {"action_low": [-1, -1], "action_high": [1, 1]}
    world = World(model=kit.world, actions=SCALE, id="tiny")
    return MPCController(world, SOLVERS["cem"], **{**bounds, **changes})


@api("action_low|action_high", bounded, examples=80)
def action_bounds(draw: Draw, kit: Kit) -> Call:
    edges = either(NO_NUMBER, no_shape(2).map(np.zeros), NO_EDGE)
    bad = one_bad(draw, {}, action_low=edges, action_high=edges)
    return lambda: bounded(kit, **bad)

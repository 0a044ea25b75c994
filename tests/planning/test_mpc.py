"""Planning as a controller: what is committed, when it plans again, and what it remembers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from public_helpers import randomised
from torch import Tensor
from world_helpers import tiny_model

import controller_helpers
from goalward.control.controller import ControllerStats
from goalward.core.arrays import Array
from goalward.data.windows import ActionScaler
from goalward.planning.cost import LatentCost
from goalward.planning.mpc import MPCConfig, MPCController
from goalward.planning.solvers import CEM, SOLVERS, CostFn, NoiseFn, Plan
from goalward.world.checkpoint import World

FRAMES, GOALS = controller_helpers.FRAMES[:3], controller_helpers.GOALS[:3]
SCALE = ActionScaler(mean=(0.1, -0.2), std=(0.5, 2.0))
QUICK = CEM(num_samples=300, num_iters=2)
BLOCK = 10  # numbers of five actions of two numbers each


class Ramp:
    """A solver whose plans count 0, 1, 2, ... in hundredths; it remembers what it was asked."""

    def __init__(self) -> None:
        self.means: list[Tensor] = []
        self.noises: list[Tensor] = []
        self.costs: list[CostFn] = []

    def __call__(self, cost: CostFn, mean_BHA: Tensor, *, noise: NoiseFn) -> Plan:
        self.means.append(mean_BHA.clone())
        self.noises.append(noise(1))
        self.costs.append(cost)
        ramp = torch.arange(float(mean_BHA[0].numel())).view_as(mean_BHA[0]) / 100
        actions = ramp.expand_as(mean_BHA)
        return Plan(actions=actions, cost=mean_BHA.new_zeros(len(mean_BHA)))


@pytest.fixture(name="world", scope="module")
def world_fixture() -> World:
    model = randomised(replace(tiny_model(), frameskip=5))
    return World(model=model, actions=SCALE, id="tiny")


def controller(world: World, solver: Any, bound: float = 100.0, **config: Any) -> MPCController:
    low, high = [-bound] * 2, [bound] * 2
    return MPCController(
        world, solver, action_low=low, action_high=high, config=MPCConfig(**config)
    )


def act(mpc: MPCController, times: int) -> Array:
    return np.stack([mpc.act(FRAMES) for _ in range(times)])


def ramp(steps: int) -> Array:
    """The ramp's raw actions."""
    z = np.arange(2.0 * steps).reshape(-1, 2) / 100
    return z * SCALE.std + SCALE.mean


def test_a_plans_25_actions_are_executed_in_order_before_the_next_plan(world: World) -> None:
    solver = Ramp()
    mpc = controller(world, solver)
    mpc.reset(GOALS, 50)
    actions = act(mpc, 25)
    assert actions.shape == (25, 3, 2) and actions.dtype == np.float32
    for k in range(3):
        np.testing.assert_allclose(actions[:, k], ramp(25), rtol=1e-5)
    assert len(solver.means) == 1 and mpc.stats.plans == (1, 1, 1)
    np.testing.assert_array_equal(mpc.act(FRAMES), actions[0])
    assert len(solver.means) == 2 and mpc.stats.plans == (2, 2, 2)


def test_actions_are_clipped_to_the_bounds(world: World) -> None:
    mpc = controller(world, Ramp(), bound=0.15)
    mpc.reset(GOALS, 50)
    np.testing.assert_allclose(act(mpc, 25)[:, 0], ramp(25).clip(-0.15, 0.15), rtol=1e-5)


def test_a_search_starts_from_the_unexecuted_rest_and_zeros(world: World) -> None:
    solver = Ramp()
    mpc = controller(world, solver, receding_horizon=2)
    mpc.reset(GOALS, 50)
    act(mpc, 11)
    first, second = solver.means
    assert not first.any()
    expected = torch.zeros(3, 5, BLOCK)
    expected[:, :3] = torch.arange(2.0 * BLOCK, 5 * BLOCK).view(3, BLOCK) / 100
    assert torch.equal(second, expected)
    for colder in ({"receding_horizon": 2, "warm_start": False}, {"receding_horizon": 5}):
        solver = Ramp()
        mpc = controller(world, solver, **colder)
        mpc.reset(GOALS, 50)
        act(mpc, 26)
        assert len(solver.means) > 1 and not any(mean.any() for mean in solver.means)


def test_only_the_named_environments_start_again(world: World) -> None:
    solver = Ramp()
    mpc = controller(world, solver, receding_horizon=2)
    mpc.reset(GOALS, 50)
    before = act(mpc, 4)
    mpc.reset(GOALS[:1], 50, environments=[1])
    after = mpc.act(FRAMES)
    np.testing.assert_array_equal(after[1], before[0, 1])
    np.testing.assert_allclose(after[[0, 2]], np.stack([ramp(5)[4]] * 2), rtol=1e-5)
    assert [len(mean) for mean in solver.means] == [3, 1]
    act(mpc, 6)  # the others plan again, from the rest of their plans
    assert [len(mean) for mean in solver.means] == [3, 1, 2]
    assert not solver.means[1].any() and solver.means[2].any()


def test_environments_may_act_one_part_at_a_time(world: World) -> None:
    solver = Ramp()
    mpc = controller(world, solver)
    mpc.reset(GOALS, 50)
    mpc.act(FRAMES[:2], environments=[2, 0])
    assert len(solver.means[0]) == 2
    np.testing.assert_allclose(mpc.act(FRAMES), ramp(2)[[1, 0, 1]], rtol=1e-5)
    assert [len(mean) for mean in solver.means] == [2, 1]


def test_one_default_plan_takes_45_000_predictor_calls(world: World) -> None:
    mpc = controller(world, CEM())
    mpc.reset(GOALS[:1], 50)
    for _ in range(25):
        mpc.act(FRAMES[:1])
    assert mpc.stats == ControllerStats(plans=(1,), predictor_calls=(45_000,))


def test_an_environment_acts_the_same_alone_and_beside_others(world: World) -> None:
    together = controller(world, QUICK)
    together.reset(GOALS, 50)
    expected = act(together, 30)
    for k in range(3):
        alone = controller(world, QUICK)
        alone.reset(GOALS[k], 50)
        actions = [alone.act(FRAMES[k]) for _ in range(30)]
        np.testing.assert_array_equal(actions, expected[:, k])
    # In another place, and after another episode there.
    together.reset(GOALS[2:], 50, environments=[0])
    moved = [together.act(FRAMES[2:], environments=[0])[0] for _ in range(30)]
    np.testing.assert_array_equal(moved, expected[:, 2])


def test_draws_depend_on_the_goal_and_the_seed_alone(world: World) -> None:
    def noise(goals: Array, **config: Any) -> Tensor:
        solver = Ramp()
        mpc = controller(world, solver, **config)
        mpc.reset(goals, 50)
        mpc.act(FRAMES[: len(goals)])
        return solver.noises[0]

    plain = noise(GOALS)
    assert torch.equal(noise(GOALS[[2, 0]]), plain[[2, 0]])
    assert not torch.equal(plain[0], plain[1])
    assert not torch.equal(noise(GOALS, seed=1), plain)


@torch.no_grad()
def test_a_plan_is_costed_from_the_present_frame_to_the_goal(world: World) -> None:
    solver = Ramp()
    mpc = controller(world, solver)
    mpc.reset(GOALS, 50)
    mpc.act(FRAMES)
    plans = torch.randn(3, 4, 5, BLOCK, generator=torch.Generator().manual_seed(0))
    z, goal = (mpc.encode(torch.from_numpy(frames)) for frames in (FRAMES, GOALS))
    torch.testing.assert_close(
        solver.costs[0](plans), LatentCost(world.model, z[:, None], goal)(plans)
    )


@torch.no_grad()
def test_a_history_has_frames_a_model_step_apart_and_the_executed_actions(world: World) -> None:
    solver = Ramp()
    mpc = controller(world, solver, bound=0.15, receding_horizon=2, history=3)
    mpc.reset(GOALS[:1], 50)
    films = np.random.default_rng(2).integers(0, 256, (21, 1, 16, 16, 3), dtype=np.uint8)
    raw = torch.from_numpy(np.stack([mpc.act(frames)[0] for frames in films]))
    z = mpc.encode(torch.from_numpy(films[:, 0]))
    goal = mpc.encode(torch.from_numpy(GOALS[:1]))
    plans = torch.randn(1, 4, 5, BLOCK, generator=torch.Generator().manual_seed(0))
    blocks = SCALE.normalise(raw[:20]).view(1, 4, BLOCK)
    for number, seen, between in ((0, [0], []), (1, [0, 5, 10], [0, 1]), (2, [10, 15, 20], [2, 3])):
        cost = LatentCost(world.model, z[None, seen], goal, actions_BTA=blocks[:, between])
        torch.testing.assert_close(solver.costs[number](plans), cost(plans))


@pytest.mark.parametrize("name", SOLVERS.names())
def test_every_solver_controls(world: World, name: str) -> None:
    solver: Any = replace(SOLVERS.get(name)(), num_iters=2)  # type: ignore[type-var]
    mpc = controller(world, solver, bound=1.0, receding_horizon=2, history=2)
    mpc.reset(GOALS, 50)
    actions = act(mpc, 21)
    assert np.isfinite(actions).all() and np.abs(actions).max() <= 1
    assert mpc.stats.plans == (3, 3, 3)
    assert mpc.stats.predictor_calls == (3 * 2 * solver.num_samples * 5,) * 3
    mpc.reset(GOALS[:1], 50, environments=[1])
    assert mpc.stats.plans == (3, 0, 3) and mpc.stats.predictor_calls[1] == 0


def test_a_plan_that_is_not_finite_is_refused(world: World) -> None:
    def diverging(cost: CostFn, mean_BHA: Tensor, *, noise: NoiseFn) -> Plan:
        return Plan(actions=mean_BHA / 0, cost=mean_BHA[:, 0, 0])

    mpc = controller(world, diverging)
    mpc.reset(GOALS, 50)
    with pytest.raises(ValueError, match="not finite: use smaller steps"):
        mpc.act(FRAMES)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"receding_horizon": 6}, "receding_horizon must be at most horizon = 5, got 6"),
        ({"history": 4}, "history must be at most 3, as in the world model, got 4"),
    ],
)
def test_unusable_settings_are_refused_by_name(
    world: World, config: dict[str, int], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        controller(world, Ramp(), **config)


def test_a_world_model_without_a_scale_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="lacks their mean and std"):
        controller(replace(world, actions=None), Ramp())

"""Solvers on costs with known minima, and the cost of plans in a world model."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from goalward.core.config import from_json, to_json
from goalward.planning.cost import LatentCost
from goalward.planning.solvers import (
    CEM,
    ICEM,
    MPPI,
    SOLVERS,
    AnySolver,
    CostFn,
    Gradient,
    SeededDraws,
    Solver,
    best_plans,
    coloured,
    make_solver,
    sample_plans,
)
from goalward.world.lewm import LeWM
from public_helpers import randomised
from world_helpers import tiny_model

TARGETS = torch.tensor([[0.5, -0.3], [-0.8, 0.0], [0.2, 0.7]])  # (B, A)
SETTINGS: dict[str, Solver] = {
    "cem": CEM(num_samples=100, num_iters=15, num_elites=10),
    "icem": ICEM(num_samples=100, num_iters=15, num_elites=10),
    "mppi": MPPI(num_samples=200, num_iters=20, num_elites=20, init_std=0.2, temperature=0.01),
    "gradient": Gradient(num_samples=8, num_iters=40, lr=0.05),
}
every_solver = pytest.mark.parametrize("solver", SETTINGS.values(), ids=SETTINGS)


def draws(*seeds: int) -> SeededDraws:
    return SeededDraws(generators=[torch.Generator().manual_seed(seed) for seed in seeds])


def quadratic(targets_BA: Tensor) -> CostFn:
    return lambda plans_BSHA: (plans_BSHA - targets_BA[:, None, None]).square().sum(dim=(2, 3))


def double_well(plans_BSHA: Tensor) -> Tensor:
    """Two minima, near -0.7 and near 0.7; the left one is lower."""
    x = plans_BSHA / 0.7
    return ((x.square() - 1).square() + 0.3 * x).sum(dim=(2, 3))


@every_solver
def test_every_solver_finds_the_minimum_of_a_quadratic(solver: Solver) -> None:
    plan = solver(quadratic(TARGETS), torch.zeros(3, 2, 2), draws=draws(0, 1, 2))
    assert plan.actions.shape == (3, 2, 2) and plan.cost.shape == (3,)
    assert (plan.actions - TARGETS[:, None]).abs().max() < 0.08
    assert plan.cost.max() < 0.15


@every_solver
def test_every_solver_finds_the_deeper_of_two_wells(solver: Solver) -> None:
    plan = solver(double_well, torch.zeros(2, 1, 1), draws=draws(0, 1))
    assert (plan.actions + 0.7).abs().max() < 0.1


def test_a_descent_that_diverges_is_not_chosen() -> None:
    start = torch.zeros(1, 1, 1)
    for seed in range(20):
        wild = Gradient(num_samples=3, num_iters=40, init_std=5.0, lr=0.05)
        assert wild(double_well, start, draws=draws(seed)).actions.isfinite().all()


@every_solver
def test_the_same_seed_gives_the_same_plan_and_another_seed_another(solver: Solver) -> None:
    start = torch.full((1, 2, 2), 2.0)
    first, again, other = (
        solver(quadratic(TARGETS[:1]), start, draws=draws(seed)).actions for seed in (5, 5, 6)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert (start == 2).all()


@every_solver
def test_an_environment_is_planned_for_as_if_it_were_alone(solver: Solver) -> None:
    together = solver(quadratic(TARGETS), torch.zeros(3, 2, 2), draws=draws(0, 1, 2))
    for k in range(3):
        alone = solver(quadratic(TARGETS[k : k + 1]), torch.zeros(1, 2, 2), draws=draws(k))
        assert torch.equal(alone.actions[0], together.actions[k])
        assert torch.equal(alone.cost[0], together.cost[k])


@every_solver
def test_a_solver_draws_from_nothing_but_its_draws(solver: Solver) -> None:
    before = torch.random.get_rng_state()
    solver(quadratic(TARGETS[:1]), torch.zeros(1, 2, 2), draws=draws(0))
    assert torch.equal(torch.random.get_rng_state(), before)


@every_solver
def test_a_solver_says_how_many_plans_it_costed(solver: Solver) -> None:
    costed: list[int] = []

    def counting(plans_BSHA: Tensor) -> Tensor:
        costed.append(plans_BSHA.shape[1])
        return double_well(plans_BSHA)

    plan = solver(counting, torch.zeros(2, 3, 2), draws=draws(0, 1))
    assert plan.evaluations == sum(costed)


@every_solver
def test_a_cost_of_another_shape_is_refused(solver: Solver) -> None:
    with pytest.raises(ValueError, match=r"of shape \(1, \d+\), got float32 of shape \(1,\)"):
        solver(lambda plans: plans.sum(dim=(1, 2, 3)), torch.zeros(1, 2, 2), draws=draws(0))


def test_the_defaults_are_the_papers() -> None:
    shared = {"num_samples": 300, "num_iters": 30, "num_elites": 30, "init_std": 1.0}
    assert to_json(make_solver("cem")) == {"kind": "cem", **shared}
    assert to_json(make_solver("mppi")) == {"kind": "mppi", **shared, "temperature": 0.5}
    icem = {"noise_beta": 2.0, "momentum": 0.1, "num_kept": 5, "clip": 1.0}
    assert to_json(make_solver("icem")) == {"kind": "icem", **shared, **icem}
    descent = {"num_samples": 2, "num_iters": 30, "init_std": 1.0, "lr": 1.0}
    assert to_json(make_solver("gradient")) == {"kind": "gradient", **descent}
    for name in SOLVERS:
        solver = make_solver(name)
        assert from_json(type(solver), to_json(solver)) == solver
    with pytest.raises(ValueError, match="'sgd' is not one of cem, icem, mppi, gradient"):
        make_solver("sgd")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("solver", "field", "value"),
    [
        (CEM, "num_iters", 0),
        (CEM, "num_elites", 1),
        (CEM, "num_elites", 301),
        (CEM, "init_std", 0.0),
        (MPPI, "num_elites", 0),
        (MPPI, "temperature", 0.0),
        (MPPI, "init_std", float("nan")),
        (ICEM, "noise_beta", -1.0),
        (ICEM, "momentum", 1.0),
        (ICEM, "num_kept", 31),
        (ICEM, "clip", 0.0),
        (Gradient, "num_samples", 0),
        (Gradient, "num_iters", 0),
        (Gradient, "lr", -1.0),
        (Gradient, "init_std", float("inf")),
    ],
)
def test_unusable_settings_are_refused_by_name(
    solver: Callable[..., AnySolver], field: str, value: Any
) -> None:
    with pytest.raises(ValueError, match=f"{field}(: expected| must) .*got {value}"):
        solver(**{field: value})


def test_the_first_candidate_is_the_mean() -> None:
    mean, noise = torch.full((1, 2, 3), 4.0), torch.ones(1, 5, 2, 3)
    plans = sample_plans(mean, torch.full((1, 2, 3), 0.5), noise)
    assert torch.equal(plans[:, 0], mean) and (plans[:, 1:] == 4.5).all()
    assert (noise == 1).all()


def test_the_best_are_taken_in_order() -> None:
    plans = torch.arange(8.0).view(2, 4, 1, 1)
    best, costs = best_plans(plans, torch.tensor([[3.0, 1.0, 2.0, 0.0], [0.0, 9.0, 8.0, 7.0]]), 2)
    assert best.flatten(1).tolist() == [[3, 1], [4, 7]] and costs.tolist() == [[0, 1], [0, 7]]


def test_coloured_noise_lasts_longer_than_white_noise() -> None:
    white = torch.randn(1, 4000, 9, 1, generator=torch.Generator().manual_seed(0))
    kept = {}
    for beta in (0.0, 2.0):
        noise = coloured(white, beta)
        torch.testing.assert_close(noise.std(dim=2), torch.ones(1, 4000, 1))
        centred = noise - noise.mean(dim=2, keepdim=True)
        kept[beta] = float((centred[:, :, 1:] * centred[:, :, :-1]).mean())
    assert kept[0.0] < 0 < 0.3 < kept[2.0]
    assert torch.equal(coloured(white[:, :, :1], 2.0), white[:, :, :1])


def test_kept_elites_are_candidates_again_and_candidates_stay_within_the_clip() -> None:
    seen: list[Tensor] = []

    def watching(plans_BSHA: Tensor) -> Tensor:
        seen.append(plans_BSHA.clone())
        return plans_BSHA.flatten(2).sum(dim=2)

    ICEM(num_samples=20, num_iters=3, num_elites=4, num_kept=2)(
        watching, torch.zeros(1, 2, 2), draws=draws(0)
    )
    for before, after in pairwise(seen):
        best, _ = best_plans(before, before.flatten(2).sum(dim=2), 2)
        assert torch.equal(after[:, 1:3], best)
    assert max(float(plans.abs().max()) for plans in seen) == 1.0


def test_gradient_descent_needs_a_gradient_and_makes_its_own_under_inference() -> None:
    solver = Gradient(num_samples=2, num_iters=100, lr=0.1)
    with pytest.raises(ValueError, match="no gradient; plan with a solver by sampling"):
        solver(lambda plans: plans.detach().sum(dim=(2, 3)), torch.zeros(1, 2, 2), draws=draws(0))
    with torch.inference_mode():
        plan = solver(quadratic(TARGETS), torch.zeros(3, 2, 2), draws=draws(0, 1, 2))
    torch.testing.assert_close(plan.actions, TARGETS[:, None].expand(-1, 2, -1))


def test_what_an_environment_draws_does_not_depend_on_the_others() -> None:
    together, alone = draws(3, 4), draws(4)
    for _ in range(2):
        assert torch.equal(together(5, 2, 3)[1], alone(5, 2, 3)[0])


# The cost of plans in a world model.


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(name="model", scope="module")
def model_fixture() -> LeWM:
    return randomised(tiny_model()).eval()


@torch.no_grad()
@pytest.mark.parametrize("given", [1, 2, 3, 4])
def test_the_cost_is_the_squared_distance_at_the_end_of_a_rollout(model: LeWM, given: int) -> None:
    z, goal = numbers(2, given, 16), numbers(2, 16, seed=1)
    between, plans = numbers(2, given - 1, 4, seed=2), numbers(2, 6, 5, 4, seed=3)
    cost = LatentCost(model, z, goal, actions_BTA=between)
    found = cost(plans)
    for b in range(2):
        for s in range(6):
            actions = torch.cat([between[b], plans[b, s]])[None]
            last = model.rollout(z[b : b + 1], actions)[0, -1]
            torch.testing.assert_close(found[b, s], (last - goal[b]).square().sum())
    assert cost.predictor_calls == 2 * 6 * 5


@torch.no_grad()
@pytest.mark.parametrize("max_rollouts", [1, 2, 4, 5, 9, 100])
def test_costs_do_not_depend_on_how_many_are_computed_at_once(
    model: LeWM, max_rollouts: int
) -> None:
    z, goal, plans = numbers(3, 1, 16), numbers(3, 16, seed=1), numbers(3, 4, 5, 4, seed=3)
    expected = LatentCost(model, z, goal)(plans)
    found = LatentCost(model, z, goal, max_rollouts=max_rollouts)(plans)
    torch.testing.assert_close(found, expected)


@torch.no_grad()
def test_plans_of_more_than_half_a_piece_are_costed_to_the_last_bit_as_alone(model: LeWM) -> None:
    z, goal, plans = numbers(3, 1, 16), numbers(3, 16, seed=1), numbers(3, 40, 5, 4, seed=3)
    together = LatentCost(model, z, goal, max_rollouts=64)(plans)
    for k in range(3):
        one = slice(k, k + 1)
        alone = LatentCost(model, z[one], goal[one], max_rollouts=64)(plans[one])
        assert torch.equal(alone[0], together[k])


def test_the_costs_gradient_is_that_of_a_rollout(model: LeWM) -> None:
    z, goal, plans = numbers(2, 1, 16), numbers(2, 16, seed=1), numbers(2, 3, 5, 4, seed=3)
    slopes = []
    for rolled in (False, True):
        leaf = plans.clone().requires_grad_()
        if rolled:
            last = model.rollout(z.repeat_interleave(3, 0), leaf.flatten(0, 1))[:, -1]
            total = (last - goal.repeat_interleave(3, 0)).square().sum()
        else:
            total = LatentCost(model, z, goal)(leaf).sum()
        slopes.append(torch.autograd.grad(total, leaf)[0])
    assert slopes[0].abs().max() > 0
    torch.testing.assert_close(*slopes)


def test_unusable_latents_are_refused(model: LeWM) -> None:
    z, goal = numbers(2, 2, 16), numbers(2, 16)
    with pytest.raises(ValueError, match=r"actions must be .*\(2, 1, 4\), got .*\(2, 0, 4\)"):
        LatentCost(model, z, goal)
    with pytest.raises(ValueError, match=r"goals must be .*\(2, 16\), got .*\(1, 16\)"):
        LatentCost(model, z, goal[:1], actions_BTA=numbers(2, 1, 4))
    with pytest.raises(ValueError, match="max_rollouts must be at least 1, got 0"):
        LatentCost(model, z[:, :1], goal, max_rollouts=0)
    with pytest.raises(ValueError, match="training mode"):
        LatentCost(LeWM(tiny_model()), z[:, :1], goal)

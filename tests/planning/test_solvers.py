"""Solvers on costs with known minima."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from goalward.core.config import config, from_json, to_json
from goalward.data.splits import SplitConfig
from goalward.planning.solvers import (
    CEM,
    ICEM,
    MPPI,
    SOLVERS,
    CostFn,
    Gradient,
    NoiseFn,
    Plan,
    SeededNoise,
    Solver,
    best_plans,
    coloured,
    register_solver,
)

TARGETS = torch.tensor([[0.5, -0.3], [-0.8, 0.0], [0.2, 0.7]])  # (B, A)
SETTINGS: dict[str, Solver] = {
    "cem": CEM(num_samples=100, num_iters=15, num_elites=10),
    "icem": ICEM(num_samples=100, num_iters=15, num_elites=10),
    "mppi": MPPI(num_samples=200, num_iters=20, num_elites=20, init_std=0.2, temperature=0.01),
    "gradient": Gradient(num_samples=8, num_iters=40, lr=0.05),
}
every_solver = pytest.mark.parametrize("solver", SETTINGS.values(), ids=SETTINGS)


def noise(mean_BHA: Tensor, *seeds: int) -> SeededNoise:
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    return SeededNoise(generators=generators, like=mean_BHA)


def solve(solver: Solver, cost: CostFn, mean_BHA: Tensor, *seeds: int) -> Plan:
    return solver(cost, mean_BHA, noise=noise(mean_BHA, *seeds))


def quadratic(targets_BA: Tensor) -> CostFn:
    return lambda plans_BSHA: (plans_BSHA - targets_BA[:, None, None]).square().sum(dim=(2, 3))


def double_well(plans_BSHA: Tensor) -> Tensor:
    """Two minima, near -0.7 and near 0.7; the left one is lower."""
    x = plans_BSHA / 0.7
    return ((x.square() - 1).square() + 0.3 * x).sum(dim=(2, 3))


@every_solver
def test_every_solver_finds_the_minimum_of_a_quadratic(solver: Solver) -> None:
    plan = solve(solver, quadratic(TARGETS), torch.zeros(3, 2, 2), 0, 1, 2)
    assert plan.actions.shape == (3, 2, 2) and plan.cost.shape == (3,)
    assert (plan.actions - TARGETS[:, None]).abs().max() < 0.08
    assert plan.cost.max() < 0.15


@every_solver
def test_every_solver_finds_the_deeper_of_two_wells(solver: Solver) -> None:
    plan = solve(solver, double_well, torch.zeros(2, 1, 1), 0, 1)
    assert (plan.actions + 0.7).abs().max() < 0.1


def test_a_descent_that_diverges_is_not_chosen() -> None:
    start = torch.zeros(1, 1, 1)
    for seed in range(20):
        wild = Gradient(num_samples=3, num_iters=40, init_std=5.0, lr=0.05)
        assert solve(wild, double_well, start, seed).actions.isfinite().all()


@every_solver
def test_the_same_seed_gives_the_same_plan_and_another_seed_another(solver: Solver) -> None:
    start = torch.full((1, 2, 2), 2.0)
    first, again, other = (
        solve(solver, quadratic(TARGETS[:1]), start, seed).actions for seed in (5, 5, 6)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert (start == 2).all()


@every_solver
def test_an_environment_is_planned_for_as_if_it_were_alone(solver: Solver) -> None:
    together = solve(solver, quadratic(TARGETS), torch.zeros(3, 2, 2), 0, 1, 2)
    for k in range(3):
        alone = solve(solver, quadratic(TARGETS[k : k + 1]), torch.zeros(1, 2, 2), k)
        assert torch.equal(alone.actions[0], together.actions[k])
        assert torch.equal(alone.cost[0], together.cost[k])


@every_solver
def test_a_solver_draws_from_nothing_but_its_noise(solver: Solver) -> None:
    before = torch.random.get_rng_state()
    solve(solver, quadratic(TARGETS[:1]), torch.zeros(1, 2, 2), 0)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_defaults_are_the_papers() -> None:
    shared = {"num_samples": 300, "num_iters": 30, "num_elites": 30, "init_std": 1.0}
    icem = {"noise_beta": 2.0, "momentum": 0.1, "num_kept": 5, "clip": 1.0}
    defaults = {
        "cem": shared,
        "icem": {**shared, **icem},
        "mppi": {**shared, "temperature": 0.5},
        "gradient": {"num_samples": 2, "num_iters": 30, "init_std": 1.0, "lr": 1.0},
    }
    for name in SOLVERS.names():
        kind: Any = SOLVERS.get(name)
        assert to_json(kind()) == {"kind": name, **defaults[name]}
        assert from_json(kind, to_json(kind())) == kind()


def test_a_strangers_solver_is_registered_by_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SOLVERS, "_found", {})  # other tests know ours alone

    @config
    class Still:
        scale: float = 1.0

        def __call__(self, cost: CostFn, mean_BHA: Tensor, *, noise: NoiseFn) -> Plan:
            return Plan(actions=mean_BHA, cost=cost(mean_BHA[:, None])[:, 0])

    register_solver("still", Still)
    assert SOLVERS.get("still") is Still and "still" in SOLVERS.names()
    plan = solve(SOLVERS.get("still")(), quadratic(TARGETS), torch.zeros(3, 2, 2), 0, 1, 2)
    assert not plan.actions.any()
    for thing in (Still(), SplitConfig, len):
        with pytest.raises(ValueError, match="is no solver"):
            register_solver("no", thing)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("solver", "field", "value"),
    [
        (CEM, "num_elites", 1),
        (CEM, "num_elites", 301),
        (ICEM, "num_elites", 301),
        (ICEM, "num_kept", 31),
        (MPPI, "num_elites", 301),
    ],
)
def test_unusable_settings_are_refused_by_name(
    solver: Callable[..., Solver], field: str, value: Any
) -> None:
    with pytest.raises(ValueError, match=rf"{field}.*{value:g}"):
        solver(**{field: value})


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

    solver = ICEM(num_samples=20, num_iters=3, num_elites=4, num_kept=2)
    solve(solver, watching, torch.zeros(1, 2, 2), 0)
    for before, after in pairwise(seen):
        best, _ = best_plans(before, before.flatten(2).sum(dim=2), 2)
        assert torch.equal(after[:, 1:3], best)
    assert max(float(plans.abs().max()) for plans in seen) == 1.0


def test_gradient_descent_computes_gradients_under_inference_mode() -> None:
    solver = Gradient(num_samples=2, num_iters=100, lr=0.1)
    with torch.inference_mode():
        plan = solve(solver, quadratic(TARGETS), torch.zeros(3, 2, 2), 0, 1, 2)
    torch.testing.assert_close(plan.actions, TARGETS[:, None].expand(-1, 2, -1))

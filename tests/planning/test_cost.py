"""The cost of plans in a world model."""

from __future__ import annotations

import pytest
import torch
from public_helpers import randomised
from torch import Tensor
from world_helpers import numbers, tiny_model

from goalward.control.networks import TimeToGo, TimeToGoConfig
from goalward.planning import cost
from goalward.planning.cost import LatentCost, goal_distance
from goalward.world.lewm import LeWM


@pytest.fixture(name="model", scope="module")
def model_fixture() -> LeWM:
    return randomised(tiny_model()).eval()


@torch.no_grad()
@pytest.mark.parametrize("given", [1, 2, 3, 4])
def test_the_cost_is_the_squared_distance_at_the_end_of_a_rollout(model: LeWM, given: int) -> None:
    z, goal = numbers(2, given, 16), numbers(2, 16, seed=1)
    between, plans = numbers(2, given - 1, 4, seed=2), numbers(2, 6, 5, 4, seed=3)
    latent_cost = LatentCost(model, z, goal, actions_BTA=between)
    found = latent_cost(plans)
    for b in range(2):
        for s in range(6):
            actions = torch.cat([between[b], plans[b, s]])[None]
            last = model.rollout(z[b : b + 1], actions)[0, -1]
            torch.testing.assert_close(found[b, s], (last - goal[b]).square().sum())
    assert latent_cost.predictor_calls == 6 * 5


@torch.no_grad()
@pytest.mark.parametrize("max_rollouts", [1, 2, 4, 5, 9, 100])
def test_costs_do_not_depend_on_how_many_are_computed_at_once(
    model: LeWM, max_rollouts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    z, goal, plans = numbers(3, 1, 16), numbers(3, 16, seed=1), numbers(3, 4, 5, 4, seed=3)
    expected = LatentCost(model, z, goal)(plans)
    monkeypatch.setattr(cost, "MAX_ROLLOUTS", max_rollouts)
    torch.testing.assert_close(LatentCost(model, z, goal)(plans), expected)


@torch.no_grad()
def test_plans_of_more_than_half_a_piece_are_costed_to_the_last_bit_as_alone(
    model: LeWM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "MAX_ROLLOUTS", 64)
    z, goal, plans = numbers(3, 1, 16), numbers(3, 16, seed=1), numbers(3, 40, 5, 4, seed=3)
    together = LatentCost(model, z, goal)(plans)
    for k in range(3):
        one = slice(k, k + 1)
        alone = LatentCost(model, z[one], goal[one])(plans[one])
        assert torch.equal(alone[0], together[k])


class Expects(TimeToGo):
    """Expects 3 steps to goals whose first number is positive, and 8 to others."""

    def __init__(self) -> None:
        super().__init__(TimeToGoConfig(), 16, 10)

    def forward(self, z_BD: Tensor, z_goal_BD: Tensor, steps_B: Tensor | None = None) -> Tensor:
        steps = torch.where(z_goal_BD[:, 0] > 0, 3, 8)
        return 1e3 * torch.nn.functional.one_hot(steps - 1, 10).float() + 0 * z_BD.sum()


def test_a_cost_may_be_the_expected_time_to_the_goal_or_both(model: LeWM) -> None:
    z, plans = numbers(2, 1, 16), numbers(2, 6, 5, 4, seed=3)
    goal = torch.stack([torch.full((16,), 0.1), torch.full((16,), -0.1)])
    latent = LatentCost(model, z, goal)(plans)
    found = LatentCost(model, z, goal, distance=goal_distance("time-to-go", Expects()))(plans)
    torch.testing.assert_close(found, torch.tensor([[3.0], [8.0]]).expand(2, 6))
    both = LatentCost(model, z, goal, distance=goal_distance("sum", Expects()))(plans)
    torch.testing.assert_close(both, latent / 16 + found / 10)
    with pytest.raises(ValueError, match="cost=sum needs a time-to-go head"):
        goal_distance("sum", None)


def test_the_expected_time_has_a_gradient(model: LeWM) -> None:
    torch.manual_seed(0)
    head = TimeToGo(TimeToGoConfig(dropout=0.0), 16, 10)
    plans = numbers(1, 2, 5, 4).requires_grad_()
    latent_cost = LatentCost(
        model, numbers(1, 1, 16), numbers(1, 16), distance=goal_distance("time-to-go", head)
    )
    (gradient,) = torch.autograd.grad(latent_cost(plans).sum(), plans)
    assert gradient.isfinite().all() and gradient.abs().sum() > 0


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

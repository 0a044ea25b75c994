"""Waypoints, on an untrained pairwise model: what they promise, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from controller_helpers import FRAMES, GOALS, tiny_idm
from goalward.control.checkpoint import TrainedIDM
from goalward.control.networks import PairwiseConfig
from goalward.core.arrays import Array
from goalward.planning.waypoints import WaypointController, WaypointsConfig


@pytest.fixture(name="pairwise", scope="module")
def pairwise_fixture() -> TrainedIDM:
    return tiny_idm(PairwiseConfig(latent_dim=16, action_dim=2, hidden_dim=16))


def waypoints(model: TrainedIDM, **settings: Any) -> WaypointController:
    return WaypointController(model, WaypointsConfig(**settings))


def planned(controller: WaypointController, only: slice = slice(None)) -> Array:
    controller.reset(GOALS[only], 50)
    return np.stack([controller.act(FRAMES[only]) for _ in range(4)], axis=1)


def test_a_straight_line_is_decoded_step_by_step(pairwise: TrainedIDM) -> None:
    controller = waypoints(pairwise, horizon=4, commit=4)
    found = planned(controller)
    z, goal = (controller.encode(torch.from_numpy(part)) for part in (FRAMES, GOALS))
    with torch.inference_mode():
        points = [torch.lerp(z, goal, k / 4) for k in range(5)]
        expected = [pairwise.network(points[k], points[k + 1]) for k in range(4)]
    np.testing.assert_allclose(found, torch.stack(expected, 1).clamp(-1, 1).numpy(), atol=1e-4)
    assert controller.stats.predictor_calls == (0,) * 5 and controller.stats.plans == (1,) * 5


def test_plans_do_not_depend_on_other_environments_and_repeat_with_the_seed(
    pairwise: TrainedIDM,
) -> None:
    def make(seed: int = 0) -> WaypointController:
        return waypoints(pairwise, horizon=10, commit=4, candidates=5, seed=seed)

    together = planned(make())
    np.testing.assert_allclose(planned(make()), together, atol=1e-6)
    one = slice(1, 2)
    np.testing.assert_allclose(planned(make(), one), together[one], atol=1e-4)
    assert not np.allclose(planned(make(seed=1)), together, atol=1e-4)


def test_corrected_paths_start_here_and_end_in_the_goal(pairwise: TrainedIDM) -> None:
    controller = waypoints(pairwise, horizon=6, commit=6, refinements=2, candidates=3)
    z, goal = torch.randn(2, 16), torch.randn(2, 16)
    predicted = torch.randn(2, 3, 3, 16)  # three model steps of two raw steps
    path = controller.corrected(predicted, z, goal)
    assert path.shape == (2, 3, 7, 16)
    torch.testing.assert_close(path[:, :, 0], z[:, None].expand(-1, 3, -1))
    torch.testing.assert_close(path[:, :, -1], goal[:, None].expand(-1, 3, -1))
    planned(controller)
    # The refinements and the choice of 3 candidates, of 3 model steps each.
    assert controller.stats.predictor_calls == ((2 + 1) * 3 * 3,) * 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": 5}, "horizon must be a multiple of 2"),
        ({"commit": 9}, "commit must be at most horizon"),
    ],
)
def test_impossible_paths_are_refused_by_name(
    pairwise: TrainedIDM, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        waypoints(pairwise, **{"horizon": 4, "commit": 4, **changes})


def test_a_goal_conditioned_model_is_refused() -> None:
    with pytest.raises(ValueError, match="need a pairwise model"):
        waypoints(tiny_idm(), horizon=4, commit=4)

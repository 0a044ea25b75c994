"""GC-IDM as a controller: goals encoded once, any frames, its horizon input, and its bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from controller_helpers import FRAMES, GOALS, tiny_idm
from goalward.control.act import GCIDMController
from goalward.control.checkpoint import TrainedIDM
from goalward.control.networks import HorizonConfig, PairwiseConfig
from goalward.core.arrays import Array


@pytest.fixture(name="model", scope="module")
def model_fixture() -> TrainedIDM:
    return tiny_idm()


@pytest.fixture(name="controller")
def controller_fixture(model: TrainedIDM) -> GCIDMController:
    return GCIDMController(model)


def test_environments_do_not_influence_each_other(controller: GCIDMController) -> None:
    budgets = [50, 40, 30, 20, 1]
    controller.reset(GOALS, budgets)
    together = controller.act(FRAMES)
    assert together.shape == (5, 2) and together.dtype == np.float32
    assert np.abs(np.diff(together, axis=0)).min() > 1e-3
    for k, budget in enumerate(budgets):
        controller.reset(GOALS[k], budget)
        np.testing.assert_allclose(controller.act(FRAMES[k]), together[k], atol=1e-5)


def test_a_goal_is_encoded_once(controller: GCIDMController) -> None:
    counts: list[int] = []
    encode: Any = controller.encode

    def counting(frames: torch.Tensor) -> torch.Tensor:
        counts.append(len(frames))
        return encode(frames)

    controller.encode = counting  # type: ignore[assignment]
    controller.reset(GOALS, 50)
    for _ in range(3):
        controller.act(FRAMES)
    controller.reset(GOALS[:1], 50, environments=[2])
    assert counts == [5, 5, 5, 5, 1]


def test_the_remaining_steps_change_the_actions(model: TrainedIDM) -> None:
    controller = GCIDMController(model, HorizonConfig(mode="budget"))
    controller.reset(GOALS, 3)
    counted = [controller.act(FRAMES) for _ in range(3)]
    controller.reset(GOALS, 50)
    given = [controller.act(FRAMES, steps) for steps in (3, 2, 1)]
    np.testing.assert_array_equal(counted, given)
    assert np.abs(given[0] - given[2]).max() > 1e-4


def test_frames_of_any_size_are_resized_in_one_step(controller: GCIDMController) -> None:
    small = np.broadcast_to(FRAMES[:, :1, :1], FRAMES.shape)  # one colour: resizing loses nothing
    large = np.broadcast_to(FRAMES[:, :1, :1], (5, 224, 224, 3))
    controller.reset(GOALS, 50)
    expected = controller.act(small)
    controller.reset(GOALS, 50)
    np.testing.assert_allclose(controller.act(large), expected, atol=1e-5)
    assert controller.act(np.zeros((5, 30, 50, 3), dtype=np.uint8)).shape == (5, 2)


def test_actions_stay_within_the_bounds(model: TrainedIDM) -> None:
    metadata = replace(model.metadata, action_low=(-0.5, -2.0), action_high=(0.25, 2.0))
    network = tiny_idm().network
    with torch.no_grad():
        network.head.bias.copy_(torch.tensor([50.0, -50.0]))
    controller = GCIDMController(replace(model, network=network, metadata=metadata))
    controller.reset(GOALS, 50)
    np.testing.assert_array_equal(controller.act(FRAMES), np.tile([0.25, -2.0], (5, 1)))


def test_the_horizon_is_the_budget_a_constant_or_the_time_to_go(model: TrainedIDM) -> None:
    steps = torch.tensor([50, 4, 3, 2, 1])

    def horizon(**settings: Any) -> Array:
        controller = GCIDMController(model, HorizonConfig(**settings))
        z, goal = (controller.encode(torch.from_numpy(part)) for part in (FRAMES, GOALS))
        return controller.action_head.horizon_steps(z, goal, steps).numpy()

    assert horizon(mode="budget").tolist() == [50, 4, 3, 2, 1]
    assert horizon(mode="fixed", fixed_steps=3).tolist() == [3, 3, 3, 2, 1]
    low, high = (horizon(mode="time-to-go", quantile=q) for q in (0.05, 0.95))
    assert (low >= 1).all() and (low <= high).all() and (high <= steps.numpy()).all()
    assert low[0] < high[0] < 50


def test_a_model_without_the_needed_parts_is_no_controller(model: TrainedIDM) -> None:
    with pytest.raises(ValueError, match="no time-to-go head"):
        GCIDMController(replace(model, time_to_go=None))
    with pytest.raises(ValueError, match="pairwise"):
        GCIDMController(tiny_idm(PairwiseConfig(latent_dim=16, action_dim=2, hidden_dim=8)))

"""The hybrid, on an untrained model: what it promises, exactly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from controller_helpers import FRAMES, GOALS, tiny_idm
from goalward.control.act import GCIDMController
from goalward.control.checkpoint import TrainedIDM
from goalward.control.networks import PairwiseConfig
from goalward.core.arrays import Array
from goalward.planning.cost import LatentCost
from goalward.planning.hybrid import HybridConfig, HybridController
from goalward.planning.solvers import CEM

SEARCH = CEM(num_samples=16, num_iters=2, num_elites=4, init_std=0.3)


@pytest.fixture(name="model", scope="module")
def model_fixture() -> TrainedIDM:
    return tiny_idm()


def hybrid(model: TrainedIDM, **settings: Any) -> HybridController:
    return HybridController(model, HybridConfig(**{"search": SEARCH, **settings}))


def planned(controller: HybridController, steps: int = 4, only: slice = slice(None)) -> Array:
    controller.reset(GOALS[only], 50)
    return np.stack([controller.act(FRAMES[only]) for _ in range(steps)], axis=1)


def gc_idms_actions(model: TrainedIDM) -> Array:
    controller = GCIDMController(model)
    controller.reset(GOALS, 50)
    return controller.act(FRAMES)


def latents(controller: HybridController) -> tuple[torch.Tensor, torch.Tensor]:
    return controller.encode(torch.from_numpy(FRAMES)), controller.encode(torch.from_numpy(GOALS))


def test_a_proposal_begins_with_gc_idms_own_action(model: TrainedIDM) -> None:
    controller = hybrid(model)
    with torch.inference_mode():
        blocks = controller.propose(*latents(controller), torch.full((5,), 50))
    raw = controller.raw_actions.from_blocks(blocks)
    assert raw.shape == (5, 10, 2)  # 5 model steps of 2
    np.testing.assert_allclose(raw[:, 0], gc_idms_actions(model), atol=1e-5)


def test_the_hybrid_never_takes_a_plan_of_higher_predicted_cost(model: TrainedIDM) -> None:
    # Bounds that no plan touches: what is executed is what was costed.
    metadata = replace(model.metadata, action_low=(-99.0, -99.0), action_high=(99.0, 99.0))
    controller = hybrid(replace(model, metadata=metadata), commit=10)
    actions = torch.from_numpy(planned(controller, 10))
    z, goal = latents(controller)
    with torch.inference_mode():
        proposal = controller.propose(z, goal, torch.full((5,), 50))
        cost = LatentCost(model.world.model, z[:, None], goal)
        taken = controller.raw_actions.to_blocks(actions)
        costs, proposed = cost(taken[:, None]), cost(proposal[:, None])
    assert (costs <= proposed * 1.0001).all() and (costs < proposed).any()


def test_a_search_that_finds_nothing_better_leaves_the_proposal(model: TrainedIDM) -> None:
    tiny = CEM(num_samples=4, num_iters=1, num_elites=2, init_std=1e-9)
    actions = planned(hybrid(model, search=tiny, commit=1))
    np.testing.assert_allclose(actions[:, 0], gc_idms_actions(model), atol=1e-4)


def test_plans_do_not_depend_on_other_environments_and_repeat_with_the_seed(
    model: TrainedIDM,
) -> None:
    together = planned(hybrid(model))
    np.testing.assert_allclose(planned(hybrid(model)), together, atol=1e-6)
    one = slice(1, 2)
    np.testing.assert_allclose(planned(hybrid(model), only=one), together[one], atol=1e-4)
    assert not np.allclose(planned(hybrid(model, seed=1)), together, atol=1e-4)


def test_committed_actions_are_used_up_before_the_next_plan(model: TrainedIDM) -> None:
    controller = hybrid(model, commit=5)
    controller.reset(GOALS, 50)
    controller.act(FRAMES)
    # 16 plans in 2 rounds, 2 more to compare, 5 model steps each; 2 passes over 5 to propose
    calls = (16 * 2 + 2) * 5 + 10
    assert controller.stats.predictor_calls == (calls,) * 5
    for _ in range(4):
        controller.act(FRAMES)
    assert controller.stats.predictor_calls == (calls,) * 5
    controller.act(FRAMES)
    assert controller.stats.predictor_calls == (2 * calls,) * 5
    assert controller.stats.plans == (2,) * 5
    controller.reset(GOALS[:1], 50, environments=[1])
    assert controller.stats.plans == (2, 0, 2, 2, 2)


def test_models_of_the_wrong_kind_are_refused(model: TrainedIDM) -> None:
    with pytest.raises(ValueError, match="pairwise"):
        hybrid(tiny_idm(PairwiseConfig(latent_dim=16, action_dim=2, hidden_dim=8)))
    with pytest.raises(ValueError, match="commit must be at most 10"):
        hybrid(model, commit=11)
    with pytest.raises(ValueError, match="z-scored"):
        hybrid(replace(model, encoder=replace(model.world, actions=None)))

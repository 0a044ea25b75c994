"""The hybrid and interpolation planning, on an untrained model: what they promise, exactly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from controller_helpers import (  # noqa: F401
    dot_latents_fixture,
    many_dots_fixture,
    smoke,
    tiny_world_fixture,
)
from goalward.control.act import GCIDMController
from goalward.control.checkpoint import TrainedIDM, load_trained_idm
from goalward.control.horizon import HorizonConfig
from goalward.control.networks import PairwiseConfig
from goalward.control.train import train_controller
from goalward.core.arrays import Array
from goalward.data.windows import ActionScaler
from goalward.planning.cost import LatentCost
from goalward.planning.hybrid import HybridConfig, HybridController
from goalward.planning.mpc import RawActions
from goalward.planning.solvers import CEM
from goalward.planning.waypoints import WaypointController, WaypointsConfig
from goalward.world.checkpoint import World

FRAMES = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)
GOALS = np.random.default_rng(1).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)
SEARCH = CEM(num_samples=16, num_iters=2, num_elites=4, init_std=0.3)
SCALE = ActionScaler(mean=(0.1, -0.2), std=(0.5, 0.8))


def with_scale(model: TrainedIDM) -> TrainedIDM:
    """The tests' world model was never trained: it has no scale, and ignores actions as yet."""
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.world.predictor.parameters():
            parameter.normal_(0, 0.3, generator=rng)
    return replace(model, metadata=replace(model.metadata, action_scale=SCALE))


@pytest.fixture(name="model", scope="module")
def model_fixture(tmp_path_factory: pytest.TempPathFactory, dot_latents: Path) -> TrainedIDM:
    folder = tmp_path_factory.mktemp("hybrid") / "c"
    train_controller(smoke(dot_latents, 40), dot_latents, folder)
    return with_scale(load_trained_idm(folder))


@pytest.fixture(name="pairwise", scope="module")
def pairwise_fixture(tmp_path_factory: pytest.TempPathFactory, dot_latents: Path) -> TrainedIDM:
    folder = tmp_path_factory.mktemp("hybrid") / "p"
    config = smoke(dot_latents, 40, time_to_go=None, horizon=HorizonConfig())
    network = PairwiseConfig(latent_dim=16, action_dim=2, hidden_dim=16)
    train_controller(replace(config, network=network), dot_latents, folder)
    return with_scale(load_trained_idm(folder))


def planned(controller: Any, frames: Array = FRAMES, goals: Array = GOALS) -> Array:
    controller.reset(goals, 50)
    return np.stack([controller.act(frames) for _ in range(4)], axis=1)


def test_a_proposal_begins_with_gc_idms_own_action(model: TrainedIDM) -> None:
    hybrid, direct = HybridController(model, HybridConfig(search=SEARCH)), GCIDMController(model)
    encode = hybrid.encode
    z, goal = (encode(torch.from_numpy(part)) for part in (FRAMES, GOALS))
    with torch.inference_mode():
        blocks = hybrid.propose(z, goal, torch.full((3,), 50))
    raw = hybrid.raw_actions.from_blocks(blocks)
    assert raw.shape == (3, 10, 2)  # 5 model steps of 2
    direct.reset(GOALS, 50)
    np.testing.assert_allclose(raw[:, 0], direct.act(FRAMES), atol=1e-5)


def test_the_hybrid_never_takes_a_plan_that_the_model_thinks_worse(model: TrainedIDM) -> None:
    controller = HybridController(model, HybridConfig(search=SEARCH, commit=10))
    actions = torch.from_numpy(planned_at_once(controller, 10))
    z, goal = (controller.encode(torch.from_numpy(part)) for part in (FRAMES, GOALS))
    with torch.inference_mode():
        proposal = controller.propose(z, goal, torch.full((3,), 50))
        cost = LatentCost(model.world, z[:, None], goal)
        taken = controller.raw_actions.to_blocks(actions)
        # What is executed lies within the bounds; these plans hardly touch them.
        assert (cost(taken[:, None]) <= cost(proposal[:, None]) * 1.02 + 1e-4).all()
        assert not torch.allclose(taken, proposal, atol=1e-3)


def planned_at_once(controller: Any, steps: int) -> Array:
    controller.reset(GOALS, 50)
    return np.stack([controller.act(FRAMES) for _ in range(steps)], axis=1)


def test_a_search_that_finds_nothing_better_leaves_the_proposal(model: TrainedIDM) -> None:
    wild = CEM(num_samples=4, num_iters=1, num_elites=2, init_std=1e-9)
    controller = HybridController(model, HybridConfig(search=wild, commit=1))
    direct = GCIDMController(model)
    direct.reset(GOALS, 50)
    np.testing.assert_allclose(planned(controller)[:, 0], direct.act(FRAMES), atol=1e-4)


def test_plans_do_not_depend_on_company_and_repeat_with_the_seed(
    model: TrainedIDM, pairwise: TrainedIDM
) -> None:
    def hybrid(seed: int) -> HybridController:
        return HybridController(model, HybridConfig(search=SEARCH, seed=seed))

    def lines(seed: int) -> WaypointController:
        config = WaypointsConfig(horizon=10, commit=4, candidates=5, seed=seed)
        return WaypointController(pairwise, config)

    for make in (hybrid, lines):
        together = planned(make(0))
        np.testing.assert_allclose(planned(make(0)), together, atol=1e-6)
        alone = planned(make(0), FRAMES[1:2], GOALS[1:2])
        np.testing.assert_allclose(alone, together[1:2], atol=1e-4)
        assert not np.allclose(planned(make(1)), together, atol=1e-4)


def test_committed_actions_are_used_up_before_the_next_look(model: TrainedIDM) -> None:
    controller = HybridController(model, HybridConfig(search=SEARCH, commit=5))
    controller.reset(GOALS, 50)
    controller.act(FRAMES)
    after_one = controller.predictor_calls
    # 16 plans in 2 rounds, 2 more to compare, 5 model steps each; 2 passes over 5 to propose
    assert after_one == [(16 * 2 + 2) * 5 + 10] * 3
    for _ in range(4):
        controller.act(FRAMES)
    assert controller.predictor_calls == after_one
    controller.act(FRAMES)
    assert controller.predictor_calls == [2 * calls for calls in after_one]
    controller.reset(GOALS[:1], 50, environments=[1])
    assert controller.predictor_calls == [2 * after_one[0], 0, 2 * after_one[0]]


def test_a_straight_line_is_decoded_step_by_step(pairwise: TrainedIDM) -> None:
    controller = WaypointController(pairwise, WaypointsConfig(horizon=4, commit=4))
    found = planned(controller)
    z, goal = (controller.encode(torch.from_numpy(part)) for part in (FRAMES, GOALS))
    with torch.inference_mode():
        points = [torch.lerp(z, goal, k / 4) for k in range(5)]
        expected = [pairwise.network(points[k], points[k + 1]) for k in range(4)]
    np.testing.assert_allclose(found, torch.stack(expected, 1).clamp(-1, 1).numpy(), atol=1e-4)
    assert controller.predictor_calls == [0, 0, 0]


def test_corrected_paths_start_here_and_end_in_the_goal(pairwise: TrainedIDM) -> None:
    config = WaypointsConfig(horizon=6, commit=6, refinements=2, candidates=3)
    controller = WaypointController(pairwise, config)
    z, goal = torch.randn(2, 16), torch.randn(2, 16)
    predicted = torch.randn(2, 3, 3, 16)  # three model steps of two raw steps
    path = controller.corrected(predicted, z, goal)
    assert path.shape == (2, 3, 7, 16)
    torch.testing.assert_close(path[:, :, 0], z[:, None].expand(-1, 3, -1))
    torch.testing.assert_close(path[:, :, -1], goal[:, None].expand(-1, 3, -1))
    planned(controller)
    assert controller.predictor_calls == [(2 + 1) * 3 * 3] * 3  # refinements and the choice


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"horizon": 5}, "horizon must be a multiple of 2"),
        ({"commit": 9}, "commit must be at most horizon"),
        ({"candidates": 0}, "candidates"),
        ({"spread": float("nan")}, "spread"),
        ({"refinements": -1}, "refinements"),
    ],
)
def test_impossible_paths_are_refused_by_name(
    pairwise: TrainedIDM, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        values = {"horizon": 4, "commit": 4, **changes}
        WaypointController(pairwise, WaypointsConfig(**values))


def test_models_of_the_wrong_kind_are_refused(model: TrainedIDM, pairwise: TrainedIDM) -> None:
    with pytest.raises(ValueError, match="need a pairwise model"):
        WaypointController(model, WaypointsConfig(horizon=4, commit=4))
    with pytest.raises(ValueError, match="pairwise"):
        HybridController(pairwise, HybridConfig())
    with pytest.raises(ValueError, match="commit must be at most 10"):
        HybridController(model, HybridConfig(commit=11))
    unscaled = replace(model, metadata=replace(model.metadata, action_scale=None))
    with pytest.raises(ValueError, match="z-scored"):
        HybridController(unscaled, HybridConfig())


def test_raw_actions_become_blocks_and_come_back(model: TrainedIDM) -> None:
    world = World(model=model.world, actions=SCALE, id="x")
    raw = RawActions(world, (-1.0, -1.0), (1.0, 1.0))
    actions = torch.rand(2, 6, 2) * 2 - 1
    blocks = raw.to_blocks(actions)
    assert blocks.shape == (2, 3, 4)
    np.testing.assert_allclose(raw.from_blocks(blocks), actions.numpy(), atol=1e-6)
    np.testing.assert_allclose(raw.from_blocks(raw.to_blocks(actions * 9)).max(), 1.0)

"""Controllers in use: one file, any frames, goals encoded once, and plain refusals."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
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
from goalward.control.act import GCIDMController, load_controller
from goalward.control.checkpoint import load_trained_idm, save_trained_idm
from goalward.control.horizon import HorizonConfig
from goalward.control.networks import PairwiseConfig
from goalward.control.swm_policy import SwmPolicy
from goalward.control.train import train_controller
from goalward.core.arrays import Array
from goalward.core.tensors import read_tensors, write_tensors

FRAMES = np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3), dtype=np.uint8)
GOALS = np.random.default_rng(1).integers(0, 256, (5, 16, 16, 3), dtype=np.uint8)


@pytest.fixture(name="trained", scope="module")
def trained_fixture(tmp_path_factory: pytest.TempPathFactory, dot_latents: Path) -> Path:
    folder = tmp_path_factory.mktemp("controllers") / "c"
    train_controller(smoke(dot_latents, 60), dot_latents, folder)
    return folder


@pytest.fixture(name="controller")
def controller_fixture(trained: Path) -> GCIDMController:
    return load_controller(trained)


def budget_controller(trained: Path) -> GCIDMController:
    return load_controller(trained, horizon=HorizonConfig(mode="budget"))


def test_a_controller_file_alone_acts_elsewhere_without_dataset_or_training(
    trained: Path, tmp_path: Path
) -> None:
    expected = load_controller(trained)
    expected.reset(GOALS, 50)
    np.save(tmp_path / "expected.npy", expected.act(FRAMES))
    shutil.copy(trained / "best.safetensors", tmp_path / "mine.safetensors")
    np.save(tmp_path / "frames.npy", FRAMES)
    np.save(tmp_path / "goals.npy", GOALS)
    code = (
        "import numpy as np, sys\n"
        "from goalward.control.act import load_controller\n"
        "c = load_controller('mine.safetensors')\n"
        "c.reset(np.load('goals.npy'), 50)\n"
        "np.testing.assert_allclose("
        "c.act(np.load('frames.npy')), np.load('expected.npy'), atol=1e-6)\n"
        "heavy = ('stable_worldmodel', 'mujoco', 'h5py', 'matplotlib', 'gymnasium')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.stdout.strip() == "[]"


def test_environments_do_not_influence_each_other(controller: GCIDMController) -> None:
    controller.reset(GOALS, [50, 40, 30, 20, 1])
    together = controller.act(FRAMES)
    assert together.shape == (5, 2) and together.dtype == np.float32
    for k, budget in enumerate([50, 40, 30, 20, 1]):
        controller.reset(GOALS[k], budget)
        np.testing.assert_allclose(controller.act(FRAMES[k]), together[k], atol=1e-5)


def test_a_goal_is_encoded_once(controller: GCIDMController) -> None:
    counts: list[int] = []
    encode: Any = controller._encode

    def counting(frames: torch.Tensor) -> torch.Tensor:
        counts.append(len(frames))
        return encode(frames)

    controller._encode = counting  # type: ignore[assignment]
    controller.reset(GOALS, 50)
    for _ in range(3):
        controller.act(FRAMES)
    controller.reset(GOALS[:1], 50, environments=[2])
    assert counts == [5, 5, 5, 5, 1]


def test_single_environments_begin_anew_while_the_others_go_on(trained: Path) -> None:
    controller = budget_controller(trained)
    controller.reset(GOALS, 50)
    controller.act(FRAMES)
    other = GOALS[::-1][:2].copy()
    controller.reset(other, 7, environments=[1, 3])
    mixed = controller.act(FRAMES)
    goals, steps = GOALS.copy(), np.full(5, 49)
    goals[[1, 3]], steps[[1, 3]] = other, 7
    controller.reset(goals, 50)
    np.testing.assert_allclose(controller.act(FRAMES, steps), mixed, atol=1e-6)


def test_environments_may_act_one_part_at_a_time(trained: Path) -> None:
    controller = budget_controller(trained)
    controller.reset(GOALS, 20)
    controller.act(FRAMES)
    together = controller.act(FRAMES)
    controller.reset(GOALS, 20)
    controller.act(FRAMES)
    parts = [controller.act(FRAMES[where], environments=where) for where in ([4, 0], [1, 2, 3])]
    np.testing.assert_allclose(np.concatenate(parts), together[[4, 0, 1, 2, 3]], atol=1e-6)


def test_the_budget_is_counted_down_or_told(trained: Path) -> None:
    controller = budget_controller(trained)
    network = controller.act_on_latents.network
    assert network.modulation is not None
    for linear in (network.modulation.gamma, network.modulation.beta):
        torch.nn.init.normal_(linear.weight, std=1.0)
    controller.reset(GOALS, 3)
    counted = [controller.act(FRAMES) for _ in range(4)]
    controller.reset(GOALS, 50)
    told = [controller.act(FRAMES, steps) for steps in (3, 2, 1)]
    np.testing.assert_array_equal(counted[:3], told)
    assert not np.array_equal(told[0], told[2])
    np.testing.assert_array_equal(counted[3], told[2])  # a spent budget counts as one last step


def test_frames_of_any_size_are_resized_in_one_go(controller: GCIDMController) -> None:
    small = np.broadcast_to(FRAMES[:, :1, :1], FRAMES.shape)  # one colour: no size loses any of it
    large = np.broadcast_to(FRAMES[:, :1, :1], (5, 224, 224, 3))
    controller.reset(GOALS, 50)
    expected = controller.act(small)
    controller.reset(GOALS, 50)
    np.testing.assert_allclose(controller.act(large), expected, atol=1e-5)
    wide = np.zeros((5, 30, 50, 3), dtype=np.uint8)
    assert controller.act(wide).shape == (5, 2)


def test_actions_stay_within_the_bounds(trained: Path) -> None:
    model = load_trained_idm(trained)
    with torch.no_grad():
        model.network.head.bias.copy_(torch.tensor([50.0, -50.0]))
    metadata = replace(model.metadata, action_low=(-0.5, -2.0), action_high=(0.25, 2.0))
    controller = GCIDMController(replace(model, metadata=metadata))
    controller.reset(GOALS, 50)
    np.testing.assert_array_equal(controller.act(FRAMES), np.tile([0.25, -2.0], (5, 1)))


def test_the_horizon_is_the_budget_a_constant_or_the_time_to_go(trained: Path) -> None:
    told: dict[str, Array] = {}
    steps = torch.tensor([50, 4, 3, 2, 1])
    for mode in ("budget", "fixed", "time-to-go"):
        controller = load_controller(trained, horizon=HorizonConfig(mode=mode, steps=3))
        controller.reset(GOALS, 50)
        z, goal = (controller._encode(torch.from_numpy(part)) for part in (FRAMES, GOALS))
        told[mode] = controller.act_on_latents.horizon_steps(z, goal, steps).numpy()
    assert told["budget"].tolist() == [50, 4, 3, 2, 1]
    assert told["fixed"].tolist() == [3, 3, 3, 2, 1]
    assert (told["time-to-go"] <= steps.numpy()).all() and (told["time-to-go"] >= 1).all()
    low = load_controller(trained, horizon=HorizonConfig(mode="time-to-go", level=0.05))
    assert (low.act_on_latents.horizon_steps(z, goal, steps).numpy() <= told["time-to-go"]).all()


@pytest.mark.parametrize(
    ("goals", "budget", "said"),
    [
        (None, 50, "goals are missing"),
        (GOALS.astype(np.float32), 50, "uint8.*float32"),
        (np.full_like(GOALS, np.nan, dtype=np.float32), 50, "with NaN"),
        (GOALS[..., :1], 50, "shape"),
        (GOALS[0, 0], 50, "shape"),
        (GOALS[:0], 50, "shape"),
        (GOALS, 0, "budget must be at least 1, got 0"),
        (GOALS, -3, "budget must be at least 1"),
        (GOALS, 2.5, "whole number"),
        (GOALS, float("nan"), "whole number"),
        (GOALS, [50, 50], "5 of them"),
        (GOALS, 2**63, "budget must be at most"),
        (GOALS, 1e300, "budget must be at most"),
        (GOALS, 10**30, "whole number up to"),
        (GOALS, True, "whole number"),
    ],
)
def test_unusable_goals_and_budgets_are_refused(
    controller: GCIDMController, goals: Any, budget: Any, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        controller.reset(goals, budget)


def test_unusable_frames_are_refused(controller: GCIDMController) -> None:
    with pytest.raises(ValueError, match="call reset"):
        controller.act(FRAMES)
    with pytest.raises(ValueError, match="reset all of them first"):
        controller.reset(GOALS[:1], 50, environments=[0])
    controller.reset(GOALS, 50)
    for frames, said in (
        (FRAMES[:4], "5 frames"),
        (FRAMES[0], "5 frames"),
        (FRAMES / 255, "scale them"),
        (np.where(FRAMES > 9, FRAMES, np.nan), "with NaN"),
    ):
        with pytest.raises(ValueError, match=said):
            controller.act(frames)
    with pytest.raises(ValueError, match="steps_left must be at least 1"):
        controller.act(FRAMES, 0)
    for where in ([5], [-1], [0, 1], 0):
        with pytest.raises(ValueError, match="environments must be 1 different numbers"):
            controller.reset(GOALS[:1], 50, environments=where)


def test_files_that_are_no_controllers_are_refused(
    trained: Path, tiny_world: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="no such controller"):
        load_controller(tmp_path / "no.safetensors")
    with pytest.raises(ValueError, match="not a controller file"):
        load_controller(tiny_world / "best.safetensors")
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes((trained / "best.safetensors").read_bytes()[:-10])
    with pytest.raises(ValueError, match="damaged or cut short"):
        load_controller(cut)
    tensors, facts = read_tensors(trained / "best.safetensors")
    for changed, said in (
        ({**facts, "card": facts["card"].replace('"version":1', '"version":2')}, "version"),
        ({**facts, "card": "{"}, "not valid JSON"),
    ):
        write_tensors(tmp_path / "x.safetensors", tensors, changed)
        with pytest.raises(ValueError, match=said):
            load_controller(tmp_path / "x.safetensors")


def test_a_file_whose_encoder_is_not_the_one_it_was_trained_on_is_refused_with_both_ids(
    trained: Path, tmp_path: Path
) -> None:
    model = load_trained_idm(trained)
    with torch.no_grad():
        next(model.world.parameters()).add_(0.1)
    save_trained_idm(tmp_path / "x.safetensors", model)
    with pytest.raises(
        ValueError, match=f"its encoder is [0-9a-f]{{16}}.*{model.metadata.world_id}"
    ):
        load_controller(tmp_path / "x.safetensors")


def test_a_model_without_the_needed_parts_is_no_controller(
    trained: Path, dot_latents: Path, tmp_path: Path
) -> None:
    model = load_trained_idm(trained)
    with pytest.raises(ValueError, match="no time-to-go head"):
        GCIDMController(replace(model, time_to_go=None))
    pairwise = PairwiseConfig(latent_dim=16, action_dim=2, hidden_dim=8)
    config = replace(
        smoke(dot_latents, 2, time_to_go=None, horizon=HorizonConfig()), network=pairwise
    )
    train_controller(config, dot_latents, tmp_path / "p")
    with pytest.raises(ValueError, match="pairwise"):
        load_controller(tmp_path / "p")


class RecordingController:
    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def reset(self, goals: Array, budget: Any, *, environments: Any = None) -> None:
        self.calls.append(("reset", None if environments is None else environments.tolist()))

    def act(self, frames: Array, steps_left: Any = None, *, environments: Any = None) -> Array:
        self.calls.append(("act", frames.shape))
        return np.zeros((len(frames), 2), dtype=np.float32)


def test_as_a_policy_it_resets_where_an_episode_begins() -> None:
    inner = RecordingController()
    policy = SwmPolicy(inner, budget=50)
    policy.set_env(object())
    info: dict[str, Any] = {"pixels": FRAMES[:, None], "goal": GOALS[:, None]}
    assert policy.get_action(info).shape == (5, 2)
    policy.get_action(info)
    policy.get_action({**info, "_needs_flush": np.array([0, 1, 0, 0, 1], dtype=bool)})
    moved = GOALS.copy()
    moved[3] += 1
    policy.get_action({**info, "goal": moved[:, None]})
    policy.set_env(object())
    policy.get_action(info)
    act = ("act", (5, 16, 16, 3))
    assert inner.calls == [
        ("reset", None),
        act,
        act,
        ("reset", [1, 4]),
        act,
        ("reset", [3]),
        act,
        ("reset", None),
        act,
    ]
    with pytest.raises(ValueError, match="no 'goal'"):
        policy.get_action({"pixels": FRAMES})


@pytest.mark.filterwarnings("ignore")  # the library's own
def test_stable_worldmodel_evaluates_it_as_a_policy(
    controller: GCIDMController, dataset: Callable[[str], Path]
) -> None:
    swm = pytest.importorskip("stable_worldmodel")
    from stable_worldmodel.data import load_dataset

    world = swm.World("swm/TwoRoom-v1", num_envs=2, image_shape=(64, 64), max_episode_steps=50)
    acted: list[Array] = []
    policy = SwmPolicy(controller, budget=5)
    get_action = policy.get_action
    policy.get_action = lambda info: acted.append(get_action(info)) or acted[-1]  # type: ignore
    world.set_policy(policy)
    results = world.evaluate(
        dataset=load_dataset(str(dataset("two-room") / "episodes.h5")),
        episodes_idx=[0, 1],
        start_steps=[0, 3],
        goal_offset=25,
        eval_budget=5,
        callables=[
            {"method": "_set_state", "args": {"state": {"value": "state"}}},
            {"method": "_set_goal_state", "args": {"goal_state": {"value": "goal_state"}}},
        ],
    )
    assert len(results["episode_successes"]) == 2
    assert [actions.shape for actions in acted] == [(2, 2)] * 5
    assert np.abs(acted).max() <= 1

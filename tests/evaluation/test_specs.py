"""Controllers by name, path, place and object."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from evaluation_helpers import QUICK_CEM
from goalward.bundle import controller_path
from goalward.control.act import GCIDMController
from goalward.control.checkpoint import load_trained_idm, model_id, save_trained_idm
from goalward.control.controller import ZeroController
from goalward.control.export import export_onnx
from goalward.core.config import config
from goalward.data.splits import SplitConfig
from goalward.evaluation.controllers import CONTROLLERS, register_controller
from goalward.evaluation.specs import (
    ControllerSpec,
    load_controller,
    require_known,
    resolve_controllers,
)
from goalward.planning.mpc import MPCController
from goalward.planning.solvers import SOLVERS, CostFn, NoiseFn, Plan, register_solver
from goalward.tasks import get_task

TWO_ROOM = get_task("two-room")


def resolved(*controllers: Any, task: str = "two-room", **options: Any) -> list[ControllerSpec]:
    return resolve_controllers(get_task(task), controllers, **{"device": "cpu", **options})[0]


def seeds_of(controllers: Sequence[Any], seeds: Sequence[int]) -> list[tuple[str, int]]:
    return [(spec.name, spec.seed) for spec in resolved(*controllers, seeds=seeds)]


def test_a_controller_that_draws_nothing_runs_once(controller: Path) -> None:
    found = seeds_of([str(controller), "zero", "random", QUICK_CEM], [3, 4])
    label = f"gc-idm@{controller.name}"
    once = [(label, 3), ("zero", 3), ("random", 3), ("random", 4)]
    assert found == [*once, (QUICK_CEM, 3), (QUICK_CEM, 4)]


def test_several_models_of_a_name_have_a_seed_each(controller: Path, tmp_path: Path) -> None:
    model = load_trained_idm(controller)
    other = replace(model, metadata=replace(model.metadata, latents_id="other"))
    save_trained_idm(tmp_path / "other.safetensors", other)
    both = [f"gc-idm:model={path}" for path in (controller, tmp_path / "other.safetensors")]
    assert seeds_of(both, [0]) == [("gc-idm", 0), ("gc-idm", 1)]
    assert seeds_of(both, [42, 7]) == [("gc-idm", 42), ("gc-idm", 7)]
    with pytest.raises(ValueError, match="2 models need as many seeds, got 3"):
        seeds_of(both, [1, 2, 3])
    with pytest.raises(ValueError, match="gc-idm is given twice"):
        seeds_of([both[0], both[0]], [0])


def test_paths_are_told_apart_by_their_names(controller: Path, tmp_path: Path) -> None:
    for name in ("first", "second", "other/first"):
        shutil.copytree(controller, tmp_path / name)

    def names(*paths: str) -> list[str]:
        return [spec.name for spec in resolved(*(f"{tmp_path}/{path}" for path in paths))]

    assert names("first/") == ["gc-idm@first"]  # as a shell completes it
    assert names("first:mode=budget") == ["gc-idm:mode=budget@first"]
    assert names("first", "second/best.safetensors") == ["gc-idm@first", "gc-idm@second"]
    with pytest.raises(ValueError, match=r"gc-idm@first is given twice; .*rename"):
        names("first", "other/first")


def test_names_use_the_first_trained_model_unless_they_say_which(controller: Path) -> None:
    model = load_trained_idm(controller)
    world = str(controller.parent / "world")
    specs, observer = resolve_controllers(
        TWO_ROOM, [model, "cem", f"mppi:world={world}", f"icem:world={controller}"], device="cpu"
    )
    assert [spec.name for spec in specs] == ["gc-idm", "cem", "mppi", "icem"]
    assert specs[0].model_id == model_id(model)
    assert {spec.model_id for spec in specs[1:]} == {model.metadata.world_id}
    assert observer is not None and observer.id == model.metadata.world_id
    assert isinstance(specs[2].controller(), MPCController)
    for name, needed in (("gc-idm", "trained controller"), ("cem", "world model")):
        with pytest.raises(ValueError, match=f"{name} needs a {needed}: write {name}:"):
            resolved(name)
    with pytest.raises(ValueError, match="waypoints needs a pairwise model: write waypoints:model"):
        resolved(model, "waypoints")


def test_bundled_controllers_are_of_the_task_unless_it_is_named() -> None:
    plain, budget = resolved("bundled", "bundled:mode=budget")
    assert (plain.name, budget.name) == ("gc-idm", "gc-idm:mode=budget")
    (named,) = resolved("bundled:push-t", task="push-t")
    assert named.name == "gc-idm" and named.model_id != plain.model_id
    with pytest.raises(ValueError, match=r"trained on task push-t, not on two-room"):
        resolved("bundled:push-t")
    assert isinstance(load_controller("bundled:push-t", device="cpu"), GCIDMController)
    with pytest.raises(ValueError, match="random can act in any task; say in which one"):
        load_controller("random")
    assert isinstance(load_controller("zero", task="cube"), ZeroController)
    with pytest.raises(ValueError, match="acts on a simulator's state"):
        load_controller("line", task="push-t")


def test_a_model_that_may_have_seen_the_pairs_is_refused(controller: Path) -> None:
    with pytest.raises(ValueError, match="held out other episodes"):
        resolved(controller, split=SplitConfig(seed=7))


def test_an_exported_controller_is_one_too(controller: Path, tmp_path: Path) -> None:
    export_onnx(load_trained_idm(controller), tmp_path / "c.onnx")
    onnx, torch = resolved(tmp_path / "c.onnx", controller)
    assert (onnx.name, onnx.draws) == ("gc-idm-onnx@c", False)
    frames = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3), dtype=np.uint8)
    actions = []
    for spec in (onnx, torch):
        acting: Any = spec.controller()
        acting.reset(frames[::-1].copy(), 50)
        actions.append(acting.act(frames))
    np.testing.assert_allclose(actions[0], actions[1], atol=1e-5)


@config
class SlowConfig:
    """Of the controller below."""

    factor: float = 0.5


class Slow(ZeroController):
    """A user's controller."""

    def __init__(self, factor: float, action_dim: int, seed: int) -> None:
        super().__init__(action_dim)
        self.factor, self.seed = factor, seed


def test_a_users_controller_registers_as_ours_do() -> None:
    register_controller(
        "slow",
        lambda config, inputs: Slow(config.factor, inputs.action_dim, inputs.seed),
        config=SlowConfig,
    )
    first, second = resolved("slow:factor=0.25", seeds=[0, 9])
    assert first.name == "slow:factor=0.25" and first.config == SlowConfig(factor=0.25)
    made: Any = second.controller()
    assert (made.factor, made.seed) == (0.25, 9)
    with pytest.raises(ValueError, match=r"unknown setting 'speed'; .*factor"):
        resolved("slow:speed=3")


def test_a_registered_solver_plans_under_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SOLVERS, "_found", {})  # other tests know ours alone

    @dataclass(frozen=True)
    class Constant:
        """A user's solver: the same action always."""

        action: float = 0.0

        def __call__(self, cost: CostFn, mean_BHA: Tensor, *, noise: NoiseFn) -> Plan:
            plan = torch.full_like(mean_BHA, self.action)
            return Plan(actions=plan, cost=cost(plan[:, None])[:, 0])

    register_solver("constant", Constant)
    assert "constant" in CONTROLLERS and "constant" in CONTROLLERS.names()
    text = "constant:solver.action=0.5,mpc.horizon=3,mpc.receding_horizon=3"
    (_, spec), _ = resolve_controllers(get_task("two-room"), ["bundled", text], device="cpu")
    controller: Any = spec.controller()
    frames = np.zeros((2, 64, 64, 3), dtype=np.uint8)
    controller.reset(frames, 50)
    scaler = load_trained_idm(controller_path("two-room")).world.actions
    assert scaler is not None
    expected = scaler.restore(torch.full((2, 2), 0.5)).numpy()
    np.testing.assert_allclose(controller.act(frames), expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"solver\.action must be a number"):
        resolve_controllers(get_task("two-room"), ["bundled", "constant:solver.action=fast"])


def test_objects_functions_and_places_are_controllers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "from goalward.control.controller import RandomController, ZeroController\n"
    text += "def mine(seed):\n    return RandomController(2, seed)\nSTILL = ZeroController(2)\n"
    (tmp_path / "my_controllers.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    still = ZeroController(2)
    found = seeds_of([still, "my_controllers:mine", f"{tmp_path}/my_controllers.py:STILL"], [1, 2])
    assert found == [
        ("ZeroController", 1),
        ("my_controllers:mine", 1),
        ("my_controllers:mine", 2),
        (f"{tmp_path}/my_controllers.py:STILL", 1),
    ]
    (first,), (again,) = resolved(still), resolved(still)
    assert first.controller() is still
    assert first.model_id != again.model_id  # its earlier results are never taken for its own
    sys.modules.pop("my_controllers")


def test_an_unknown_name_is_refused_before_models_are_there() -> None:
    require_known(["gc-idm", "cem:solver.num_samples=3", "bundled", "line"], get_task("push-t"))
    with pytest.raises(ValueError, match="did you mean 'random'"):
        require_known(["gc-idm", "randon"], TWO_ROOM)


@pytest.mark.parametrize(
    ("controller", "message"),
    [
        ("runs/nothing", "runs/nothing: no such file"),
        ("bundled:cub", "unknown task 'cub'; did you mean 'cube'"),
        ("nowhere.module:THING", "nowhere.module:THING cannot be loaded"),
        ("random:speed=3", "unknown setting 'speed'"),
        ("cem:solver.num_elites=1000", "num_elites"),
        ("cem:mpc.history=9", "history must be at most"),
        ("cem:solver.num_samples=0", "num_samples must be at least 1"),
        ("cem:quick", "expected NAME=VALUE"),
    ],
)
def test_what_is_not_there_or_cannot_be_set_is_refused_before_anything_runs(
    controller: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        resolved("bundled", controller)

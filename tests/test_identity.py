"""What the package computes, to the bit: known values that a change of its form must not change.

`python tests/test_identity.py --write` computes `golden/identity.json` again. Floats are bit-equal
only where processor and libraries are alike; elsewhere they are compared with a tolerance.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch

from goalward import bundle
from goalward.control.checkpoint import load_trained_idm, model_id
from goalward.control.export import export_onnx
from goalward.core.arrays import Array
from goalward.core.config import to_json
from goalward.core.random import generator
from goalward.data.collect import record_episode
from goalward.evaluation.run import evaluate
from goalward.evaluation.simulators import SimulatorPools
from goalward.evaluation.specs import Context, resolve, resolve_controllers
from goalward.experiments.experiment import RunSpec
from goalward.experiments.runner import Runner
from goalward.planning.cost import LatentCost
from goalward.planning.solvers import SOLVERS, SeededNoise
from goalward.runtime.onnx import OnnxController
from goalward.tasks import TASKS, get_task
from goalward.tasks.rendering import prepare_gl
from goalward.tasks.task import RenderConfig
from goalward.world.checkpoint import load_world
from goalward.world.frozen import FrameEncoder

pytest.importorskip("stable_worldmodel")

Values: TypeAlias = dict[str, Any]  # of JSON's types

FILE = Path(__file__).parent / "golden" / "identity.json"
FEW, MANY = 6, {"paper": 50, "strict": 20}  # pairs; those that the stricter protocols have
SIDE_BY_SIDE = 2  # however many pairs: rounding depends on the batch
# On other machines: tolerance of floats, and of weights, which rounding takes apart step by step;
# share of the episodes that end alike.
ELSEWHERE, TRAINED, ALIKE = 1e-3, 5e-2, 0.8
TASK_NAMES = TASKS.names()


# What is computed. Only these functions know the package's insides.


def bundled_ids(task: str) -> Values:
    """What the bundled files are."""
    model, rules = load_trained_idm(bundle.controller_path(task)), get_task(task).protocols
    pairs = {f"{rule} 20": bundle.bundled_pairs(task, 20, rule).id for rule in rules}
    pairs |= {f"paper {count}": bundle.bundled_pairs(task, count).id for count in (50, 200)}
    return {"model": model_id(model), "metadata": to_json(model.metadata), "pairs": pairs}


def first_episodes(task: str) -> Values:
    """How the first demonstration of each demonstrator begins, in a collection of seed 0."""
    found, simulator = {}, get_task(task).simulator(RenderConfig(image_size=64))
    for name, demonstrate in get_task(task).demonstrators.items():
        rng = generator("demonstration", 0, 0)
        columns = record_episode(get_task(task), simulator, demonstrate, 40, rng)
        columns["pixels"] = columns["pixels"][-1]
        columns["action"] = columns["action"][:-1]  # the last row has none
        found[name] = {column: bits(values) for column, values in columns.items()}
    simulator.close()
    return found


def rows(task: str, protocol: Any, count: int, folder: Path) -> Values:
    """Success, steps and measures of the bundled controller, and of random actions on few pairs."""
    found = {}
    specs, observer = resolve_controllers(get_task(task), ["bundled", "random"], device="cpu")
    with SimulatorPools(1) as pools:
        for name, spec, number in zip(("gc-idm", "random"), specs, (count, FEW), strict=True):
            done = evaluate(
                folder / name,
                bundle.bundled_pairs(task, number, protocol),
                [spec],
                observer=observer,
                num_envs=SIDE_BY_SIDE,
                pools=pools,
                timed=False,
            )
            found[name] = [
                [int(row.success), row.steps]
                + [round(x or 0, 6) for x in (row.jerk, row.approach_rate, *row.errors.values())]
                for row in done.of(name)
            ]
    return found


def smoke_training(runs: Path) -> Values:
    """Two-Room's world model and inverse models by the preset `smoke`."""
    runner, found = Runner(preset="smoke", runs=runs, pairs=2, device="cpu"), {}
    for method in ("gc-idm", "waypoints"):
        spec = RunSpec(task="two-room", controller=method)
        model = load_trained_idm(runner.trained(spec))
        found[method] = {"id": model_id(model), "network": weights(model.network.state_dict())}
        if model.time_to_go is not None:
            found[method]["time to go"] = weights(model.time_to_go.state_dict())
    world = load_world(runner.pipeline(spec).world_folder())
    return {**found, "world": {"id": world.id, "model": weights(world.model.state_dict())}}


def plans_and_actions(task: str) -> Values:
    """What each solver finds, and what each controller does, on frames of bundled pairs."""
    model, found = load_trained_idm(bundle.controller_path(task)), {}
    goals, frames = some_frames(task)
    world = model.world.model
    encode, few = FrameEncoder(world), {"num_iters": 3, "num_samples": 24}
    z_goal_BD, z_BD = (encode(torch.from_numpy(given)) for given in (goals, frames))
    methods = ["gc-idm:mode=budget", "gc-idm:mode=time-to-go", "hybrid"]
    for name in SOLVERS.names():
        size = few if name == "gradient" else {**few, "num_elites": 6}
        solver = replace(SOLVERS.get(name)(), **size)  # type: ignore[type-var]
        start = torch.zeros(len(z_BD), 5, world.config.block_dim)
        generators = [torch.Generator().manual_seed(k) for k in range(len(z_BD))]
        noise = SeededNoise(generators=generators, like=start)
        plan = solver(LatentCost(world, z_BD[:, None], z_goal_BD), start, noise=noise)
        found[f"{name}'s plan"] = bits(plan.actions.numpy())
        found[f"{name}'s cost"] = bits(plan.cost.numpy())
        methods.append(f"{name}:" + ",".join(f"solver.{key}={n}" for key, n in size.items()))
    context = Context(task=get_task(task), device=torch.device("cpu"), model=model)
    for spec in methods:
        controller: Any = resolve(spec, context).controller()
        controller.reset(goals, 50)
        steps = (
            30 if spec.startswith(SOLVERS.names()) else 10
        )  # in either case, planners plan twice
        found[spec] = bits(np.stack([controller.act(frames) for _ in range(steps)]))
    return found


def exported_actions(task: str, folder: Path) -> Values:
    """The first actions of the exported controller."""
    export_onnx(load_trained_idm(bundle.controller_path(task)), folder / "c.onnx")
    goals, frames = some_frames(task)
    controller = OnnxController(folder / "c.onnx", threads=1)
    controller.reset(goals, 50)
    return {"actions": controller.act(frames).ravel().tolist()}


def some_frames(task: str) -> tuple[Array, Array]:
    """Three goals of bundled pairs, and three others to start from."""
    frames = np.stack([pair.goal_frame for pair in bundle.bundled_pairs(task, 6).pairs])
    return frames[:3], frames[3:]


def machine() -> Values:
    """What bits depend on."""
    libraries = {name: version(name) for name in ("torch", "numpy", "mujoco")}
    about = Path("/proc/cpuinfo")  # the same vector instructions may round differently elsewhere
    known = (
        re.findall(r"^(?:cpu family|model)\s*: (.*)$", about.read_text(), re.M)[:2]
        if about.exists()
        else []
    )
    cpu = " ".join([torch.backends.cpu.get_cpu_capability(), *known])
    return {**libraries, "cpu": cpu, "gl": prepare_gl()}


# How values are described and compared.


def bits(values: Array) -> Values:
    """All bits as one hash, and some of the values."""
    flat = np.ascontiguousarray(values).ravel()
    some = flat[np.linspace(0, flat.size - 1, min(flat.size, 6)).astype(int)]
    about = [str(flat.dtype), *map(str, values.shape)]
    digest = hashlib.sha256(" ".join(about).encode() + flat.tobytes())
    return {"sha256": digest.hexdigest(), "some": [*some.tolist(), float(flat.mean())]}


def weights(state: Mapping[str, torch.Tensor]) -> Values:
    """The same of all tensors, by name."""
    known = sorted((name, bits(tensor.numpy())) for name, tensor in state.items())
    every = "".join(name + told["sha256"] for name, told in known)
    some = {name: told["some"] for name, told in known[:: max(1, len(known) // 4)]}
    return {"sha256": hashlib.sha256(every.encode()).hexdigest(), "some": some}


def golden(*keys: str) -> Any:
    """The known values of one thing."""
    found = json.loads(FILE.read_text())
    for key in keys:
        found = found[key]
    return found


def slack(elsewhere: float = ELSEWHERE) -> float:
    """The tolerance of floats: none on a machine that computes the golden file's very bits."""
    return 0.0 if machine() == golden("machine") else elsewhere


def require_same(found: Any, known: Any, where: str, tolerance: float) -> None:
    """Refuse values that are not the known ones; without tolerance, by their hashes too."""
    if isinstance(known, dict):
        assert found.keys() == known.keys(), f"{where}: {sorted(found)}, known {sorted(known)}"
        for key in sorted(known, reverse=True):  # the values in clear before their hash
            if not tolerance or key not in ("sha256", "id"):
                require_same(found[key], known[key], f"{where}: {key}", tolerance)
    elif isinstance(known, list):
        assert len(found) == len(known), f"{where}: {len(found)} values, known {len(known)}"
        for k, (one, other) in enumerate(zip(found, known, strict=True)):
            require_same(one, other, f"{where}[{k}]", tolerance)
    elif isinstance(known, float) and tolerance:
        assert found == pytest.approx(known, rel=tolerance, abs=tolerance), where
    else:
        assert found == known, f"{where}: {found}, known {known}"


def require_same_rows(found: Values, task: str, protocol: str) -> None:
    """As above; elsewhere, most episodes must end alike."""
    for method, known in golden("rows", task, protocol).items():
        where, some = f"{task} {protocol} {method}", known[: len(found[method])]
        if not slack():
            require_same(found[method], some, where, tolerance=0)
        ends = [[success for success, *_ in those] for those in (found[method], some)]
        alike = np.mean([one == other for one, other in zip(*ends, strict=True)])
        assert alike >= ALIKE, f"{where}: only {alike:.0%} of the episodes end as known"


@pytest.mark.parametrize("task", TASK_NAMES)
def test_bundled_files_are_the_known_ones(task: str) -> None:
    require_same(bundled_ids(task), golden("bundled", task), task, tolerance=0)


@pytest.mark.parametrize("task", TASK_NAMES)
def test_demonstrations_are_the_known_ones(task: str) -> None:
    require_same(first_episodes(task), golden("episodes", task), task, slack())


@pytest.mark.parametrize("task", TASK_NAMES)
def test_bundled_controllers_do_on_few_pairs_as_is_known(task: str, tmp_path: Path) -> None:
    require_same_rows(rows(task, "paper", FEW, tmp_path), task, "paper")


@pytest.mark.slow
@pytest.mark.parametrize("protocol", MANY)
@pytest.mark.parametrize("task", TASK_NAMES)
def test_bundled_controllers_do_as_is_known(task: str, protocol: str, tmp_path: Path) -> None:
    require_same_rows(rows(task, protocol, MANY[protocol], tmp_path), task, protocol)


def test_training_ends_in_the_known_weights(smoke_runs: Path) -> None:
    found, known = smoke_training(smoke_runs), golden("training")
    require_same(found, known, "smoke", slack(TRAINED))


@pytest.mark.parametrize("task", TASK_NAMES)
def test_plans_and_actions_are_the_known_ones(task: str) -> None:
    require_same(plans_and_actions(task), golden("actions", task), task, slack())


def test_an_exported_controller_acts_as_is_known(tmp_path: Path) -> None:
    known = golden("exported")["actions"]
    np.testing.assert_allclose(exported_actions("two-room", tmp_path)["actions"], known, atol=1e-5)


def write() -> None:
    """Compute the golden file again."""
    torch.set_num_threads(1)  # as conftest.py says
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        values = {
            "machine": machine(),
            "bundled": {task: bundled_ids(task) for task in TASK_NAMES},
            "episodes": {task: first_episodes(task) for task in TASK_NAMES},
            "rows": {
                task: {
                    rule: rows(task, rule, count, folder / task / rule)
                    for rule, count in MANY.items()
                }
                for task in TASK_NAMES
            },
            "training": smoke_training(folder / "runs"),
            "actions": {task: plans_and_actions(task) for task in TASK_NAMES},
            "exported": exported_actions("two-room", folder),
        }
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(values, separators=(",", ":"), allow_nan=False) + "\n")


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    write()

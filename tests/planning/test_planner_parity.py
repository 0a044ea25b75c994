"""Our solvers, fed stable-worldmodel's random numbers, make its plans on the same world model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from public_helpers import SMALL, randomise, write_public
from test_lewm_parity import build
from torch import Tensor

from goalward.planning.cost import LatentCost
from goalward.planning.solvers import CEM, ICEM, MPPI, Gradient, NoiseFn, Solver
from goalward.world.lewm import LeWM
from goalward.world.public import load_public, public_json

# stable-worldmodel misses a game library that nothing here uses.
pytestmark = pytest.mark.filterwarnings("ignore:ale-py not found:UserWarning")

ENVIRONMENTS, HORIZON, RAW, BLOCK = 2, 5, 2, 10
SAMPLES, ITERS, ELITES = 60, 10, 8
SEED = 1234
SAMPLING: dict[str, Any] = {"num_samples": SAMPLES, "num_iters": ITERS, "num_elites": ELITES}
THEIR_SAMPLING: dict[str, Any] = {"num_samples": SAMPLES, "n_steps": ITERS, "topk": ELITES}
CASES: dict[str, tuple[Solver, dict[str, Any]]] = {
    "CEMSolver": (CEM(**SAMPLING), THEIR_SAMPLING),
    "MPPISolver": (MPPI(**SAMPLING, temperature=0.5), THEIR_SAMPLING),
    "ICEMSolver": (ICEM(**SAMPLING), THEIR_SAMPLING),
    "GradientSolver": (Gradient(), {"num_samples": 2, "n_steps": 30}),
}


def their_noise(solver: str) -> NoiseFn:
    """The numbers that stable-worldmodel's solver draws, in its order.

    It solves for one environment after the other (as it must: see below), each time with all
    iterations; only gradient descent draws for all environments at once.
    """
    rng = torch.Generator().manual_seed(SEED)
    if solver == "GradientSolver":
        left = [torch.randn(ENVIRONMENTS, 1, HORIZON, BLOCK, generator=rng)]
    else:
        time_last = solver == "ICEMSolver"
        shape = (SAMPLES, *((BLOCK, HORIZON) if time_last else (HORIZON, BLOCK)))
        environments = [
            [torch.randn(shape, generator=rng) for _ in range(ITERS)] for _ in range(ENVIRONMENTS)
        ]
        left = [torch.stack(draws) for draws in zip(*environments, strict=True)]
        left = [draws.transpose(-1, -2) if time_last else draws for draws in left]

    def draw(num_samples: int) -> Tensor:
        draws = left.pop(0)
        assert draws.shape == (ENVIRONMENTS, num_samples, HORIZON, BLOCK)
        return draws

    return draw


@pytest.fixture(name="theirs", scope="module")
def theirs_fixture() -> Any:
    pytest.importorskip("stable_worldmodel")
    torch.manual_seed(0)
    return randomise(build(public_json(SMALL)))


@pytest.fixture(name="ours", scope="module")
def ours_fixture(theirs: Any, tmp_path_factory: pytest.TempPathFactory) -> LeWM:
    folder = tmp_path_factory.mktemp("public") / "world"
    return load_public(write_public(folder, public_json(SMALL), theirs.state_dict())).eval()


def frames(seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(ENVIRONMENTS, 1, 3, 28, 28, generator=rng)


def their_plan(model: Any, name: str, settings: dict[str, Any], start: Tensor) -> Tensor:
    import gymnasium as gym
    from stable_worldmodel import solver as solvers
    from stable_worldmodel.policy import PlanConfig

    # One at a time: with more, its LeWM takes the goals' axis of environments for that of samples.
    solver = getattr(solvers, name)(model, batch_size=1, seed=SEED, **settings)
    space = gym.spaces.Box(-1, 1, (ENVIRONMENTS, RAW), dtype=np.float32)
    config = PlanConfig(horizon=HORIZON, receding_horizon=HORIZON, action_block=BLOCK // RAW)
    solver.configure(action_space=space, n_envs=ENVIRONMENTS, config=config)
    info = {"pixels": frames(1), "goal": frames(2), "action": torch.zeros(ENVIRONMENTS, 1, BLOCK)}
    return solver.solve(info, init_action=start.clone())["actions"]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("warm", [False, True], ids=["from zeros", "warm start"])
def test_a_plan_is_upstreams(theirs: Any, ours: LeWM, name: str, warm: bool) -> None:
    ours_solver, settings = CASES[name]
    rng = torch.Generator().manual_seed(3)
    start = warm * torch.randn(ENVIRONMENTS, HORIZON, BLOCK, generator=rng)
    expected = their_plan(theirs, name, settings, start)
    with torch.inference_mode():
        z, goal = ours.encode(frames(1)[:, 0]), ours.encode(frames(2)[:, 0])
    plan = ours_solver(LatentCost(ours, z[:, None], goal), start, noise=their_noise(name))
    assert (plan.actions - start).abs().max() > 0.02  # it is no coincidence
    assert (plan.actions - expected).abs().max() < 1e-4


def test_costs_are_upstreams(theirs: Any, ours: LeWM) -> None:
    plans = torch.randn(1, 7, HORIZON, BLOCK, generator=torch.Generator().manual_seed(4))
    with torch.inference_mode():
        info = {
            "pixels": frames(1)[:1, None].expand(-1, 7, -1, -1, -1, -1),
            "goal": frames(2)[:1, None].expand(-1, 7, -1, -1, -1, -1),
            "action": torch.zeros(1, 7, 1, BLOCK),
        }
        expected = theirs.get_cost(info, plans)
        z, goal = ours.encode(frames(1)[:1, 0]), ours.encode(frames(2)[:1, 0])
        torch.testing.assert_close(LatentCost(ours, z[:, None], goal)(plans), expected)

"""What bad calls are made to: everything tiny, nothing trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from bad_values import GARBAGE, Values, write
from goalward.control.act import GCIDMController
from goalward.control.checkpoint import IDMMetadata, TrainedIDM, new_inverse_model, save_trained_idm
from goalward.control.controller import RandomController, ZeroController
from goalward.control.goals import GoalSampler
from goalward.control.horizon import HorizonConfig
from goalward.control.networks import GCIDMConfig, PairwiseConfig, TimeToGoConfig
from goalward.core.arrays import Array
from goalward.data.episodes import Episodes, open_episodes
from goalward.data.hdf5 import merge_episodes, write_episode
from goalward.data.splits import SplitConfig
from goalward.data.windows import ActionScaler
from goalward.evaluation.pairs import Pairs, PairsConfig, draw_pairs, save_pairs
from goalward.evaluation.results import EpisodeResult
from goalward.evaluation.simulators import SimulatorPool, StepResult
from goalward.planning.hybrid import HybridConfig, HybridController
from goalward.planning.mpc import MPCConfig, MPCController
from goalward.planning.solvers import CEM, ICEM, MPPI, AnySolver, Gradient
from goalward.planning.waypoints import WaypointController, WaypointsConfig
from goalward.tasks.task import State
from goalward.world.checkpoint import World, save_world, world_id
from goalward.world.lewm import LeWM
from public_helpers import randomised
from world_helpers import SIDE, tiny_model

LENGTHS = (7, 12, 5, 20)
ROWS = sum(LENGTHS)
FRAMES = np.random.default_rng(0).integers(0, 256, (3, SIDE, SIDE, 3), dtype=np.uint8)
SCALE = ActionScaler(mean=(0.1, -0.2), std=(0.5, 0.8))
NETWORK = GCIDMConfig(latent_dim=16, action_dim=2, hidden_dim=8, num_layers=1)
SOLVERS: dict[str, AnySolver] = {
    "cem": CEM(num_samples=4, num_iters=1, num_elites=2),
    "icem": ICEM(num_samples=4, num_iters=1, num_elites=2, num_kept=1),
    "mppi": MPPI(num_samples=4, num_iters=1, num_elites=2),
    "gradient": Gradient(num_samples=2, num_iters=1),
}
CARD: dict[str, Any] = {
    "task": None,
    "world_id": "none",
    "world": tiny_model(),
    "action_scale": SCALE,
    "network": NETWORK,
    "time_to_go": TimeToGoConfig(hidden_dim=8, num_layers=1),
    "horizon": HorizonConfig(mode="time-to-go"),
    "action_low": (-1.0, -1.0),
    "action_high": (1.0, 1.0),
    "latents_id": "none",
    "split": SplitConfig(),
}
ROW: dict[str, Any] = {
    "task": "two-room",
    "protocol": "paper",
    "method": "m",
    "run_id": "c",
    "pairs": "p",
    "seed": 0,
    "pair": 0,
    "budget": 50,
    "success": True,
    "steps": 10,
    "jerk": 0.5,
    "monotonic": True,
    "approach_rate": 1.0,
    "latent_distance": 1.0,
    "errors": {"agent": 2.0},
    "episode": 0,
    "plans": None,
    "predictor_calls": 0,
    "batched_latency_ms": 1.0,
}


def columns(rows: int = 7, seed: int = 0) -> dict[str, Array]:
    """An episode of the task two-room, to look at."""
    rng = np.random.default_rng(seed)
    action = rng.uniform(-1, 1, (rows, 2)).astype(np.float32)
    action[-1] = np.nan
    state = rng.uniform(0, 224, (rows, 2))
    pixels = rng.integers(0, 256, (rows, SIDE, SIDE, 3), dtype=np.uint8)
    return {"pixels": pixels, "action": action, "state": state, "proprio": state}


def row(pair: int) -> EpisodeResult:
    return EpisodeResult(**{**ROW, "pair": pair})


class Giving:
    """A controller that acts as it is told."""

    def __init__(self, actions: Any) -> None:
        self._actions = actions

    def reset(self, goals: Any, budget: Any, *, environments: Any = None) -> None:
        pass

    def act(self, frames: Any, steps_left: Any = None, *, environments: Any = None) -> Any:
        return self._actions


class StillPool(SimulatorPool):
    """Two simulators in which nothing moves."""

    def __init__(self) -> None:
        self.number = 2

    def begin(self, pairs: Mapping[int, tuple[State, State]]) -> dict[int, StepResult]:
        return {k: StepResult(frame=FRAMES[0], row=start) for k, (start, _) in pairs.items()}

    def step(self, actions: Mapping[int, Array]) -> dict[int, StepResult]:
        return {k: StepResult(frame=FRAMES[0], row={"state": np.zeros(2)}) for k in actions}


@dataclass(frozen=True)
class Kit:
    """Made once for all tests of a process."""

    folder: Path

    @cached_property
    def world(self) -> LeWM:
        return randomised(tiny_model())

    @cached_property
    def model(self) -> TrainedIDM:
        return self._model(CARD)

    @cached_property
    def pairwise(self) -> TrainedIDM:
        network = PairwiseConfig(latent_dim=16, action_dim=2, hidden_dim=8, frameskip=2)
        horizon = {"time_to_go": None, "horizon": HorizonConfig()}
        return self._model({**CARD, "network": network, **horizon})

    def _model(self, metadata: dict[str, Any]) -> TrainedIDM:
        name = world_id(self.world, SCALE)
        world = World(model=self.world, actions=SCALE, id=name)
        with torch.random.fork_rng():
            model = new_inverse_model(IDMMetadata(**{**metadata, "world_id": name}), world)
        for part in (model.network, model.time_to_go):
            if part is not None:
                part.eval()
        return model

    def fresh(self, name: str) -> Any:
        """A controller without goals."""
        return CONTROLLERS[name](self)

    @cached_property
    def controllers(self) -> dict[str, Any]:
        """Controllers in three environments."""
        made = {name: self.fresh(name) for name in CONTROLLERS}
        for controller in made.values():
            controller.reset(FRAMES, 50)
        return made

    @cached_property
    def model_file(self) -> Path:
        save_trained_idm(self.folder / "model.safetensors", self.model)
        return self.folder / "model.safetensors"

    @cached_property
    def world_folder(self) -> Path:
        save_world(self.folder / "world", "best", self.world, SCALE)
        return self.folder / "world"

    @cached_property
    def dataset(self) -> Path:
        parts = [self.folder / f"{k}.part" for k in range(len(LENGTHS))]
        for k, (part, rows) in enumerate(zip(parts, LENGTHS, strict=True)):
            write_episode(part, columns(rows, k), attributes={"task": "two-room"})
        merge_episodes(parts, self.folder / "episodes.h5")
        return self.folder / "episodes.h5"

    @cached_property
    def episodes(self) -> Episodes:
        return open_episodes(self.dataset)

    @cached_property
    def pairs(self) -> Pairs:
        config = PairsConfig(task="two-room", count=4, offset=2, episodes="all")
        return draw_pairs(self.dataset, config)

    @cached_property
    def pairs_file(self) -> Path:
        save_pairs(self.folder / "pairs.npz", self.pairs)
        return self.folder / "pairs.npz"

    def sampler(self, **changes: Any) -> GoalSampler:
        """Examples of two episodes."""
        good: dict[str, Any] = {
            "z_ND": torch.zeros(ROWS, 3),
            "actions_NA": torch.zeros(ROWS, 2),
            "lengths_E": np.array(LENGTHS),
            "chosen": np.array([1, 3]),
            "min_horizon": 1,
            "max_horizon": 5,
        }
        return GoalSampler(**{**good, **changes})


def plan_with(model: TrainedIDM, solver: AnySolver) -> MPCController:
    world = World(model=model.world, actions=SCALE, id="tiny")
    config = MPCConfig(horizon=2, receding_horizon=1)
    return MPCController(world, solver, action_low=[-1, -1], action_high=[1, 1], config=config)


CONTROLLERS: dict[str, Callable[[Kit], Any]] = {
    "direct": lambda kit: GCIDMController(kit.model),
    "zero": lambda kit: ZeroController(2),
    "random": lambda kit: RandomController(2, seed=0),
    "cem": lambda kit: plan_with(kit.model, SOLVERS["cem"]),
    "icem": lambda kit: plan_with(kit.model, SOLVERS["icem"]),
    "mppi": lambda kit: plan_with(kit.model, SOLVERS["mppi"]),
    "gradient": lambda kit: plan_with(kit.model, SOLVERS["gradient"]),
    "hybrid": lambda kit: HybridController(
        kit.model,
        HybridConfig(horizon=1, commit=1, search=CEM(num_samples=4, num_iters=1, num_elites=2)),
    ),
    "waypoints": lambda kit: WaypointController(kit.pairwise, WaypointsConfig(horizon=2, commit=1)),
}


EXAMPLES = 120  # of each API
Draw = Callable[[Values], Any]
Call = Callable[[], object]
Bad = Callable[[Draw, "Kit"], Call]


@dataclass(frozen=True)
class Api:
    """One function of the public API."""

    named: str  # in its refusals
    good: Callable[[Kit], object]
    bad: Bad
    examples: int


APIS: dict[str, Api] = {}


def api(
    named: str, good: Callable[[Kit], object], examples: int = EXAMPLES, *, of: str = ""
) -> Callable[[Bad], Bad]:
    """Takes a function that draws a bad call up into the table; `of` tells twins apart."""

    def add(bad: Bad) -> Bad:
        name = f"{of}.{bad.__name__}".removeprefix(".")
        assert name not in APIS
        APIS[name] = Api(named, good, bad, examples)
        return bad

    return add


def one_bad(draw: Draw, good: dict[str, Any], **bad: Values) -> dict[str, Any]:
    """Good arguments, but for one."""
    name = draw(st.sampled_from(sorted(bad)))
    return {**good, name: draw(bad[name])}


def spoilt_file(draw: Draw, good: Path, path: Path) -> Path:
    """Garbage, or a good file that is cut short."""
    content = good.read_bytes()
    cut = st.integers(0, len(content) - 1).map(lambda size: content[:size])
    return write(path, draw(st.one_of(GARBAGE, cut)))

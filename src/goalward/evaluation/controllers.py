"""Our controllers, registered as a stranger's would be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace

from goalward.control.act import GCIDMController
from goalward.control.controller import Controller, RandomController, ZeroController
from goalward.core.config import config
from goalward.evaluation.kinds import ControllerInputs, ControllerKind
from goalward.evaluation.simulators import SimulatorController, replay_policy
from goalward.planning.hybrid import HybridConfig, HybridController
from goalward.planning.mpc import MPCConfig, MPCController
from goalward.planning.solvers import CEM as CEM_SOLVER
from goalward.planning.solvers import ICEM as ICEM_SOLVER
from goalward.planning.solvers import MPPI as MPPI_SOLVER
from goalward.planning.solvers import Gradient
from goalward.planning.waypoints import WaypointController, WaypointsConfig

AnySolver = CEM_SOLVER | ICEM_SOLVER | MPPI_SOLVER | Gradient


@config
class PlannerConfig:
    """A solver, and how its plans are used."""

    solver: AnySolver
    mpc: MPCConfig = field(default_factory=MPCConfig)


def _planner(config: PlannerConfig, inputs: ControllerInputs) -> Controller:
    return MPCController(
        inputs.world,
        config.solver,
        action_low=inputs.action_low,
        action_high=inputs.action_high,
        config=replace(config.mpc, seed=inputs.seed),
    )


def planner(solver: Callable[[], AnySolver]) -> ControllerKind:
    """Model predictive control with a solver."""
    return ControllerKind(
        make=_planner, config=lambda _: PlannerConfig(solver=solver()), needs="world"
    )


GC_IDM = ControllerKind(
    make=lambda horizon, inputs: GCIDMController(inputs.model, horizon),
    config=lambda model: model.metadata.horizon,
    needs="idm",
    draws=False,
)
CEM, ICEM, MPPI = planner(CEM_SOLVER), planner(ICEM_SOLVER), planner(MPPI_SOLVER)
GRADIENT = planner(Gradient)
HYBRID = ControllerKind(
    make=lambda config, inputs: HybridController(inputs.model, replace(config, seed=inputs.seed)),
    config=lambda model: HybridConfig(steps_left=model.metadata.horizon),
    needs="idm",
)
WAYPOINTS = ControllerKind(
    make=lambda config, inputs: WaypointController(inputs.model, replace(config, seed=inputs.seed)),
    config=WaypointsConfig,
    needs="pairwise",
)
RANDOM = ControllerKind(make=lambda _, inputs: RandomController(inputs.action_dim, inputs.seed))
ZERO = ControllerKind(make=lambda _, inputs: ZeroController(inputs.action_dim), draws=False)
REPLAY = ControllerKind(make=lambda *_: SimulatorController(policy=replay_policy), draws=False)

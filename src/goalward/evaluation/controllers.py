"""What a registered controller is, and our own, which register as a stranger's would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from goalward.control.act import GCIDMController
from goalward.control.controller import Controller, RandomController, ZeroController
from goalward.core.config import config
from goalward.core.registry import Registry
from goalward.evaluation.simulators import SimulatorController, replay_policy
from goalward.planning import solvers
from goalward.planning.hybrid import HybridConfig, HybridController
from goalward.planning.mpc import MPCConfig, MPCController
from goalward.planning.waypoints import WaypointController, WaypointsConfig

AnyController = Controller | SimulatorController


@config
class NoConfig:
    """The configuration of a controller that has none."""


@dataclass(frozen=True, kw_only=True)
class ControllerInputs:
    """What a registered controller is made from, beside its configuration."""

    action_dim: int
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    model: Any  # a `TrainedIDM`, of those that need "idm" or "pairwise"
    world: Any  # a `World`, or the encoder of a model without one
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class ControllerKind:
    """A registered controller.

    Attributes:
        make: From a configuration and inputs to a controller.
        config: The default configuration: a class, or a function of the model it needs.
        needs: A goal-conditioned model, a pairwise one, a world model alone, or nothing.
        draws: Whether it draws at random, so that seeds matter.
        uses_model: Whether, with a configuration, it uses more of its model than the world model.
    """

    make: Callable[[Any, ControllerInputs], AnyController]
    config: Callable[..., Any] = NoConfig
    needs: Literal["idm", "pairwise", "world"] | None = None
    draws: bool = True
    uses_model: Callable[[Any], bool] = lambda _: True


def acts(what: Any) -> bool:
    """Whether an object (not a class) has a controller's methods."""
    methods = callable(getattr(what, "reset", None)) and callable(getattr(what, "act", None))
    return methods and not isinstance(what, type)


CONTROLLERS: Registry[Any] = Registry(
    "controller",
    {
        name: f"{__name__}:{name.upper().replace('-', '_')}"
        for name in ("gc-idm", "hybrid", "waypoints", "random", "zero", "replay")
    },
    lambda thing: isinstance(thing, ControllerKind) or callable(thing) or acts(thing),
    also=solvers.SOLVERS,
)


def register_controller(
    name: str,
    make: Callable[[Any, ControllerInputs], AnyController],
    *,
    config: Callable[..., Any] = NoConfig,
    needs: Literal["idm", "pairwise", "world"] | None = None,
    draws: bool = True,
) -> None:
    """Lets a name stand for a controller in this process; see `ControllerKind`.

    Rows of an evaluation are found again by the name, so rename a controller whose code changes.
    """
    kind = ControllerKind(make=make, config=config, needs=needs, draws=draws)
    CONTROLLERS.register(name, kind)


def planner(solver: type[solvers.Solver]) -> ControllerKind:
    """Model predictive control with a solver, whose settings begin with `solver.`."""
    types = {"solver": solver, "mpc": MPCConfig}
    defaults = {name: field(default_factory=type_) for name, type_ in types.items()}
    settings = config(type("PlannerConfig", (), {"__annotations__": types, **defaults}))

    def make(chosen: Any, inputs: ControllerInputs) -> Controller:
        return MPCController(
            inputs.world,
            chosen.solver,
            action_low=inputs.action_low,
            action_high=inputs.action_high,
            config=replace(chosen.mpc, seed=inputs.seed),
            time_to_go=None if inputs.model is None else inputs.model.time_to_go,
        )

    return ControllerKind(
        make=make,
        config=lambda _: settings(),
        needs="world",
        uses_model=lambda chosen: chosen.mpc.cost != "latent",
    )


def controller_kind(name: str) -> Any:
    """What is registered under a name or lies at a place; a solver plans."""
    found = CONTROLLERS.get(name)
    return planner(found) if solvers.is_solver(found) else found


GC_IDM = ControllerKind(
    make=lambda horizon, inputs: GCIDMController(inputs.model, horizon),
    config=lambda model: model.metadata.horizon,
    needs="idm",
    draws=False,
)
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

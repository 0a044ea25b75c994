"""Methods by name: what `goalward evaluate` can compare.

A name may be followed by settings, such as `gc-idm:mode=budget` or `cem:solver.num_iters=5`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from goalward.checks import shown
from goalward.config import override
from goalward.controllers.base import Controller
from goalward.controllers.direct import DirectController
from goalward.controllers.file import InverseModel, model_id
from goalward.controllers.horizon import HorizonConfig
from goalward.controllers.simple import RandomController, ZeroController
from goalward.evaluate.cells import Method
from goalward.planning.cem import CEM
from goalward.planning.gradient import Gradient
from goalward.planning.hybrid import HybridConfig, HybridController
from goalward.planning.icem import ICEM
from goalward.planning.interpolation import InterpolationConfig, InterpolationController
from goalward.planning.mpc import MPCConfig, plan_with
from goalward.planning.mppi import MPPI
from goalward.planning.solvers import SOLVERS, AnySolver, make_solver

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

REFERENCE = "cem"  # what the others are compared with


@dataclass(frozen=True, kw_only=True, slots=True)
class Blind:
    """The configuration of a method that has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannerConfig:
    """A solver, and how its plans are used."""

    solver: CEM | ICEM | MPPI | Gradient
    mpc: MPCConfig = field(default_factory=MPCConfig)


@dataclass(frozen=True, kw_only=True)
class Models:
    """The trained models that methods may need."""

    controller: InverseModel | None = None  # goal-conditioned; planners use its world model
    pairwise: InverseModel | None = None


def names() -> tuple[str, ...]:
    """Every method that there is."""
    return ("gc-idm", *SOLVERS, "hybrid", "interpolation", "random", "zero")


def require_method(spec: str) -> None:
    """Refuse what is no method's name, with or without settings."""
    name = spec.partition(":")[0]
    if name not in names():
        raise ValueError(
            f"method {name!r} is neither one of {', '.join(names())}, nor the path of a controller"
        )


def make_method(spec: str, models: Models, *, action_dim: int) -> Method:
    """The method that a name, with settings after a colon, stands for.

    Raises:
        ValueError: there is no such method or setting, or the model that it needs is not given.
    """
    if not isinstance(spec, str):
        raise ValueError(f"a method must be a name, got {shown(spec)}")
    name, _, settings = spec.partition(":")
    require_method(spec)
    if name in ("random", "zero"):
        config, make = _blind(name, action_dim)
        model: InverseModel | None = None
    else:
        model = _needed(name, models)
        config = _default(name, model)
        make = _maker(name, model)
    chosen = override(config, [part for part in settings.split(",") if part])
    return Method(
        name=spec,
        config=chosen,
        model_id=None if model is None else _used_weights(name, model),
        make=lambda seed: make(chosen, seed),
        device="cpu" if model is None else str(next(model.network.parameters()).device),
    )


def _blind(
    name: str, action_dim: int
) -> tuple[DataclassInstance, Callable[[Any, int], Controller]]:
    if name == "zero":
        return Blind(), lambda _, seed: ZeroController(action_dim)  # noqa: ARG005
    return Blind(), lambda _, seed: RandomController(action_dim, seed)


def _needed(name: str, models: Models) -> InverseModel:
    if name == "interpolation":
        if models.pairwise is None:
            raise ValueError("interpolation needs a pairwise model; give it with --pairwise")
        return models.pairwise
    if models.controller is None:
        raise ValueError(f"{name} needs a trained controller's file; give it with --model")
    return models.controller


def _used_weights(name: str, model: InverseModel) -> str:
    """The id of the weights that a method's actions depend on."""
    # Planners take the world model out of a controller's file, whichever controller it is.
    return model.card.world_id if name in SOLVERS else model_id(model)


def _default(name: str, model: InverseModel) -> DataclassInstance:
    if name == "gc-idm":
        return model.card.horizon
    if name == "hybrid":
        return HybridConfig(steps_left=model.card.horizon)
    if name == "interpolation":
        return InterpolationConfig()
    return PlannerConfig(solver=make_solver(_solver_name(name)))


def _maker(name: str, model: InverseModel) -> Callable[[Any, int], Controller]:
    """From a configuration and a seed to a controller."""
    if name == "gc-idm":

        def direct(horizon: HorizonConfig, _: int) -> Controller:
            return DirectController(model, horizon)

        return direct
    if name == "hybrid":
        return lambda config, seed: HybridController(model, replace(config, seed=seed))
    if name == "interpolation":
        return lambda config, seed: InterpolationController(model, replace(config, seed=seed))

    def planner(config: PlannerConfig, seed: int) -> Controller:
        solver: AnySolver = config.solver
        return plan_with(model, solver, replace(config.mpc, seed=seed))

    return planner


def _solver_name(name: str) -> Any:
    assert name in SOLVERS
    return name

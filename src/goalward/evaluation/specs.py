"""An exported controller as a method that an evaluation can compare."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from goalward.control.act import GCIDMController
from goalward.control.checkpoint import TrainedIDM, model_id
from goalward.control.controller import Controller, RandomController, ZeroController
from goalward.control.horizon import HorizonConfig
from goalward.core.checks import format_value
from goalward.core.config import override
from goalward.evaluation.cells import ControllerSpec
from goalward.planning.hybrid import HybridConfig, HybridController
from goalward.planning.mpc import MPCConfig, MPCController
from goalward.planning.solvers import CEM, ICEM, MPPI, SOLVERS, Gradient
from goalward.planning.waypoints import WaypointController, WaypointsConfig
from goalward.runtime.onnx import OnnxController, OnnxMetadata
from goalward.world.checkpoint import World

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

    controller: TrainedIDM | None = None  # goal-conditioned; planners use its world model
    pairwise: TrainedIDM | None = None


def names() -> tuple[str, ...]:
    """Every method that there is."""
    return ("gc-idm", *SOLVERS, "hybrid", "waypoints", "random", "zero")


def require_method(spec: str) -> None:
    """Refuse what is no method's name, with or without settings."""
    name = spec.partition(":")[0]
    if name not in names():
        raise ValueError(
            f"method {name!r} is neither one of {', '.join(names())}, nor the path of a controller"
        )


def make_method(spec: str, models: Models, *, action_dim: int) -> ControllerSpec:
    """The method that a name, with settings after a colon, stands for.

    Raises:
        ValueError: there is no such method or setting, or the model that it needs is not given.
    """
    if not isinstance(spec, str):
        raise ValueError(f"a method must be a name, got {format_value(spec)}")
    name, _, settings = spec.partition(":")
    require_method(spec)
    if name in ("random", "zero"):
        config, make = _blind(name, action_dim)
        model: TrainedIDM | None = None
    else:
        model = _needed(name, models)
        config = _default(name, model)
        make = _maker(name, model)
    chosen = override(config, [part for part in settings.split(",") if part])
    return ControllerSpec(
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


def _needed(name: str, models: Models) -> TrainedIDM:
    if name == "waypoints":
        if models.pairwise is None:
            raise ValueError("interpolation needs a pairwise model; give it with --pairwise")
        return models.pairwise
    if models.controller is None:
        raise ValueError(f"{name} needs a trained controller's file; give it with --model")
    return models.controller


def _used_weights(name: str, model: TrainedIDM) -> str:
    """The id of the weights that a method's actions depend on."""
    # Planners take the world model out of a controller's file, whichever controller it is.
    return model.metadata.world_id if name in SOLVERS else model_id(model)


def _default(name: str, model: TrainedIDM) -> DataclassInstance:
    if name == "gc-idm":
        return model.metadata.horizon
    if name == "hybrid":
        return HybridConfig(steps_left=model.metadata.horizon)
    if name == "waypoints":
        return WaypointsConfig()
    return PlannerConfig(solver=SOLVERS[name]())


def _maker(name: str, model: TrainedIDM) -> Callable[[Any, int], Controller]:
    """From a configuration and a seed to a controller."""
    if name == "gc-idm":

        def direct(horizon: HorizonConfig, _: int) -> Controller:
            return GCIDMController(model, horizon)

        return direct
    if name == "hybrid":
        return lambda config, seed: HybridController(model, replace(config, seed=seed))
    if name == "waypoints":
        return lambda config, seed: WaypointController(model, replace(config, seed=seed))

    def planner(config: PlannerConfig, seed: int) -> Controller:
        metadata = model.metadata
        return MPCController(
            World(model=model.world, actions=metadata.action_scale, id=metadata.world_id),
            config.solver,
            action_low=metadata.action_low,
            action_high=metadata.action_high,
            config=replace(config.mpc, seed=seed),
        )

    return planner


NAME = "gc-idm-onnx"


def onnx_method(path: Path) -> tuple[ControllerSpec, OnnxMetadata]:
    """The method of a file, with as many threads as the other methods have, and the file's card.

    Raises:
        ValueError: as `OnnxController` does.
    """
    metadata = OnnxController(path).metadata
    method = ControllerSpec(
        name=NAME,
        config=metadata.horizon,
        model_id=hashlib.sha256(path.read_bytes()).hexdigest()[:16],
        make=lambda _: OnnxController(path, threads=torch.get_num_threads()),
    )
    return method, metadata

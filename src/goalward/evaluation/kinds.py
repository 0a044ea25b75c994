"""What a registered controller is, and the registry of all.

Ours are rows of `evaluation/controllers.py`, and load as those of an installed package do.
`register_controller` adds more at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from goalward.control.controller import Controller
from goalward.core.config import config
from goalward.core.registry import Registry
from goalward.evaluation.simulators import SimulatorController

Need = Literal["idm", "pairwise", "world"]
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
    """

    make: Callable[[Any, ControllerInputs], AnyController]
    config: Callable[..., Any] = NoConfig
    needs: Need | None = None
    draws: bool = True


CONTROLLERS: Registry[Any] = Registry(
    "controller",
    {
        name: f"goalward.evaluation.controllers:{name.upper().replace('-', '_')}"
        for name in (
            *("gc-idm", "cem", "icem", "mppi", "gradient", "hybrid", "waypoints"),
            *("random", "zero", "replay"),
        )
    },
    lambda thing: isinstance(thing, ControllerKind) or callable(thing) or acts(thing),
)


def register_controller(
    name: str,
    make: Callable[[Any, ControllerInputs], AnyController],
    *,
    config: Callable[..., Any] = NoConfig,
    needs: Need | None = None,
    draws: bool = True,
) -> None:
    """Lets a name stand for a controller in this process; see `ControllerKind`.

    Rows of an evaluation are found again by the name, so rename a controller whose code changes.
    """
    kind = ControllerKind(make=make, config=config, needs=needs, draws=draws)
    CONTROLLERS.register(name, kind)


def acts(what: Any) -> bool:
    """Whether an object (not a class) has a controller's methods."""
    methods = callable(getattr(what, "reset", None)) and callable(getattr(what, "act", None))
    return methods and not isinstance(what, type)

"""The types every task is made of.

A `Task` is data: names, sizes, success rules and the functions that build its simulator and its
scripted policies. Whatever is peculiar to one simulator stays in that task's own file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from goalward import defaults
from goalward.core.arrays import Array
from goalward.core.config import require_types
from goalward.defaults import PresetName


def wrap_angle(angle: Array | float) -> Array:
    """The same angle in [-π, π)."""
    return np.asarray((np.asarray(angle) + np.pi) % (2.0 * np.pi) - np.pi)


State = Mapping[str, Array]  # one row (or, with leading axes, many rows) of an episode file
Policy = Callable[[], Array]  # next action for the simulator the policy was made for

Rendering = Literal["fast", "environment"]

MAX_IMAGE_SIZE = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderConfig:
    """How a task is simulated and drawn; the same in collection and in evaluation."""

    image_size: int = defaults.IMAGE_SIZE  # pixels a side
    rendering: Rendering = "fast"  # "environment": its own slow frames, as in public datasets
    physics: str = "environment"

    def __post_init__(self) -> None:
        require_types(self)
        if not 16 <= self.image_size <= MAX_IMAGE_SIZE:
            raise ValueError(
                f"image_size must be between 16 and {MAX_IMAGE_SIZE}, got {self.image_size}"
            )


class Simulator(ABC):
    """One running environment: deterministic, restorable, drawn at the scene's image size.

    Nothing survives a `reset` or a `restore`, so an episode is a function of its random generator
    alone, whichever process ran it and whatever that process ran before.
    """

    @abstractmethod
    def reset(self, rng: np.random.Generator) -> None:
        """Start an episode in a random state; every draw comes from `rng`."""

    @abstractmethod
    def step(self, action: Array) -> bool:
        """Advance one control step.

        Args:
            action: float array of shape (action_dim,).

        Returns:
            The environment's own verdict on the goal given by `set_goal`; False without one.
        """

    @abstractmethod
    def state(self) -> dict[str, Array]:
        """The state columns of the present moment: enough to `restore` it exactly."""

    @abstractmethod
    def restore(self, row: State) -> None:
        """Return to a recorded state and forget any goal."""

    @abstractmethod
    def set_goal(self, row: State) -> None:
        """Give the environment its own goal: the recorded state `row`."""

    @abstractmethod
    def render(self) -> Array:
        """The present frame: uint8 of shape (image_size, image_size, 3)."""

    def close(self) -> None:  # noqa: B027 (most simulators hold nothing to release)
        """Release what the simulator holds."""


def every_pair(start: State, goal: State) -> Array:  # noqa: ARG001
    """Admit every (start, goal) pair."""
    return np.ones(next(iter(start.values())).shape[:-1], dtype=bool)


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """When an episode counts as a success.

    `solved` and `admits` take rows with any leading axes and return booleans of those axes.
    """

    summary: str
    solved: Callable[[State, State], Array]  # (row, goal): does this state meet the goal?
    hold: int = 1  # consecutive steps the state must stay solved
    admits: Callable[[State, State], Array] = (
        every_pair  # (start, goal): is the pair counted at all?
    )
    physics: str = "environment"
    environments_own: bool = False  # judged by the environment's own termination


@dataclass(frozen=True, kw_only=True)
class ProbeTarget:
    """One part of the true state, as a probe reads it from a latent."""

    name: str
    column: str  # of the episode file
    index: tuple[int, ...]  # components of the column
    unit: str  # of errors, such as px, cm, rad or deg
    scale: float = 1.0  # from the column's unit to `unit`
    angle: bool = False  # the components are angles in radians, which come round


@dataclass(frozen=True, kw_only=True)
class TaskPreset:
    """The size of everything that a preset makes for a task; what is None is left to the data."""

    episodes: int  # demonstrations
    demonstrator: str | None = None  # None: the task's default
    image_size: int = defaults.IMAGE_SIZE
    world_steps: int | None = None  # of the world model's training; None: the paper's epochs
    controller_steps: int | None = None  # at most; None: the paper's epochs
    controller: tuple[str, ...] = ()  # NAME=VALUE in place of the controller's usual configuration


# What a preset means for a task that does not say otherwise.
TASK_PRESETS: dict[PresetName, TaskPreset] = {
    "paper": TaskPreset(episodes=10_000, image_size=224),
    "cpu-long": TaskPreset(episodes=1_000, world_steps=12_000, controller_steps=10_000),
    "cpu": TaskPreset(episodes=400, world_steps=3_600, controller_steps=3_000),
    "smoke": TaskPreset(episodes=20, world_steps=40, controller_steps=30),
}


@dataclass(frozen=True, kw_only=True)
class Task:
    """One benchmark task."""

    name: str
    env_id: str
    summary: str
    action_dim: int  # every action lies in [-1, 1]
    episode_steps: int  # actions in one demonstration
    state_columns: Mapping[str, int]  # what `Simulator.row` returns, and how many numbers each
    restore_columns: tuple[str, ...]  # what `Simulator.restore` cannot do without
    probe_targets: tuple[ProbeTarget, ...]  # what a probe reads from latents; names are unique
    needs_gl: bool
    make: Callable[[RenderConfig], Simulator]  # use `simulator`, which checks the scene first
    protocols: Mapping[str, Protocol]
    demonstrators: Mapping[str, Callable[[Any, np.random.Generator], Policy]]  # first: default
    scripted_baselines: Mapping[str, Callable[[Any, State], Policy]] = field(default_factory=dict)
    pair_subsets: Mapping[str, Callable[[State, State], Array]] = field(default_factory=dict)
    physics: tuple[str, ...] = ("environment",)
    presets: Mapping[PresetName, TaskPreset] = field(default_factory=dict)

    def preset(self, name: PresetName) -> TaskPreset:
        """The sizes of a preset for this task; its demonstrator is named."""
        found = self.presets.get(name, TASK_PRESETS[name])
        return replace(found, demonstrator=found.demonstrator or self.default_demonstrator)

    @property
    def default_demonstrator(self) -> str:
        """Name of the demonstrator used unless another is asked for."""
        return next(iter(self.demonstrators))

    @property
    def baselines(self) -> tuple[str, ...]:
        """Names of the policies that learn nothing."""
        return ("zero", "random", *self.scripted_baselines)

    def describe(self) -> dict[str, Any]:
        """The task's facts as plain JSON types."""
        return {
            "name": self.name,
            "env_id": self.env_id,
            "summary": self.summary,
            "action_dim": self.action_dim,
            "episode_steps": self.episode_steps,
            "state_columns": list(self.state_columns),
            "needs_gl": self.needs_gl,
            "protocols": {name: protocol.summary for name, protocol in self.protocols.items()},
            "demonstrators": list(self.demonstrators),
            "baselines": list(self.baselines),
        }

    def simulator(self, scene: RenderConfig) -> Simulator:
        """A new simulator of this task.

        Raises:
            ValueError: the task does not know the scene's physics, or a library is missing.
        """
        if scene.physics not in self.physics:
            known = ", ".join(self.physics)
            raise ValueError(f"task {self.name} has no physics {scene.physics!r}, only: {known}")
        return self.make(scene)


class SuccessChecker:
    """Judges one episode under one protocol: feed it every step, in order."""

    def __init__(self, protocol: Protocol, goal: State) -> None:
        self._protocol = protocol
        self._goal = goal
        self._held = 0

    def judge(self, row: State, *, environment_verdict: bool) -> bool:
        """True once the goal has been held for as long as the protocol asks."""
        if self._protocol.environments_own:
            return environment_verdict
        self._held = self._held + 1 if bool(self._protocol.solved(row, self._goal)) else 0
        return self._held >= self._protocol.hold


def unsolved_starts(solved: Callable[[State, State], Array]) -> Callable[[State, State], Array]:
    """Admit the pairs whose start does not already meet the goal."""

    def admits(start: State, goal: State) -> Array:
        return np.logical_not(solved(start, goal))

    return admits


def clip_action(action: Array) -> Array:
    """An action as the simulators take it: float32 within [-1, 1]."""
    return np.clip(np.asarray(action, dtype=np.float32), -1.0, 1.0)

"""The types every task is made of.

A `Task` is data: names, sizes, success rules and the functions that build its simulator and its
scripted policies. Whatever is peculiar to one simulator stays in that task's own file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from goalward import defaults
from goalward.core.arrays import Array
from goalward.core.config import config
from goalward.defaults import PresetName


def wrap_angle(angle: Array | float) -> Array:
    """The same angle in [-π, π)."""
    return np.asarray((np.asarray(angle) + np.pi) % (2.0 * np.pi) - np.pi)


State = Mapping[str, Array]  # one row (or, with leading axes, many rows) of an episode file
Policy = Callable[[], Array]  # next action for the simulator the policy was made for
Demonstrator = Callable[[Any, np.random.Generator], Policy]  # from a simulator, for one episode

Rendering = Literal["fast", "environment"]


@config
class RenderConfig:
    """How a task is simulated and drawn; the same in collection and in evaluation."""

    image_size: Annotated[int, Field(ge=16, le=512)] = defaults.IMAGE_SIZE  # pixels a side
    rendering: Rendering = "fast"  # "environment": its own slow frames, as in public datasets
    physics: str = "environment"


class Simulator(ABC):
    """One running environment: deterministic, restorable, drawn at the configured image size.

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
            Whether the goal given by `set_goal` is reached, by the environment's own rule; False
            without a goal.
        """

    @abstractmethod
    def state(self) -> dict[str, Array]:
        """The present state: enough to `restore` it exactly."""

    @abstractmethod
    def restore(self, row: State) -> None:
        """Return to a recorded state, without a goal."""

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
    environments_own: bool = False  # success is what `Simulator.step` returns

    @classmethod
    def own(cls, summary: str, solved: Callable[[State, State], Array]) -> Protocol:
        """The environment's own rule; `solved` gives its verdict on a recorded state."""
        return cls(
            summary=f"the environment's own: {summary}", solved=solved, environments_own=True
        )

    @classmethod
    def unsolved(
        cls, summary: str, solved: Callable[[State, State], Array], *, hold: int = 1
    ) -> Protocol:
        """A rule on recorded states; pairs whose start already meets the goal are left out."""

        def admits(start: State, goal: State) -> Array:
            return np.logical_not(solved(start, goal))

        summary = f"{summary}, solved starts left out"
        return cls(summary=summary, solved=solved, hold=hold, admits=admits)


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
    """What a preset makes for a task, and how much of it."""

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
    state_columns: Mapping[str, int]  # what `Simulator.state` returns, and how many numbers each
    restore_columns: tuple[str, ...]  # what `Simulator.restore` cannot do without
    probe_targets: tuple[ProbeTarget, ...]  # what a probe reads from latents; names are unique
    needs_gl: bool
    make: Callable[[RenderConfig], Simulator]  # use `simulator`, which checks the physics first
    protocols: Mapping[str, Protocol]
    demonstrators: Mapping[str, Demonstrator]  # first: default
    scripted_baselines: Mapping[str, Callable[[Any, State], Policy]] = field(default_factory=dict)
    pair_subsets: Mapping[str, Callable[[State, State], Array]] = field(default_factory=dict)
    physics: tuple[str, ...] = ("environment",)
    presets: Mapping[PresetName, TaskPreset] = field(default_factory=dict)
    renderer: int = 1  # version of the fast frames; rises when they change

    def preset(self, name: PresetName) -> TaskPreset:
        """The sizes of a preset for this task; its demonstrator is named."""
        found = self.presets.get(name, TASK_PRESETS[name])
        return replace(found, demonstrator=found.demonstrator or self.default_demonstrator)

    @property
    def default_demonstrator(self) -> str:
        """Name of the demonstrator used unless another is asked for."""
        return next(iter(self.demonstrators))

    @property
    def default_protocol(self) -> str:
        """Name of the protocol used unless another is asked for."""
        return next(iter(self.protocols))

    @property
    def baselines(self) -> tuple[str, ...]:
        """Names of the policies that learn nothing."""
        return ("zero", "random", *self.scripted_baselines)

    def describe(self) -> dict[str, Any]:
        """The task as plain JSON types."""
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

    def simulator(self, render: RenderConfig) -> Simulator:
        """A new simulator of this task."""
        if render.physics not in self.physics:
            known = ", ".join(self.physics)
            raise ValueError(f"task {self.name} has no physics {render.physics!r}, only: {known}")
        return self.make(render)

    @classmethod
    def from_gymnasium(
        cls,
        environment: str | Callable[[], Any],
        *,
        name: str,
        get_state: Callable[[Any], State],
        set_state: Callable[[Any, State], None],
        success: Callable[[State, State], Array],
        demonstrator: Callable[[Any, np.random.Generator], Policy] | None = None,
        summary: str = "",
        episode_steps: int = 100,
        probe_targets: tuple[ProbeTarget, ...] = (),
        needs_gl: bool = False,
    ) -> Task:
        """A task of any Gymnasium environment with a Box of actions and frames to render.

        Args:
            environment: Its id, or a function that makes it with `render_mode="rgb_array"`.
            name: What the task is called, once it is registered.
            get_state: `get_state(environment)`: named arrays that hold the state.
            set_state: `set_state(environment, state)`: restores the state exactly, after a reset.
            success: `success(state, goal)`: whether a state meets a goal; it also works on arrays
                with leading axes.
            demonstrator: `demonstrator(environment, generator)`: a function that gives the next
                action in [-1, 1], or None for random actions.
            summary: The task in one sentence.
            episode_steps: Actions of one demonstration.
            probe_targets: What a probe reads from latents.
            needs_gl: Whether MuJoCo draws its frames.
        """
        from goalward.tasks.gymnasium import GymnasiumSimulator, random_actions

        make = partial(GymnasiumSimulator, environment, get_state, set_state, success, needs_gl)
        known = make(RenderConfig())
        state, action_dim = known.state(), known.action_dim
        known.close()

        def demonstrate(simulator: Any, rng: np.random.Generator) -> Policy:
            if demonstrator is None:
                return random_actions(action_dim, rng)
            return demonstrator(simulator.environment, rng)

        return cls(
            name=name,
            env_id=environment if isinstance(environment, str) else name,
            summary=summary or f"The Gymnasium environment {environment}.",
            action_dim=action_dim,
            episode_steps=episode_steps,
            state_columns={column: values.size for column, values in state.items()},
            restore_columns=tuple(state),
            probe_targets=probe_targets,
            needs_gl=needs_gl,
            make=make,
            protocols={"success": Protocol(summary="success as the task says", solved=success)},
            demonstrators={"random" if demonstrator is None else "demonstrator": demonstrate},
        )


class SuccessChecker:
    """Whether one episode succeeds under a protocol; it is given every step, in order."""

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


def clip_action(action: Array) -> Array:
    """An action as the simulators take it: float32 within [-1, 1]."""
    return np.clip(np.asarray(action, dtype=np.float32), -1.0, 1.0)

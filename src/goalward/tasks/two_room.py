"""Two-Room: a disk walks through a door in the wall between two rooms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from goalward.core.arrays import Array
from goalward.tasks.demonstrations import Mixture, RecipeConfig
from goalward.tasks.gymnasium import make_swm_env
from goalward.tasks.rendering import resized
from goalward.tasks.swept_disk import Walls, free_of_walls, swept_disk_step
from goalward.tasks.task import (
    ProbeTarget,
    Protocol,
    RenderConfig,
    Simulator,
    State,
    Task,
    TaskPreset,
    clip_action,
)

NATIVE_SIZE = 224
AGENT_RADIUS = 7.0
WALL_CENTRE = 112.0
WALL_HALF_WIDTH = 5.0
DOOR_CENTRE = 49.0
DOOR_HALF_WIDTH = 14.0
BORDER = 14.0
SPEED = 5.0  # pixels a step at full action
SUCCESS_RADIUS = 16.0
STRICT_RADIUS = 8.0

WALLS = Walls(
    centre=WALL_CENTRE,
    half_width=WALL_HALF_WIDTH,
    door_centre=DOOR_CENTRE,
    door_half_width=DOOR_HALF_WIDTH,
    low=BORDER,
    high=NATIVE_SIZE - BORDER,
)


class TwoRoomSimulator(Simulator):
    """stable-worldmodel's TwoRoom, drawn through a cached background."""

    def __init__(self, render: RenderConfig) -> None:
        self._env = make_swm_env("swm/TwoRoom-v1")
        self._has_goal = False
        self._render = render
        self._draw = DotRenderer(self._env, render.image_size)

    @property
    def position(self) -> Array:
        """Agent position in native pixels: float32 of shape (2,), x then y."""
        position: Array = self._env.agent_position.numpy().copy()
        return position

    def reset(self, rng: np.random.Generator) -> None:
        """Place the agent uniformly outside the wall, as the environment's own reset does."""
        wall = WALL_HALF_WIDTH + AGENT_RADIUS
        while True:
            position = rng.uniform(BORDER, NATIVE_SIZE - BORDER - 1, size=2)
            if abs(position[0] - WALL_CENTRE) > wall:
                break
        self.restore({"state": position})

    def step(self, action: Array) -> bool:
        """Move by the environment's collision test, or by the swept-disk one."""
        action = clip_action(action)
        if self._render.physics == "swept-disk":
            position = swept_disk_step(self.position, action * SPEED, AGENT_RADIUS, WALLS)
            self._env._set_state(position.astype(np.float32))
            return False  # protocols of this physics have predicates
        _, _, reached, _, _ = self._env.step(action)
        return bool(reached) and self._has_goal

    def state(self) -> dict[str, Array]:
        """Columns `state` and `proprio`, both the agent's position."""
        return {"state": self.position, "proprio": self.position}

    def restore(self, row: State) -> None:
        """Put the agent where it was recorded."""
        self._env._set_state(np.asarray(row["state"], dtype=np.float32))
        self._has_goal = False

    def set_goal(self, row: State) -> None:
        """Aim for the agent position of `row`."""
        self._env._set_goal_state(np.asarray(row["state"], dtype=np.float32))
        self._has_goal = True

    def render(self) -> Array:
        """Rooms and agent; the goal is never drawn."""
        if self._render.rendering == "environment":
            return resized(self._env.render(), self._render.image_size)
        return self._draw(self.position)


class DotRenderer:
    """Draws the agent's dot on the rooms; at the native size, the environment's own frame.

    The rooms never change and the dot ends somewhere, so only a patch is drawn again.
    """

    REACH = 48  # pixels beyond which the Gaussian dot is zero next to 255 in float32

    def __init__(self, env: Any, image_size: int) -> None:
        nowhere = env.agent_position - 1e6
        self._rooms: Array = env._render_frame(nowhere).numpy().transpose(1, 2, 0).copy()
        self._colour = np.asarray(env.variation_space["agent"]["color"].value, dtype=np.float32)
        self._image_size = image_size

    def __call__(self, position: Array) -> Array:
        """Frame with the agent at `position` (x, y in native pixels)."""
        frame = self._rooms.copy()
        x0, y0 = np.clip(np.round(position).astype(int) - self.REACH, 0, NATIVE_SIZE)
        x1, y1 = np.clip(np.round(position).astype(int) + self.REACH, 0, NATIVE_SIZE)
        across = np.arange(x0, x1, dtype=np.float32) - np.float32(position[0])
        down = np.arange(y0, y1, dtype=np.float32) - np.float32(position[1])
        squared = across[None, :] ** 2 + down[:, None] ** 2
        dot = self._exp(-squared / np.float32(2 * AGENT_RADIUS**2))
        alpha = (dot / dot.max())[:, :, None]
        patch = frame[y0:y1, x0:x1]
        frame[y0:y1, x0:x1] = (patch * (1 - alpha) + self._colour * alpha).astype(np.uint8)
        return resized(frame, self._image_size)

    @staticmethod
    def _exp(values: Array) -> Array:
        """Torch's exponential: numpy's differs in the last bit, and a frame in some pixels."""
        import torch

        exponential: Array = torch.from_numpy(values).exp_().numpy()
        return exponential


class Walker:
    """Walks to random targets through the door, one after another, without noise.

    Attributes:
        targets_reached: How many targets it has reached so far.
    """

    DOOR_REACHED = 10.5

    def __init__(
        self, simulator: TwoRoomSimulator, rng: np.random.Generator, pace: float = 1.0
    ) -> None:
        self.targets_reached = 0
        self._simulator = simulator
        self._rng = rng
        self._pace = pace
        self._target = self._new_target()

    def _new_target(self) -> Array:
        free = AGENT_RADIUS + BORDER
        return self._rng.uniform(free, NATIVE_SIZE - free, size=2)

    def __call__(self) -> Array:
        """Unit step, times the pace, towards the door or the target."""
        here = self._simulator.position
        if np.linalg.norm(self._target - here) < SUCCESS_RADIUS:
            self._target = self._new_target()
            self.targets_reached += 1
        return self._pace * unit(self._waypoint(here) - here)

    def _waypoint(self, here: Array) -> Array:
        door = np.array([WALL_CENTRE, DOOR_CENTRE])
        through_door = (here[0] > WALL_CENTRE) != (self._target[0] > WALL_CENTRE)
        if through_door and np.linalg.norm(door - here) > self.DOOR_REACHED:
            return door
        return self._target


class NoisyExpert(Walker):
    """Walks to random targets through the door, one after another, under heavy action noise.

    The settings are those of the benchmark's own data: Gaussian noise of standard deviation 2 on
    a unit direction, and one action in twenty repeated. There, an episode ends at its target; here
    it goes on to the next one, so that no recording ends in standing about.
    """

    NOISE = 2.0
    REPEAT_PROBABILITY = 0.05

    def __init__(self, simulator: TwoRoomSimulator, rng: np.random.Generator) -> None:
        super().__init__(simulator, rng)
        self._last: Array | None = None

    def __call__(self) -> Array:
        """Noisy unit step towards the door or the target."""
        step = super().__call__()
        noise = self._rng.normal(0.0, self.NOISE, size=2)
        repeat = self._rng.uniform() < self.REPEAT_PROBABILITY
        if self._last is None or not repeat:
            self._last = clip_action(step + noise)
        return self._last


def unit(vector: Array) -> Array:
    """`vector` scaled to length one (zero stays zero)."""
    length = float(np.linalg.norm(vector))
    return vector / length if length > 1e-8 else np.zeros_like(vector)


def _near(radius: float) -> Callable[[State, State], Array]:
    def solved(row: State, goal: State) -> Array:
        return np.linalg.norm(row["state"] - goal["state"], axis=-1) < radius

    return solved


def _same_room(row: State, goal: State) -> Array:
    return (row["state"][..., 0] > WALL_CENTRE) == (goal["state"][..., 0] > WALL_CENTRE)


def _legal_crossing(start: State, goal: State) -> Array:
    """Pairs in opposite rooms whose ends overlap no wall; not a step across the doorway."""
    ends_free = free_of_walls(start["state"], AGENT_RADIUS, WALLS) & free_of_walls(
        goal["state"], AGENT_RADIUS, WALLS
    )
    return ends_free & ~_same_room(start, goal) & ~_near(SUCCESS_RADIUS)(start, goal)


def _on_goal_side(row: State, goal: State) -> Array:
    return _near(STRICT_RADIUS)(row, goal) & _same_room(row, goal)


TWO_ROOM = Task(
    name="two-room",
    env_id="swm/TwoRoom-v1",
    summary="A disk walks through a door in the wall between two rooms.",
    action_dim=2,
    episode_steps=100,
    state_columns={"state": 2, "proprio": 2},
    restore_columns=("state",),
    probe_targets=(ProbeTarget(name="agent", column="state", index=(0, 1), unit="px"),),
    needs_gl=False,
    make=TwoRoomSimulator,
    protocols={
        "paper": Protocol.own("agent within 16 px of its goal", _near(SUCCESS_RADIUS)),
        "moderate": Protocol(
            summary="opposite rooms, swept-disk walls, agent within 16 px",
            solved=_near(SUCCESS_RADIUS),
            admits=_legal_crossing,
            physics="swept-disk",
        ),
        "strict": Protocol(
            summary="opposite rooms, swept-disk walls, goal's side, agent within 8 px",
            solved=_on_goal_side,
            admits=_legal_crossing,
            physics="swept-disk",
        ),
    },
    demonstrators={
        "expert": NoisyExpert,
        "mixture": Mixture(
            make=Walker,
            noise_shape=(1.0, 1.0),
            recipe=RecipeConfig(noise=NoisyExpert.NOISE),  # as heavy as the benchmark's own
        ),
    },
    physics=("environment", "swept-disk"),
    presets={
        "cpu-long": TaskPreset(episodes=600, world_steps=4_000, controller_steps=10_000),
        "cpu": TaskPreset(episodes=600, world_steps=400, controller_steps=1_000),
    },
)

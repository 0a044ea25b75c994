"""Push-T: a round pusher brings a T-shaped block to a pose."""

from __future__ import annotations

from typing import Any

import numpy as np

from goalward.core.arrays import Array
from goalward.tasks.gymnasium import make_swm_env
from goalward.tasks.push_t_geometry import AGENT_RADIUS, WINDOW
from goalward.tasks.push_t_pusher import GeometricPusher, NoisyPusher
from goalward.tasks.rendering import resized
from goalward.tasks.task import (
    Policy,
    ProbeTarget,
    Protocol,
    RenderConfig,
    Simulator,
    State,
    Task,
    TaskPreset,
    clip_action,
    wrap_angle,
)

SCENE_PARTS = ("background", "goal", "agent", "block")
START_CLEARANCE = 5.0  # pixels between pusher and block at the start
EDGE_CLEARANCE = 20.0  # pixels between the block's corners and the window's edge at the start
ACTION_SCALE = 100.0  # the environment's: an action of one asks for a point 100 px away
SUCCESS_DISTANCE = 20.0
SUCCESS_ANGLE = np.pi / 9
STRICT_DISTANCE = 10.0
STRICT_ANGLE = np.deg2rad(10.0)


class PushTSimulator(Simulator):
    """stable-worldmodel's PushT, restored without the side effects of its own setter."""

    def __init__(self, render: RenderConfig) -> None:
        self._render = render
        self._env = make_swm_env("swm/PushT-v1")
        self._has_goal = False
        self._canvas = SceneCanvas(self._env)

    def reset(self, rng: np.random.Generator) -> None:
        """Draw pusher and block as the environment does, apart and inside the window."""
        while True:
            agent, block = rng.uniform(50, 450, size=2), rng.uniform(100, 400, size=2)
            pose = np.append(block, rng.uniform(-2 * np.pi, 2 * np.pi))
            self._set(agent, np.zeros(2), pose, np.zeros(3))
            if self._apart() and self._inside():
                return

    def _apart(self) -> bool:
        agent = tuple(self._env.agent.position)
        gap = min(shape.point_query(agent).distance for shape in self._env.block.shapes)
        return bool(gap > AGENT_RADIUS + START_CLEARANCE)

    def _inside(self) -> bool:
        block = self._env.block
        corners = [block.local_to_world(v) for s in block.shapes for v in s.get_vertices()]
        low, high = np.min(corners), np.max(corners)
        return bool(low > EDGE_CLEARANCE and high < WINDOW - EDGE_CLEARANCE)

    def step(self, action: Array) -> bool:
        """One control step of ten physics steps."""
        _, _, reached, _, _ = self._env.step(clip_action(action).astype(np.float64))
        return bool(reached) and self._has_goal

    def state(self) -> dict[str, Array]:
        """`state` and `proprio` as the benchmark has them, and what they leave out.

        `state` wraps the block's angle and omits its velocity; `block_pose` and `block_velocity`
        make a restored state exact.
        """
        env = self._env
        state: Array = env._get_obs()
        return {
            "state": state,
            "proprio": state[[0, 1, 5, 6]],
            "block_pose": np.array([*env.block.position, env.block.angle]),
            "block_velocity": np.array([*env.block.velocity, env.block.angular_velocity]),
        }

    def restore(self, row: State) -> None:
        """Rebuild the recorded moment; public datasets have only `state`."""
        state = np.asarray(row["state"], dtype=np.float64)
        pose = row.get("block_pose", state[2:5])
        velocity = row.get("block_velocity", np.zeros(3))
        self._set(state[:2], state[5:7], pose, velocity)

    def _set(self, agent: Array, agent_velocity: Array, pose: Array, velocity: Array) -> None:
        """A new physics space in the given state, so that no old contact lives on in it."""
        env = self._env
        env._setup()
        env.space.on_collision(0, 0, post_solve=None)  # its contact count costs time, unread
        env.agent.position, env.agent.velocity = agent.tolist(), agent_velocity.tolist()
        x, y, angle = np.asarray(pose).tolist()
        vx, vy, spin = np.asarray(velocity).tolist()
        env.block.angle, env.block.position = angle, (x, y)
        env.block.velocity, env.block.angular_velocity = (vx, vy), spin
        env.space.reindex_shapes_for_body(env.agent)
        env.space.reindex_shapes_for_body(env.block)
        self._has_goal = False

    def set_goal(self, row: State) -> None:
        """Aim for the pusher position and block pose of `row`."""
        self._env._set_goal_state(np.asarray(row["state"], dtype=np.float64))
        self._has_goal = True

    def render(self) -> Array:
        """Pusher, block and the benchmark's fixed green T; never the goal of the episode."""
        if self._render.rendering == "environment":
            return resized(self._env.render(), self._render.image_size)
        return self._canvas(self._env, self._render.image_size)


class SceneCanvas:
    """Draws the environment's scene as a function of the two poses alone.

    The environment's own drawing also marks contact points and orders overlapping shapes by the
    insides of the physics engine, which no recorded state holds; here the pusher lies on top and
    contacts are not marked, so a restored state draws exactly the recorded frame. Pixels
    are read straight from the drawing surface.
    """

    def __init__(self, env: Any) -> None:
        import pygame
        from pymunk.space_debug_draw_options import SpaceDebugColor
        from stable_worldmodel.envs.utils import DrawOptions

        colours = {name: env.variation_space[name]["color"].value for name in SCENE_PARTS}
        self._background = pygame.Surface((WINDOW, WINDOW), depth=32)
        self._background.fill(colours["background"])
        target = env._get_goal_pose_body(env.goal_pose)
        for shape in env.block.shapes:
            corners = [target.local_to_world(v) for v in shape.get_vertices()]
            pygame.draw.polygon(
                self._background, colours["goal"], [(round(x), round(y)) for x, y in corners]
            )
        walls = DrawOptions(self._background)
        for wall in env.space.static_body.shapes:
            grey = SpaceDebugColor(*wall.color)
            walls.draw_fat_segment(wall.a, wall.b, wall.radius, grey, grey)
        self._surface = self._background.copy()
        self._pen = DrawOptions(self._surface)
        self._agent_colour, self._block_colour = (
            SpaceDebugColor(r=r, g=g, b=b, a=255)
            for r, g, b in (colours["agent"].tolist(), colours["block"].tolist())
        )

    def __call__(self, env: Any, image_size: int) -> Array:
        """The present frame of `env`: uint8 of shape (image_size, image_size, 3)."""
        self._surface.blit(self._background, (0, 0))
        for shape in env.block.shapes:
            corners = [env.block.local_to_world(v) for v in shape.get_vertices()]
            self._pen.draw_polygon(corners, shape.radius, self._block_colour, self._block_colour)
        for shape in env.agent.shapes:
            self._pen.draw_circle(
                env.agent.position, 0.0, shape.radius, self._agent_colour, self._agent_colour
            )
        bgra = np.frombuffer(self._surface.get_view("0").raw, dtype=np.uint8)
        return resized(bgra.reshape(WINDOW, WINDOW, 4), image_size)[:, :, 2::-1].copy()


def line(simulator: PushTSimulator, goal: State) -> Policy:
    """Walk the pusher straight to its goal position and ignore the block."""
    target = np.asarray(goal["state"])[:2]

    def act() -> Array:
        return clip_action((target - simulator.state()["state"][:2]) / ACTION_SCALE)

    return act


def _both_there(row: State, goal: State) -> Array:
    now, then = row["state"], goal["state"]
    near = np.linalg.norm(now[..., :4] - then[..., :4], axis=-1) < SUCCESS_DISTANCE
    return near & (np.abs(wrap_angle(now[..., 4] - then[..., 4])) < SUCCESS_ANGLE)


def _block_there(row: State, goal: State) -> Array:
    now, then = row["state"], goal["state"]
    near = np.linalg.norm(now[..., 2:4] - then[..., 2:4], axis=-1) < STRICT_DISTANCE
    return near & (np.abs(wrap_angle(now[..., 4] - then[..., 4])) < STRICT_ANGLE)


PUSH_T = Task(
    name="push-t",
    env_id="swm/PushT-v1",
    summary="A round pusher brings a T-shaped block to a pose.",
    action_dim=2,
    episode_steps=300,
    state_columns={"state": 7, "proprio": 4, "block_pose": 3, "block_velocity": 3},
    restore_columns=("state",),
    probe_targets=(
        ProbeTarget(name="agent", column="state", index=(0, 1), unit="px"),
        ProbeTarget(name="block", column="state", index=(2, 3), unit="px"),
        ProbeTarget(
            name="angle", column="state", index=(4,), unit="deg", scale=180 / np.pi, angle=True
        ),
    ),
    needs_gl=False,
    make=PushTSimulator,
    protocols={
        "paper": Protocol.own("pusher and T within 20 px (4-D norm), T within 20°", _both_there),
        "moderate": Protocol.unsolved("as paper", _both_there),
        "strict": Protocol.unsolved(
            "T alone within 10 px and 10° for 3 steps", _block_there, hold=3
        ),
    },
    demonstrators={"noisy-pusher": NoisyPusher, "pusher": GeometricPusher},
    scripted_baselines={"line": line},
    presets={
        "cpu-long": TaskPreset(
            episodes=4_000,
            demonstrator="pusher",  # as its bundled weights were trained
            world_steps=12_000,
            controller_steps=10_000,
            controller=("network.num_layers=5", "time_to_go.num_layers=4"),  # seen to help
        ),
        "cpu": TaskPreset(episodes=2_000, world_steps=3_000, controller_steps=3_000),
    },
)

"""Push-T: a round pusher brings a T-shaped block to a pose."""

from __future__ import annotations

from typing import Any

import numpy as np

from goalward.core.arrays import Array
from goalward.tasks.demonstrations import Mixture
from goalward.tasks.gymnasium import make_swm_env
from goalward.tasks.push_t_geometry import AGENT_RADIUS, WINDOW
from goalward.tasks.push_t_pusher import GeometricPusher, NoisyPusher, into_window
from goalward.tasks.rendering import SUPERSAMPLE_UP_TO, resized
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

LIGHTER = 1.2  # the inside of a shape, relative to its edge
BLOCK_EDGE = 2.0  # pixels on either side of the block's outline
AGENT_EDGE = 4.0
POINT_BITS = 6  # fractional bits of drawn coordinates
SMOOTH_EDGE = 0.5  # drawn pixels by which OpenCV's smooth edges reach out of the shape
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
        self._canvas = SceneCanvas(self._env, render.image_size)

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
        """One control step of ten physics steps, as the environment's own, to the bit."""
        env, agent, dt = self._env, self._env.agent, self._env.dt
        x, y = agent.position
        shift_x, shift_y = (clip_action(action).astype(np.float64) * env.action_scale).tolist()
        goal_x, goal_y = x + shift_x, y + shift_y
        for _ in range(int(1 / (dt * env.control_hz))):
            (x, y), (vx, vy) = agent.position, agent.velocity
            vx += (env.k_p * (goal_x - x) + env.k_v * (0 - vx)) * dt
            vy += (env.k_p * (goal_y - y) + env.k_v * (0 - vy)) * dt
            agent.velocity = vx, vy
            env.space.step(dt)
        if not self._has_goal:
            return False
        return bool(env.eval_state(env.goal_state, env._get_obs())[0])

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
        return self._canvas(self._env)


def in_window(simulator: PushTSimulator, action: Array) -> Array:
    """The action, shortened where its point lies outside the window: no wall holds the agent."""
    agent = simulator.state()["state"][:2]
    return (into_window(agent + ACTION_SCALE * action) - agent) / ACTION_SCALE


class SceneCanvas:
    """Draws the environment's scene as a function of the two poses alone, at the size of the frame.

    The environment's own drawing also marks contact points and orders overlapping shapes by the
    insides of the physics engine, which no recorded state holds; here the pusher lies on top and
    contacts are not marked, so a restored state draws exactly the recorded frame. Edges are smooth:
    a motion of a fraction of a pixel still changes the frame.
    """

    def __init__(self, env: Any, image_size: int) -> None:
        import cv2

        self._cv2, self._image_size = cv2, image_size
        side = image_size * (2 if image_size <= SUPERSAMPLE_UP_TO else 1)
        self._scale = side / WINDOW
        self._background = resized(_background(env), side)
        self._agent, self._block = (
            [tuple(np.minimum(shade * colour, 255.0).tolist()) for shade in (1.0, LIGHTER)]
            for colour in (env.variation_space[name]["color"].value for name in ("agent", "block"))
        )
        boxes = [np.array(shape.get_vertices()) for shape in env.block.shapes]
        rim = self._rim = SMOOTH_EDGE / self._scale
        outwards = [np.sign(box - box.mean(axis=0)) for box in boxes]
        self._outlines = [
            [box + (edge - rim) * out for edge in (BLOCK_EDGE, -BLOCK_EDGE)]
            for box, out in zip(boxes, outwards, strict=True)
        ]

    def __call__(self, env: Any) -> Array:
        """The present frame of `env`: uint8 of shape (image_size, image_size, 3)."""
        cv2, frame = self._cv2, self._background.copy()
        cos, sin = np.cos(env.block.angle), np.sin(env.block.angle)
        rotation, place = np.array([[cos, sin], [-sin, cos]]), np.array(env.block.position)
        for outline in self._outlines:
            for corners, colour in zip(outline, self._block, strict=True):
                points = self._fixed(corners @ rotation + place)
                cv2.fillConvexPoly(frame, points, colour, cv2.LINE_AA, POINT_BITS)
        centre = self._fixed(np.array(env.agent.position)).tolist()
        for radius, colour in zip(
            (AGENT_RADIUS, AGENT_RADIUS - AGENT_EDGE), self._agent, strict=True
        ):
            size = round((radius - self._rim) * self._scale * 2**POINT_BITS)
            cv2.circle(frame, centre, size, colour, -1, cv2.LINE_AA, POINT_BITS)
        return resized(frame, self._image_size)

    def _fixed(self, points: Array) -> Array:
        """Points of the window in OpenCV's fixed-point numbers, where pixels have whole centres."""
        return np.round((points * self._scale - 0.5) * 2**POINT_BITS).astype(np.int32)


def _background(env: Any) -> Array:
    """What never moves: the benchmark's green T and the walls, as the environment draws them."""
    import pygame
    from pymunk.space_debug_draw_options import SpaceDebugColor
    from stable_worldmodel.envs.utils import DrawOptions

    surface = pygame.Surface((WINDOW, WINDOW), depth=32)
    surface.fill(env.variation_space["background"]["color"].value)
    target = env._get_goal_pose_body(env.goal_pose)
    for shape in env.block.shapes:
        corners = [target.local_to_world(v) for v in shape.get_vertices()]
        colour = env.variation_space["goal"]["color"].value
        pygame.draw.polygon(surface, colour, [(round(x), round(y)) for x, y in corners])
    walls = DrawOptions(surface)
    for wall in env.space.static_body.shapes:
        grey = SpaceDebugColor(*wall.color)
        walls.draw_fat_segment(wall.a, wall.b, wall.radius, grey, grey)
    return pygame.surfarray.array3d(surface).swapaxes(0, 1).copy()


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
    demonstrators={
        "noisy-pusher": NoisyPusher,
        "pusher": GeometricPusher,
        "mixture": Mixture(make=GeometricPusher, noise_shape=(1.0, 1.0), confine=in_window),
    },
    scripted_baselines={"line": line},
    renderer=2,  # 1 drew at 512 pixels and shrank the frame
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

"""OGBench-Cube: a robot arm picks a cube up and puts it down elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from goalward.core.arrays import Array
from goalward.tasks.demonstrations import Mixture, RecipeConfig
from goalward.tasks.gymnasium import make_swm_env
from goalward.tasks.rendering import FastRenderer, prepare_gl, resized
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

CUBE_HEIGHT = 0.02  # of its centre when it lies on the table
NOISE_SHAPE = (1.0, 1.0, 1.0, 3.0, 10.0)  # of the demonstrators: x, y, z, yaw, gripper
MESH_CELL = 0.008  # metres; leaves 10k of the arm's 185k faces, and a small frame the same
SUCCESS_DISTANCE = 0.04
STRICT_DISTANCE = 0.03
STRICT_ANGLE = np.deg2rad(15.0)


class CubeSimulator(Simulator):
    """stable-worldmodel's single-cube scene, made restorable.

    `mj_step` leaves link and site positions one physics step behind the joint angles, and both
    the controller and the camera read them. They are brought up to date after every step, so
    that a restored moment moves and looks exactly as the recorded one did.
    """

    def __init__(self, render: RenderConfig) -> None:
        prepare_gl()
        self._render = render
        self._env = make_swm_env(
            "swm/OGBCube-v0", env_type="single", mode="data_collection", visualize_info=False
        )
        import mujoco  # only after torch, see make_swm_env

        self._mujoco = mujoco
        self._has_goal = False
        self._draw = FastRenderer(
            self._env._model, "front_pixels", render.image_size, mesh_cell=MESH_CELL
        )

    @property
    def env(self) -> Any:
        """The underlying environment, for the oracle that needs its privileged information."""
        return self._env

    def reset(self, rng: np.random.Generator) -> None:
        """Cube and open hand anywhere in their sampling regions."""
        env, mujoco = self._env, self._mujoco
        mujoco.mj_resetData(env._model, env._data)
        env._data.qpos[env._arm_joint_ids] = env._home_qpos
        mujoco.mj_kinematics(env._model, env._data)
        start = env.variation_space["agent"]["ee_start_position"]
        start.set_value(rng.uniform(*env._arm_sampling_bounds))
        env.np_random = rng
        env.initialize_arm()
        cube = env._data.joint("object_joint_0")
        cube.qpos[:3] = [*rng.uniform(*env._object_sampling_bounds), CUBE_HEIGHT]
        cube.qpos[3:] = yaw_quaternion(rng.uniform(0.0, 2 * np.pi))
        self.restore({"qpos": env._data.qpos.copy(), "qvel": np.zeros(env._model.nv)})

    def step(self, action: Array) -> bool:
        """One control step of 25 physics steps."""
        _, _, reached, _, _ = self._env.step(clip_action(action))
        self._refresh()
        return bool(reached) and self._has_goal

    def _refresh(self) -> None:
        model, data = self._env._model, self._env._data
        self._mujoco.mj_kinematics(model, data)
        self._mujoco.mj_camlight(model, data)

    def state(self) -> dict[str, Array]:
        """Joint state and solver warm start, hand and cube."""
        data, info = self._env._data, self._env.compute_ob_info()
        return {
            "qpos": data.qpos.copy(),
            "qvel": data.qvel.copy(),
            "qacc_warmstart": data.qacc_warmstart.copy(),
            "proprio_effector_pos": info["proprio/effector_pos"],
            "proprio_effector_yaw": info["proprio/effector_yaw"],
            "proprio_gripper_opening": info["proprio/gripper_opening"],
            "privileged_block_0_pos": info["privileged/block_0_pos"],
            "privileged_block_0_quat": info["privileged/block_0_quat"],
        }

    def restore(self, row: State) -> None:
        """Return to a recorded state; public datasets have no warm start."""
        env, data = self._env, self._env._data
        qpos, qvel = np.array(row["qpos"]), np.array(row["qvel"])
        warmstart = np.array(row.get("qacc_warmstart", np.zeros_like(qvel)))
        self._mujoco.mj_resetData(env._model, data)
        env.set_state(qpos, qvel)
        env.pre_step()
        data.qacc_warmstart[:] = warmstart
        env._success = False
        self._refresh()
        self._has_goal = False

    def set_goal(self, row: State) -> None:
        """Aim for the cube pose of `row`."""
        self._env.set_target_pos(0, row["privileged_block_0_pos"], row["privileged_block_0_quat"])
        self._has_goal = True

    def render(self) -> Array:
        """The table from the front; the goal is never drawn."""
        if self._render.rendering == "environment":
            return resized(self._env.render(), self._render.image_size)
        return self._draw(self._env._data)

    def close(self) -> None:
        """Free the GL context."""
        self._draw.close()


class Oracle:
    """OGBench's Markovian pick-and-place oracle with one target after another.

    The oracle alone would keep one target and stand still once it is met; a new target is drawn
    whenever it is done.

    Attributes:
        targets_reached: How often the oracle was done.
    """

    def __init__(
        self, simulator: CubeSimulator, rng: np.random.Generator, pace: float = 1.0
    ) -> None:
        from ogbench.manipspace.oracles.markov.cube_markov import CubeMarkovOracle

        self.targets_reached = 0
        self._env = simulator.env
        self._rng = rng
        self._pace = np.array([pace, pace, pace, pace, 1.0])  # the gripper keeps its own
        self._oracle = CubeMarkovOracle(env=self._env)
        self._new_target()

    def _new_target(self) -> None:
        env, rng = self._env, self._rng
        place = [*rng.uniform(*env._target_sampling_bounds), CUBE_HEIGHT]
        env.set_target_pos(0, place, yaw_quaternion(rng.uniform(0.0, 2 * np.pi)))
        self._oracle.reset(None, None)
        # The oracle draws where to retreat from numpy's global state; draw it again from ours.
        self._oracle._final_pos = rng.uniform(*env._arm_sampling_bounds)
        self._oracle._final_yaw = rng.uniform(-np.pi, np.pi)

    def __call__(self) -> Array:
        """The oracle's action, times the pace."""
        action: Array = self._oracle.select_action(None, self._env.compute_ob_info())
        if self._oracle.done:
            self._new_target()
            self.targets_reached += 1
        return self._pace * action


class NoisyOracle(Oracle):
    """The same with Gaussian noise on its actions, at a level that each episode draws."""

    MAX_NOISE = 0.1

    def __init__(self, simulator: CubeSimulator, rng: np.random.Generator) -> None:
        noise = rng.uniform(0.0, self.MAX_NOISE) * np.array(NOISE_SHAPE)
        super().__init__(simulator, rng)
        self._noise = noise

    def __call__(self) -> Array:
        """The oracle's action, noisy."""
        return clip_action(super().__call__() + self._noise * self._rng.normal(size=5))


def yaw_quaternion(yaw: float) -> list[float]:
    """Rotation about the vertical axis as (w, x, y, z)."""
    return [float(np.cos(yaw / 2)), 0.0, 0.0, float(np.sin(yaw / 2))]


def cube_angle(a: Array, b: Array) -> Array:
    """Angle between two cube orientations, quaternions (..., 4), up to the cube's symmetries."""
    from scipy.spatial.transform import Rotation

    a, b = np.broadcast_arrays(a, b)
    first, second = (Rotation.from_quat(q.reshape(-1, 4)[:, [1, 2, 3, 0]]) for q in (a, b))
    apart = (first.inv() * second).reduce(Rotation.create_group("O"))
    return np.asarray(apart.magnitude()).reshape(a.shape[:-1])


def _cube_distance(row: State, goal: State) -> Array:
    offset = row["privileged_block_0_pos"] - goal["privileged_block_0_pos"]
    distance: Array = np.linalg.norm(offset, axis=-1)
    return distance


def _cube_there(row: State, goal: State) -> Array:
    return _cube_distance(row, goal) <= SUCCESS_DISTANCE


def _cube_posed(row: State, goal: State) -> Array:
    turned = cube_angle(row["privileged_block_0_quat"], goal["privileged_block_0_quat"])
    return (_cube_distance(row, goal) <= STRICT_DISTANCE) & (turned <= STRICT_ANGLE)


def _cube_moves(start: State, goal: State) -> Array:
    """Pairs in which the cube must be moved to meet the goal."""
    return _cube_distance(start, goal) > SUCCESS_DISTANCE


CUBE = Task(
    name="cube",
    env_id="swm/OGBCube-v0",
    summary="A robot arm picks a cube up and puts it down elsewhere.",
    action_dim=5,
    episode_steps=200,
    state_columns={
        "qpos": 21,
        "qvel": 20,
        "qacc_warmstart": 20,
        "proprio_effector_pos": 3,
        "proprio_effector_yaw": 1,
        "proprio_gripper_opening": 1,
        "privileged_block_0_pos": 3,
        "privileged_block_0_quat": 4,
    },
    restore_columns=("qpos", "qvel", "privileged_block_0_pos", "privileged_block_0_quat"),
    probe_targets=(
        ProbeTarget(
            name="block", column="privileged_block_0_pos", index=(0, 1, 2), unit="cm", scale=100.0
        ),
        ProbeTarget(
            name="effector", column="proprio_effector_pos", index=(0, 1, 2), unit="cm", scale=100.0
        ),
    ),
    needs_gl=True,
    make=CubeSimulator,
    protocols={
        "paper": Protocol.own("cube within 4 cm of its goal", _cube_there),
        "moderate": Protocol.unsolved("cube within 4 cm", _cube_there),
        "strict": Protocol.unsolved(
            "cube within 3 cm and 15° (24 symmetries) for 3 steps", _cube_posed, hold=3
        ),
    },
    demonstrators={
        "oracle": NoisyOracle,
        "mixture": Mixture(
            make=Oracle, noise_shape=NOISE_SHAPE, recipe=RecipeConfig(noise=NoisyOracle.MAX_NOISE)
        ),
    },
    pair_subsets={"moved": _cube_moves},
    presets={
        "cpu-long": TaskPreset(episodes=2_000, world_steps=6_000, controller_steps=5_000),
        "cpu": TaskPreset(episodes=250, world_steps=3_200, controller_steps=3_000),
    },
)

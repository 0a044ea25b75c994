"""Reacher: a two-link arm brings its joints to given angles."""

from __future__ import annotations

import numpy as np

from goalward.core.arrays import Array
from goalward.tasks.demonstrations import Mixture, RecipeConfig
from goalward.tasks.gymnasium import make_swm_env
from goalward.tasks.rendering import FastRenderer, prepare_gl, resized
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

ARM_LENGTH = HAND_LENGTH = 0.12  # metres from joint to joint, and from wrist to fingertip
WRIST_LIMIT = np.deg2rad(160.0)
SUCCESS_ANGLE = 0.05
STRICT_DISTANCE = 0.01
# Of the demonstrators' PD control: shoulder, wrist; settles without overshoot in about 30 steps.
GAINS = np.array([2.0, 1.0])
DAMPING = np.array([0.3, 0.15])
AT_REST = 0.5  # radians a second


class ReacherSimulator(Simulator):
    """stable-worldmodel's Reacher with the task `qpos_match`."""

    def __init__(self, render: RenderConfig) -> None:
        prepare_gl()
        self._render = render
        self._env = make_swm_env("swm/ReacherDMControl-v0", task="qpos_match")
        import mujoco  # only after torch, see make_swm_env

        self._mj_forward = mujoco.mj_forward
        self._env._mjcf_tempdir.cleanup()  # held the model's XML, which is compiled by now
        self._dm_env = self._env.env._env
        self._dm_env._step_limit = float("inf")  # episodes end when their user says so
        self._model = self._env.env.physics.model.ptr
        self._data = self._env.env.physics.data.ptr
        self._draw = FastRenderer(self._model, self._env.camera_id, render.image_size)

    def reset(self, rng: np.random.Generator) -> None:
        """An arm at rest in a uniformly drawn pose."""
        self.restore({"qpos": random_joints(rng), "qvel": np.zeros(2)})

    def step(self, action: Array) -> bool:
        """One control step of two physics steps (one, if the first reaches the goal)."""
        _, _, reached, _, _ = self._env.step(clip_action(action))
        self._dm_env._reset_next_step = False  # reaching the goal ends no simulation here
        return bool(reached)

    def state(self) -> dict[str, Array]:
        """Joint angles and velocities, fingertip, and the solver's warm start."""
        data = self._data
        return {
            "qpos": data.qpos.copy(),
            "qvel": data.qvel.copy(),
            "qacc_warmstart": data.qacc_warmstart.copy(),
            "finger_pos": data.geom("finger").xpos[:2].copy(),
        }

    def restore(self, row: State) -> None:
        """Return to a recorded state; public datasets have no warm start."""
        self._dm_env.task.target_qpos = None
        data = self._data
        data.qpos[:], data.qvel[:], data.ctrl[:] = row["qpos"], row["qvel"], 0.0
        self._mj_forward(self._model, data)
        data.qacc_warmstart[:] = row.get("qacc_warmstart", np.zeros(2))

    def set_goal(self, row: State) -> None:
        """Aim for the joint angles of `row`."""
        self._env.set_target_qpos(row["qpos"])

    def render(self) -> Array:
        """The arm from above; the goal is never drawn."""
        if self._render.rendering == "environment":
            return resized(self._env.render(), self._render.image_size)
        return self._draw(self._data)

    def close(self) -> None:
        """Free the GL context."""
        self._draw.close()


class JointTargets:
    """A PD controller that follows random joint targets under correlated (OU) noise."""

    HOLD = (15, 45)  # steps a target is held, upper end excluded
    NOISE = 0.3
    NOISE_MEMORY = 0.85

    def __init__(self, simulator: ReacherSimulator, rng: np.random.Generator) -> None:
        self._simulator = simulator
        self._rng = rng
        self._noise = np.zeros(2)
        self._left = 0
        self._target = np.zeros(2)

    def __call__(self) -> Array:
        """Torque towards the target, plus noise."""
        row, rng = self._simulator.state(), self._rng
        if self._left == 0:
            self._left = int(rng.integers(*self.HOLD))
            self._target = random_joints(rng)
        self._left -= 1
        fresh = np.sqrt(1 - self.NOISE_MEMORY**2) * self.NOISE * rng.normal(size=2)
        self._noise = self.NOISE_MEMORY * self._noise + fresh
        return clip_action(joint_torque(row, self._target) + self._noise)


class SettlingTargets:
    """A PD controller that settles at one random joint target after another, without noise.

    Attributes:
        targets_reached: How many targets it has reached so far.
    """

    PATIENCE = 60  # steps at full pace after which a target is given up

    def __init__(
        self, simulator: ReacherSimulator, rng: np.random.Generator, pace: float = 1.0
    ) -> None:
        self.targets_reached = 0
        self._simulator = simulator
        self._rng = rng
        self._pace = pace
        self._draw_target()

    def _draw_target(self) -> None:
        self._target, self._age = random_joints(self._rng), 0

    def __call__(self) -> Array:
        """Torque towards the target; a slow pace has a soft spring with the same damping ratio."""
        row = self._simulator.state()
        still = bool((np.abs(row["qvel"]) < AT_REST).all())
        if still and _periodic_angles_match(row, {"qpos": self._target}):
            self.targets_reached += 1
            self._draw_target()
        elif self._age > self.PATIENCE / self._pace:
            self._draw_target()
        self._age += 1
        return joint_torque(row, self._target, self._pace)


def random_joints(rng: np.random.Generator) -> Array:
    """Joint angles (2,), uniform over what the arm can do."""
    return np.array([rng.uniform(-np.pi, np.pi), rng.uniform(-WRIST_LIMIT, WRIST_LIMIT)])


def joint_torque(row: State, target: Array, pace: float = 1.0) -> Array:
    """PD torque (2,) towards joint angles `target`, the short way round for the shoulder."""
    error = target - row["qpos"]
    error[0] = wrap_angle(error[0])
    return pace**2 * GAINS * error - pace * DAMPING * row["qvel"]


def uniform_actions(simulator: ReacherSimulator, rng: np.random.Generator) -> Policy:  # noqa: ARG001
    """Independent uniform actions, as in the benchmark's own data."""
    return lambda: rng.uniform(-1.0, 1.0, size=2).astype(np.float32)


def fingertip(qpos: Array) -> Array:
    """Fingertip position (..., 2) in metres from joint angles (..., 2)."""
    shoulder, elbow = qpos[..., 0], qpos[..., 0] + qpos[..., 1]
    x = ARM_LENGTH * np.cos(shoulder) + HAND_LENGTH * np.cos(elbow)
    y = ARM_LENGTH * np.sin(shoulder) + HAND_LENGTH * np.sin(elbow)
    return np.stack([x, y], axis=-1)


def _angles_match(row: State, goal: State) -> Array:
    return (np.abs(row["qpos"] - goal["qpos"]) < SUCCESS_ANGLE).all(axis=-1)


def _periodic_angles_match(row: State, goal: State) -> Array:
    error = row["qpos"] - goal["qpos"]
    shoulder = wrap_angle(error[..., 0])  # the shoulder turns freely
    return (np.abs(shoulder) < SUCCESS_ANGLE) & (np.abs(error[..., 1]) < SUCCESS_ANGLE)


def _fingertip_there(row: State, goal: State) -> Array:
    miss = np.linalg.norm(fingertip(row["qpos"]) - fingertip(goal["qpos"]), axis=-1)
    return miss <= STRICT_DISTANCE


REACHER = Task(
    name="reacher",
    env_id="swm/ReacherDMControl-v0",
    summary="A two-link arm brings its joints to given angles.",
    action_dim=2,
    episode_steps=200,
    state_columns={"qpos": 2, "qvel": 2, "qacc_warmstart": 2, "finger_pos": 2},
    restore_columns=("qpos", "qvel"),
    probe_targets=(
        ProbeTarget(name="shoulder", column="qpos", index=(0,), unit="rad", angle=True),
        ProbeTarget(name="wrist", column="qpos", index=(1,), unit="rad", angle=True),
    ),
    needs_gl=True,
    make=ReacherSimulator,
    protocols={
        "paper": Protocol.own("both angles within 0.05 rad, never wrapped", _angles_match),
        "moderate": Protocol.unsolved(
            "both angles within 0.05 rad, shoulder periodic", _periodic_angles_match
        ),
        "strict": Protocol.unsolved("fingertip within 1 cm for 2 steps", _fingertip_there, hold=2),
    },
    demonstrators={
        "targets": JointTargets,
        "uniform": uniform_actions,
        "mixture": Mixture(
            make=SettlingTargets,
            noise_shape=(1.0, 1.0),
            recipe=RecipeConfig(exploration=0.5),  # the benchmark's own data are uniform actions
        ),
    },
    presets={
        "cpu-long": TaskPreset(episodes=400, world_steps=12_000, controller_steps=10_000),
        "cpu": TaskPreset(episodes=400, world_steps=3_000, controller_steps=3_000),
    },
)

"""Gymnasium environments: those of stable-worldmodel, and any other as a simulator."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from goalward.core.arrays import Array
from goalward.core.checks import one_line
from goalward.tasks.rendering import prepare_gl, resized
from goalward.tasks.task import Policy, RenderConfig, Simulator, State, clip_action

PINNED_VERSION = "0.1.1"
INSTALL_SIM = "pip install 'goalward[sim]'   (in a checkout, add: -c constraints.txt)"


def make_swm_env(env_id: str, **kwargs: Any) -> Any:
    """Build the bare environment `env_id`, without Gymnasium's wrappers, and reset it once.

    stable-worldmodel (and with it torch) is imported before the simulators: a process that loads
    MuJoCo's GL libraries before torch's compiler libraries crashes.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # third-party deprecations nobody here can act on
        logging.getLogger("absl").setLevel(logging.ERROR)
        try:
            import cv2  # noqa: F401 - frames are resized with it
            import gymnasium
            import stable_worldmodel  # noqa: F401 - registers its environments

            env = gymnasium.make(env_id, disable_env_checker=True, **kwargs).unwrapped
        except (ImportError, RuntimeError) as error:
            reason = one_line(str(error))
            raise ValueError(f"{env_id} cannot be loaded ({reason}); {INSTALL_SIM}") from error
        env.reset(seed=0)
    return env


class GymnasiumSimulator(Simulator):
    """A Gymnasium environment: see `Task.from_gymnasium` for the arguments."""

    def __init__(
        self,
        environment: str | Callable[[], Any],
        get_state: Callable[[Any], State],
        set_state: Callable[[Any, State], None],
        success: Callable[[State, State], Array],
        needs_gl: bool,
        render: RenderConfig,
    ) -> None:
        if needs_gl:
            prepare_gl()
        self.environment = _make(environment)
        self._get_state, self._set_state, self._success = get_state, set_state, success
        self._image_size = render.image_size
        self._goal: State | None = None
        self._low, self._high = _action_bounds(self.environment)
        self.environment.reset(seed=0)

    @property
    def action_dim(self) -> int:
        """Numbers of an action."""
        return int(self._low.size)

    def reset(self, rng: np.random.Generator) -> None:
        """Start an episode as the environment does."""
        self._goal = None
        self.environment.reset(seed=int(rng.integers(2**31)))

    def step(self, action: Array) -> bool:
        """One step with an action in [-1, 1], scaled to the bounds of the environment."""
        share = (clip_action(action).astype(np.float64).reshape(self._low.shape) + 1) / 2
        scaled = self._low + share * (self._high - self._low)
        self.environment.step(scaled.astype(self.environment.action_space.dtype))
        return self._goal is not None and bool(self._success(self.state(), self._goal))

    def state(self) -> dict[str, Array]:
        """A copy of what `get_state` gives; a scalar becomes an array of one number."""
        state = self._get_state(self.environment)
        return {name: np.atleast_1d(np.array(values)) for name, values in state.items()}

    def restore(self, row: State) -> None:
        """A reset that draws the same each time, then `set_state`."""
        self._goal = None
        self.environment.reset(seed=0)
        self._set_state(self.environment, row)

    def set_goal(self, row: State) -> None:
        """Let `step` say whether the state `row` is reached."""
        self._goal = row

    def render(self) -> Array:
        """The environment's own frame, resized to a square."""
        return resized(np.asarray(self.environment.render()), self._image_size)

    def close(self) -> None:
        """Close the environment."""
        self.environment.close()


def random_actions(action_dim: int, rng: np.random.Generator) -> Policy:
    """Independent uniform actions."""
    return lambda: rng.uniform(-1.0, 1.0, size=action_dim).astype(np.float32)


def _make(environment: str | Callable[[], Any]) -> Any:
    if not isinstance(environment, str):
        made = environment()
    else:
        import gymnasium

        try:
            made = gymnasium.make(environment, render_mode="rgb_array").unwrapped
        except (ImportError, gymnasium.error.Error) as error:
            reason = one_line(str(error))
            raise ValueError(f"{environment} cannot be loaded: {reason}") from error
    if made.render_mode != "rgb_array":
        raise ValueError(f"{made} must be made with render_mode='rgb_array' to have frames")
    return made


def _action_bounds(environment: Any) -> tuple[Array, Array]:
    space = environment.action_space
    low, high = getattr(space, "low", None), getattr(space, "high", None)
    if low is None or high is None or not (np.isfinite(low) & np.isfinite(high)).all():
        raise ValueError(f"{environment}: actions must be a Box with finite bounds, not {space}")
    return np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)

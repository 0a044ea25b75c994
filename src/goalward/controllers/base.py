"""What a controller is. Nothing downstream knows which one it runs.

Shapes: B environments, A numbers of an action.
"""

from __future__ import annotations

from typing import Protocol

import numpy.typing as npt

from goalward.types import Array


class Controller(Protocol):
    """Acts in B environments at once, each with its own goal and budget."""

    def reset(
        self, goals: Array, budget: npt.ArrayLike, *, environments: npt.ArrayLike | None = None
    ) -> None:
        """Take new goals.

        Args:
            goals: uint8 frames (B, height, width, 3); or one frame (height, width, 3) for a single
                environment, in which `act` then takes one frame and gives one action.
            budget: Steps until the goal must be reached: one number, or (B,).
            environments: Indices of the environments that begin anew, one for each goal; the
                others go on. By default all do, and there are as many as goals.

        Raises:
            ValueError: a goal or a budget cannot be used; the message says why.
        """

    def act(
        self,
        frames: Array,
        steps_left: npt.ArrayLike | None = None,
        *,
        environments: npt.ArrayLike | None = None,
    ) -> Array:
        """The next action of every environment.

        Args:
            frames: uint8 frames (B, height, width, 3) of any size, as they are now.
            steps_left: Steps left of the budgets: one number, or (B,). By default the budget less
                the actions asked for since.
            environments: Indices of the environments that act, one for each frame; the others
                wait. By default all act.

        Returns:
            float32 actions (B, A), within the task's bounds.

        Raises:
            ValueError: there are no goals yet, or the frames cannot be used.
        """

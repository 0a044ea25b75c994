"""What planning remembers of one attempt at a goal.

Shapes: T known latents, H model steps, D latent numbers, A numbers of an action block.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import torch
from torch import Tensor

from goalward.controllers.simple import goal_number
from goalward.planning.raw_actions import RawActions
from goalward.seeding import generator
from goalward.types import Array


def goal_seed(goal: Array, seed: int) -> int:
    """The seed of an attempt, made from its goal's frame.

    The same goal gets the same draws whoever attempts it, before or after or beside which others.
    """
    return int(generator("planning", seed, goal_number(goal)).integers(2**63))


class Attempt:
    """One environment's goal, random generator and committed actions.

    Attributes:
        z_goal_D: The goal.
        generator: Of its own, so that nobody else's plans change its draws.
        plans: Made for it so far.
        predictor_calls: Made for it so far.
    """

    def __init__(self, z_goal_D: Tensor, *, seed: int) -> None:
        self.z_goal_D = z_goal_D
        self.generator = torch.Generator().manual_seed(seed)
        self.plans = self.predictor_calls = 0
        self._committed: deque[Array] = deque()

    @property
    def committed(self) -> int:
        """Raw actions that are left of the plan."""
        return len(self._committed)

    def commit(self, actions: Array) -> None:
        """Take a new plan's raw actions, one a row."""
        assert not self._committed
        self._committed.extend(actions)
        self.plans += 1

    def next_action(self) -> Array:
        """The next committed action."""
        return self._committed.popleft()


class RememberingAttempt(Attempt):
    """An attempt that knows its past, and where the next search starts.

    Attributes:
        mean_HA: Where the next search starts, in z-scores.
    """

    def __init__(self, z_goal_D: Tensor, mean_HA: Tensor, *, seed: int, history: int) -> None:
        super().__init__(z_goal_D, seed=seed)
        self.mean_HA = mean_HA
        self._executed: list[Array] = []  # since the last latent
        self._latents: deque[Tensor] = deque(maxlen=history)
        self._blocks: deque[Tensor] = deque(maxlen=history - 1)  # between the latents

    @property
    def known(self) -> int:
        """How many latents there are to start a plan from."""
        return len(self._latents)

    def past(self) -> tuple[Tensor, Tensor]:
        """Latents (T, D) a model step apart, now at last, and the blocks (T - 1, A) between."""
        blocks_TA = torch.stack(tuple(self._blocks)) if self._blocks else self.mean_HA[:0]
        return torch.stack(tuple(self._latents)), blocks_TA

    def see(self, z_D: Tensor, raw_actions: RawActions) -> None:
        """Take the present's latent, a model step after the one before if there is a history."""
        self._latents.append(z_D)
        if self._executed and self._blocks.maxlen:
            # As executed: within the bounds, unlike what was planned.
            block_A = raw_actions.to_block(np.stack(self._executed))
            self._blocks.append(block_A.to(z_D.device))
        self._executed.clear()

    def next_action(self) -> Array:
        """The next committed action; it counts as executed."""
        action = super().next_action()
        self._executed.append(action)
        return action

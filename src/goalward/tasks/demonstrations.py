"""Demonstrations with variety: one recipe for the scripted demonstrators of every task.

A world model is wrong about actions that it has never seen, and a search for plans finds just
those. A controller with more time than it needs can only wait if it has seen waiting. So the
episodes of a mixture differ in pace, rests and noise, and a few of them explore.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from goalward.core.arrays import Array
from goalward.core.config import ClosedFraction, Fraction, NonNegative, PositiveFloat, Share, config
from goalward.tasks.task import clip_action

KINDS = ("plain", "white noise", "correlated noise", "bursts", "exploration")
BURST_STEPS = (3, 13)  # of one burst, upper end excluded


@config
class RecipeConfig:
    """What the episodes of a mixture differ in.

    The shares of the kinds need not add up to one: they are divided by their sum.
    """

    plain: ClosedFraction = 0.2  # no noise
    white_noise: ClosedFraction = 0.3
    correlated_noise: ClosedFraction = 0.3
    bursts: ClosedFraction = 0.15  # now and then a few uniform actions, and then a recovery
    exploration: ClosedFraction = 0.05  # uniform actions alone
    slowest: Share = 0.35  # an episode's speed factor is uniform from here to 1
    rest: ClosedFraction = 0.5  # probability of a rest at a reached target
    rest_steps: NonNegative = 20  # a rest's length is uniform up to this
    noise: PositiveFloat = 0.3  # an episode's standard deviation is uniform up to this
    memory: Fraction = 0.85  # correlation of successive correlated noise
    burst_rate: ClosedFraction = 0.02  # probability a step that a burst begins

    def __post_init__(self) -> None:
        if not sum(self.shares):
            raise ValueError("the shares of all kinds are 0; give one of them a share")

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of each of KINDS."""
        return (
            self.plain,
            self.white_noise,
            self.correlated_noise,
            self.bursts,
            self.exploration,
        )


class PacedPolicy(Protocol):
    """A scripted policy without noise that visits one target after another."""

    targets_reached: int

    def __call__(self) -> Array:
        """The next action."""
        ...


def unconfined(simulator: Any, action: Array) -> Array:  # noqa: ARG001
    """Any action will do: the simulator itself keeps everything in view."""
    return action


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """A demonstrator whose episodes follow a recipe."""

    make: Callable[[Any, np.random.Generator, float], PacedPolicy]  # (simulator, generator, pace)
    noise_shape: tuple[float, ...]  # relative size of the noise on each number of an action
    recipe: RecipeConfig = field(default_factory=RecipeConfig)
    confine: Callable[[Any, Array], Array] = unconfined  # (simulator, action): what stays in view

    def __call__(self, simulator: Any, rng: np.random.Generator) -> MixedPolicy:
        """The policy of one episode."""
        return MixedPolicy(self, simulator, rng)


class MixedPolicy:
    """One episode of a mixture.

    Attributes:
        kind: Index into KINDS.
    """

    def __init__(self, mixture: Mixture, simulator: Any, rng: np.random.Generator) -> None:
        recipe = self._recipe = mixture.recipe
        shares = np.array(recipe.shares)
        self.kind = int(rng.choice(len(KINDS), p=shares / shares.sum()))
        self._policy = mixture.make(simulator, rng, rng.uniform(recipe.slowest, 1.0))
        self._scale = rng.uniform(0.0, recipe.noise) * np.array(mixture.noise_shape)
        self._rng = rng
        self._confine = partial(mixture.confine, simulator)
        self._noise = np.zeros(len(mixture.noise_shape))
        self._reached = self._resting = self._bursting = 0

    def __call__(self) -> Array:
        """The policy's action with this kind's noise, or a rest."""
        return clip_action(self._confine(clip_action(self._next())))

    def _next(self) -> Array:
        rng, kind = self._rng, KINDS[self.kind]
        if kind == "exploration" or self._in_burst(kind):
            return rng.uniform(-1.0, 1.0, size=len(self._scale))
        if self._resting:
            self._resting -= 1
            return np.zeros(len(self._scale))
        action = self._policy()
        if self._policy.targets_reached > self._reached:
            self._reached = self._policy.targets_reached
            if rng.uniform() < self._recipe.rest:
                self._resting = int(rng.integers(self._recipe.rest_steps + 1))
        return action if kind == "plain" else action + self._next_noise(kind)

    def _in_burst(self, kind: str) -> bool:
        if kind != "bursts":
            return False
        if self._bursting:
            self._bursting -= 1
        elif self._rng.uniform() < self._recipe.burst_rate:
            self._bursting = int(self._rng.integers(*BURST_STEPS))
        return self._bursting > 0

    def _next_noise(self, kind: str) -> Array:
        memory = self._recipe.memory if kind == "correlated noise" else 0.0
        fresh = np.sqrt(1.0 - memory**2) * self._rng.normal(size=len(self._scale))
        self._noise = memory * self._noise + fresh
        return self._scale * self._noise

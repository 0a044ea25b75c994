"""Cells of an experiment: what is trained, what acts, and on which pairs."""

from __future__ import annotations

from dataclasses import dataclass

from goalward import defaults
from goalward.config import require_at_least, require_types
from goalward.defaults import ProtocolName
from goalward.evaluate.frozen_pairs import EpisodeSet

SEEDS = (42, 123, 456)  # the paper's


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One method with one seed; what is not said is the preset's.

    Attributes:
        task: What is to be done.
        method: As of `goalward evaluate`.
        demonstrator: Whose demonstrations everything is trained on, and pairs are drawn from.
        world: Changes to the world model's configuration, as of `--set`.
        controller: Changes to the controller's; for interpolation, to the pairwise model's.
        seed: Of the controller's training, and of what the method draws.
        protocol: When an episode counts as a success.
        offset: Recorded steps from start to goal.
        budget: Steps that an episode may take.
        episodes: Those that the pairs come from.
    """

    task: str
    method: str
    demonstrator: str | None = None
    world: tuple[str, ...] = ()
    controller: tuple[str, ...] = ()
    seed: int = SEEDS[0]
    protocol: ProtocolName = "paper"
    offset: int = defaults.GOAL_OFFSET
    budget: int = defaults.BUDGET
    episodes: EpisodeSet = "test"

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 1, "offset", "budget")
        require_at_least(self, 0, "seed")

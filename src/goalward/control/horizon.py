"""Which number of steps a controller is told, given those that are left of its budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from goalward.core.config import require_at_least, require_types


@dataclass(frozen=True, kw_only=True, slots=True)
class HorizonConfig:
    """The horizon at test time.

    `budget`: what is left of the budget, as in the paper: it arrives at the last moment.
    `time-to-go`: a quantile of the learned time to go, or what is left if that is less.
    `fixed`: always `steps`, or what is left if that is less.
    """

    mode: Literal["budget", "time-to-go", "fixed"] = "budget"
    level: float = 0.1  # of `time-to-go`'s quantile; chosen on validation pairs, see decisions.md
    steps: int = 5  # of `fixed`

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 1, "steps")
        if not 0 < self.level < 1:
            raise ValueError(f"level must lie in (0, 1), got {self.level}")

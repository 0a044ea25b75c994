"""Which horizon a controller's network receives, given the steps that are left of its budget."""

from __future__ import annotations

from typing import Literal

from goalward.core.config import OpenFraction, Positive, config


@config
class HorizonConfig:
    """The horizon input at test time.

    `budget`: the number of remaining steps, as in the paper.
    `time-to-go`: a quantile of the learned time-to-go, or the remaining steps if those are fewer.
    `fixed`: always `steps`, or the remaining steps if those are fewer.
    """

    mode: Literal["budget", "time-to-go", "fixed"] = "budget"
    level: OpenFraction = 0.1  # the quantile; chosen on validation pairs, see decisions.md
    steps: Positive = 5  # of `fixed`

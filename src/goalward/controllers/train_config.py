"""What the training of an inverse dynamics model depends on, with the paper's figures."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from goalward.config import require_at_least, require_at_most, require_types
from goalward.controllers.gc_idm import GCIDMConfig
from goalward.controllers.goals import MOST_EXAMPLES
from goalward.controllers.horizon import HorizonConfig
from goalward.controllers.pairwise import PairwiseConfig
from goalward.controllers.time_to_go import TimeToGoConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class IDMSchedule:
    """Length and pace of the optimisation: AdamW, half a cosine down to a share of the rate."""

    steps: int  # optimiser steps
    batch: int = 1024
    lr: float = 1e-3
    final_lr: float = 0.01  # share of the rate that is left at the end
    weight_decay: float = 1e-4
    clip: float = 1.0  # largest norm of a step's gradient
    validations: int = 20  # so often the weights are judged, and the best kept
    validation_examples: int = 16_384

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 1, "steps", "batch", "validations", "validation_examples")
        require_at_most(self, MOST_EXAMPLES, "batch", "validation_examples")
        if self.lr <= 0 or self.clip <= 0:
            raise ValueError(f"lr and clip must be positive, got {self.lr} and {self.clip}")
        if self.weight_decay < 0 or not 0 <= self.final_lr <= 1:
            raise ValueError(
                "weight_decay must be at least 0 and final_lr in [0, 1], got "
                f"{self.weight_decay} and {self.final_lr}"
            )

    def lr_at(self, step: int) -> float:
        """The learning rate of step 0, 1, ..."""
        way = 0.5 * (1 + math.cos(math.pi * step / self.steps))
        return self.lr * (self.final_lr + (1 - self.final_lr) * way)


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseConfig:
    """Gaussian noise on both latents during training, in standard deviations of each number."""

    sigma: float = 0.0
    schedule: Literal["fixed", "uniform"] = "fixed"  # uniform: sigma is the largest of a batch's

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 0, "sigma")


@dataclass(frozen=True, kw_only=True, slots=True)
class ControllerConfig:
    """One training of an inverse dynamics model."""

    network: GCIDMConfig | PairwiseConfig
    schedule: IDMSchedule
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    standardise: bool = True  # latents by their training mean and standard deviation
    data_fraction: float = 1.0  # share of the training episodes
    time_to_go: TimeToGoConfig | None = None
    horizon: HorizonConfig = field(default_factory=HorizonConfig)  # at test time
    seed: int = 0

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 0, "seed")
        if not 0 < self.data_fraction <= 1:
            raise ValueError(f"data_fraction must lie in (0, 1], got {self.data_fraction}")
        if isinstance(self.network, PairwiseConfig) and self.time_to_go is not None:
            raise ValueError("time_to_go: a pairwise model has no horizon; leave it out")
        if self.horizon.mode == "time-to-go" and self.time_to_go is None:
            raise ValueError("horizon.mode is time-to-go, but time_to_go says not to train it")

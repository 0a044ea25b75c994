"""What a world model's training depends on, with the public configuration as default."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import torch

from goalward.config import require_at_least, require_types
from goalward.data.splits import SplitConfig
from goalward.world.lewm import LeWMConfig
from goalward.world.objective import ObjectiveConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleConfig:
    """Length and pace of the optimisation (AdamW, linear warm-up, then half a cosine)."""

    steps: int  # optimiser steps
    batch: int = 128  # windows a step, over all replicas
    lr: float = 5e-5
    weight_decay: float = 1e-3
    warmup: float = 0.01  # share of the steps
    clip: float = 1.0  # largest norm of a step's gradient

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 1, "steps")
        for name in ("lr", "clip"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if self.batch < 2:
            raise ValueError(f"batch must be at least 2 (BatchNorm), got {self.batch}")
        if self.weight_decay < 0 or not 0 <= self.warmup < 1:
            raise ValueError(
                "weight_decay must be at least 0 and warmup in [0, 1), got "
                f"{self.weight_decay} and {self.warmup}"
            )

    def lr_at(self, step: int) -> float:
        """The learning rate of step 0, 1, ..."""
        warmup = max(1, int(self.warmup * self.steps + 1e-9))
        if step < warmup:
            return self.lr * (step + 1) / warmup
        return self.lr * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (self.steps - warmup)))


@dataclass(frozen=True, kw_only=True, slots=True)
class WorldConfig:
    """One training of a world model."""

    model: LeWMConfig
    schedule: ScheduleConfig
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: bfloat16 on CUDA alone
    min_latent_std: float = 0.01  # below it latents have collapsed and training stops; 0: never
    seed: int = 0
    split: SplitConfig = field(default_factory=SplitConfig)

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 0, "seed", "min_latent_std")

    def uses_bfloat16(self, device: torch.device) -> bool:
        """Whether to compute in mixed precision there."""
        return self.precision == "bfloat16" or (self.precision == "auto" and device.type == "cuda")

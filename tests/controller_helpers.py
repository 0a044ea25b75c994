"""Latents with known answers, and tiny trainings on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from goalward.control.train import ControllerConfig
from goalward.core.arrays import Array
from goalward.data.splits import SplitConfig
from goalward.presets import controller_config
from goalward.world.checkpoint import save_world
from goalward.world.latents import Latents, LatentsMetadata, embed, open_latents
from goalward.world.lewm import LeWM
from world_helpers import tiny_model, write_dots


def made_latents(z: Array, actions: Array, lengths: list[int]) -> Latents:
    """Latents that no encoder made."""
    flat = z.astype(np.float32)
    metadata = LatentsMetadata(
        world_id="none",
        episodes_id="none",
        task=None,
        split=SplitConfig(),
        rows=len(z),
        mean=tuple(map(float, flat.mean(axis=0))),
        std=tuple(map(float, flat.std(axis=0))),
        action_low=(-1.0,) * actions.shape[1],
        action_high=(1.0,) * actions.shape[1],
    )
    return Latents(
        folder=Path("made"),
        id="none",
        metadata=metadata,
        z=flat,
        actions=actions.astype(np.float32),
        lengths=np.array(lengths, dtype=np.int64),
    )


@pytest.fixture(name="tiny_world", scope="session")
def tiny_world_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained world model for the dots."""
    folder = tmp_path_factory.mktemp("tiny") / "world"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_world(folder, "best", LeWM(tiny_model()), None)
    return folder


@pytest.fixture(name="many_dots", scope="session")
def many_dots_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many as give episodes for validation and for test."""
    return write_dots(tmp_path_factory.mktemp("many"), episodes=32)


@pytest.fixture(name="dot_latents", scope="session")
def dot_latents_fixture(
    tmp_path_factory: pytest.TempPathFactory, many_dots: Path, tiny_world: Path
) -> Path:
    """The dots, embedded."""
    folder = tmp_path_factory.mktemp("latents") / "dots"
    embed(tiny_world, many_dots, folder)
    return folder


def smoke(latents: Path, steps: int = 120, **changes: object) -> ControllerConfig:
    """The smoke preset, shorter or longer."""
    config = controller_config("smoke", open_latents(latents))
    schedule = replace(config.schedule, steps=steps, batch=64)
    return replace(config, schedule=schedule, **changes)  # type: ignore[arg-type]

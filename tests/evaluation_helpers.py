"""Rows with known content, and a controller that was hardly trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from world_helpers import tiny_model

from controller_helpers import smoke
from goalward.control.train import train_controller
from goalward.data.windows import ActionScaler
from goalward.evaluation.results import EpisodeResult
from goalward.world.checkpoint import save_world
from goalward.world.encoders import ConvConfig
from goalward.world.latents import embed
from goalward.world.lewm import LeWM

QUICK_CEM = "cem:solver.num_samples=8,solver.num_iters=2,solver.num_elites=2"


def row(**changes: object) -> EpisodeResult:
    plain = EpisodeResult(
        task="two-room",
        protocol="paper",
        method="m",
        run_id="c",
        pairs="p",
        seed=0,
        pair=0,
        episode=0,
        budget=50,
        success=True,
        steps=10,
        jerk=0.5,
        monotonic=True,
        approach_rate=1.0,
        latent_distance=1.0,
        errors={"agent": 2.0},
        plans=None,
        predictor_calls=0,
        batched_latency_ms=1.0,
    )
    own = {"episode": changes.get("pair", 0)}
    return replace(plain, **own | changes)  # type: ignore[arg-type]


def timeless(rows: Sequence[EpisodeResult]) -> list[EpisodeResult]:
    """The rows without what no two runs have in common."""
    return [replace(row, batched_latency_ms=None) for row in rows]


@pytest.fixture(name="episodes", scope="module")
def episodes_fixture(dataset: Callable[[str], Path]) -> Path:
    return dataset("two-room")


@pytest.fixture(name="controller", scope="module")
def controller_fixture(tmp_path_factory: pytest.TempPathFactory, episodes: Path) -> Path:
    """A controller that was hardly trained, on a world model that was not."""
    folder = tmp_path_factory.mktemp("evaluated")
    torch.manual_seed(0)
    encoder = ConvConfig(channels=(8, 16), keypoints=8)  # of 64 pixels, as the episodes have
    model = LeWM(replace(tiny_model(), encoder=encoder, frameskip=5))
    scale = ActionScaler(mean=(0.0, 0.0), std=(1.0, 1.0))
    save_world(folder / "world", "best", model, scale)
    embed(folder / "world", episodes, folder / "latents")
    train_controller(smoke(folder / "latents", 4), folder / "latents", folder / "controller")
    return folder / "controller"

"""A tiny dataset with known dynamics, and tiny trainings on it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from goalward.core.arrays import Array
from goalward.core.tensors import read_tensors
from goalward.data.hdf5 import merge_episodes, write_episode
from goalward.world.checkpoint import save_world
from goalward.world.encoders import ConvConfig
from goalward.world.lewm import LeWM, LeWMConfig, PredictorConfig
from goalward.world.objective import ObjectiveConfig
from goalward.world.train import ScheduleConfig, WorldConfig, train_world

SIDE = 16  # pixels
ROWS = 32
EPISODES = 12


def dot_episode(seed: int) -> dict[str, Array]:
    """A bright dot that the actions push about; `state` is its place in pixels of 224."""
    rng = np.random.default_rng(seed)
    action = rng.uniform(-1, 1, (ROWS, 2)).astype(np.float32)
    place = np.empty((ROWS, 2))
    place[0] = rng.uniform(4, 12, 2)
    for t in range(1, ROWS):
        place[t] = np.clip(place[t - 1] + action[t - 1], 2, 14)
    action[-1] = np.nan
    grid = np.arange(SIDE) + 0.5
    x, y = place[:, 0, None], place[:, 1, None]
    blob = np.exp(-((grid - x)[:, None, :] ** 2 + (grid - y)[:, :, None] ** 2) / 3)
    pixels = np.repeat((255 * blob).astype(np.uint8)[..., None], 3, axis=3)
    return {"pixels": pixels, "action": action, "state": place * 224 / SIDE}


def write_dots(folder: Path, *, states: bool = False, episodes: int = EPISODES) -> Path:
    """An episode file of dots; without states there is nothing to probe, which is quicker."""
    parts = folder / "parts"
    parts.mkdir(parents=True)
    paths = [parts / f"{number}.h5" for number in range(episodes)]
    for number, path in enumerate(paths):
        columns = dot_episode(number)
        if not states:
            del columns["state"]
        write_episode(path, columns, attributes={"task": "two-room"})
    merge_episodes(paths, folder / "episodes.h5")
    return folder / "episodes.h5"


@pytest.fixture(name="dots", scope="session")
def dots_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dots(tmp_path_factory.mktemp("dots"))


@pytest.fixture(name="many_dots", scope="session")
def many_dots_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough episodes for validation and for test."""
    return write_dots(tmp_path_factory.mktemp("many"), episodes=32)


@pytest.fixture(name="tiny_world", scope="session")
def tiny_world_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained world model for the dots."""
    folder = tmp_path_factory.mktemp("tiny") / "world"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_world(folder, "best", LeWM(tiny_model()), None)
    return folder


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def weights(folder: Path, name: str = "last", part: str = "") -> dict[str, torch.Tensor]:
    """What a training wrote."""
    tensors, _ = read_tensors(folder / f"{name}.safetensors")
    return {name: tensor for name, tensor in tensors.items() if name.startswith(part)}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def tiny_model(action_dim: int = 2) -> LeWMConfig:
    return LeWMConfig(
        action_dim=action_dim,
        encoder=ConvConfig(image_size=SIDE, patch_size=2, channels=(8, 16), keypoints=8),
        frameskip=2,
        latent_dim=16,
        projector_dim=32,
        predictor=PredictorConfig(depth=1, heads=2, dim_head=8, mlp_dim=32),
    )


def tiny_config(steps: int = 40, **objective: float | str) -> WorldConfig:
    return WorldConfig(
        model=tiny_model(),
        schedule=ScheduleConfig(steps=steps, batch=16, lr=2e-3),
        objective=ObjectiveConfig(projections=32, **objective),  # type: ignore[arg-type]
    )


def main(dataset: str, folder: str, steps: str) -> None:
    """A tiny training in a process of its own, which tests kill or limit."""
    torch.set_num_threads(1)
    train_world(tiny_config(int(steps)), Path(dataset), Path(folder), save_seconds=0.0)


if __name__ == "__main__":
    main(*sys.argv[1:])

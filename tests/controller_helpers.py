"""Latents with known answers, tiny trainings on them, and models that nothing trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from public_helpers import randomised
from world_helpers import SIDE, tiny_model

from goalward.control.checkpoint import IDMMetadata, TrainedIDM, new_idm
from goalward.control.networks import (
    GCIDM,
    GCIDMConfig,
    HorizonConfig,
    PairwiseConfig,
    TimeToGoConfig,
)
from goalward.control.train import ControllerConfig
from goalward.core.arrays import Array
from goalward.data.splits import SplitConfig
from goalward.data.windows import ActionScaler
from goalward.presets import controller_config
from goalward.world.checkpoint import World, world_id
from goalward.world.latents import Latents, LatentsMetadata, embed, open_latents

SCALER = ActionScaler(mean=(0.1, -0.2), std=(0.5, 0.8))
FRAMES, GOALS = (
    np.random.default_rng(seed).integers(0, 256, (5, SIDE, SIDE, 3), dtype=np.uint8)
    for seed in (0, 1)
)


def tiny_idm(network: GCIDMConfig | PairwiseConfig | None = None, seed: int = 0) -> TrainedIDM:
    """A model on a world model with random weights; its actions depend on all of its inputs."""
    network = network or GCIDMConfig(latent_dim=16, action_dim=2, hidden_dim=8, max_horizon=31)
    goal_conditioned = isinstance(network, GCIDMConfig)
    lewm = randomised(tiny_model()).eval()
    world = World(model=lewm, actions=SCALER, id=world_id(lewm, SCALER))
    metadata = IDMMetadata(
        task=None,
        world_id=world.id,
        world=tiny_model(),
        action_scaler=SCALER,
        network=network,
        time_to_go=TimeToGoConfig(hidden_dim=8, num_layers=1) if goal_conditioned else None,
        horizon=HorizonConfig(mode="time-to-go" if goal_conditioned else "budget"),
        action_low=(-1.0, -1.0),
        action_high=(1.0, 1.0),
        latents_id="none",
        split=SplitConfig(),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = new_idm(metadata, world)
        wake(model.network)
    for part in (model.network, model.time_to_go):
        if part is not None:
            part.eval()
    return model


def wake(network: torch.nn.Module, std: float = 0.3) -> None:
    """Let the horizon and the latents matter, as training does."""
    heads = [network.head] if isinstance(network.head, torch.nn.Linear) else []
    if isinstance(network, GCIDM) and network.modulation is not None:
        heads += [network.modulation.gamma, network.modulation.beta]
    for linear in heads:
        torch.nn.init.normal_(linear.weight, std=std)


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

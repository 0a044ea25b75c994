"""The named configurations: `paper`, `cpu-long`, `cpu` and `smoke`.

`paper` has the public LeWM configuration's figures. The CPU presets were searched for on two
cores; what was tried, and where `paper` differs from the public code, is in docs/decisions.md.
"""

from __future__ import annotations

from dataclasses import replace

from goalward.control.networks import GCIDMConfig, HorizonConfig, PairwiseConfig, TimeToGoConfig
from goalward.control.train import ControllerConfig, IDMSchedule
from goalward.core.config import override
from goalward.data.episodes import Episodes
from goalward.data.splits import SplitConfig, split_episodes
from goalward.data.windows import sizes
from goalward.defaults import MAX_HORIZON, ModelKind, PresetName
from goalward.tasks import find_task
from goalward.tasks.task import TASK_PRESETS, TaskPreset
from goalward.world.encoders import ConvConfig
from goalward.world.latents import Latents
from goalward.world.lewm import LeWMConfig, PredictorConfig
from goalward.world.objective import ObjectiveConfig
from goalward.world.train import ScheduleConfig, WorldConfig

PAPER_EPOCHS = 10
PAPER_BATCH = 128
IDM_EPOCHS = 50
# Of thousands of demonstrations there is more to learn than to overfit (docs/decisions.md).
LONG_CHANGES = ("network.dropout=0.0", "time_to_go.dropout=0.0", "schedule.lr=3e-3")


def world_config(
    name: PresetName, episodes: Episodes, *, task: str | None, seed: int = 0
) -> WorldConfig:
    """A preset's configuration for a dataset; `task` is None for a task of your own."""
    action_dim, _ = sizes(episodes)
    if name == "paper":
        return _paper(episodes, action_dim, seed)
    if name == "smoke":
        return _smoke(action_dim, seed)
    return _cpu(name, task, action_dim, seed)


def _smoke(action_dim: int, seed: int) -> WorldConfig:
    """Seconds: the code path of `cpu` with a model that learns next to nothing."""
    model = LeWMConfig(
        action_dim=action_dim,
        encoder=ConvConfig(channels=(8, 16), keypoints=8),
        latent_dim=32,
        projector_dim=32,
        predictor=PredictorConfig(depth=1, heads=2, dim_head=16, mlp_dim=32, dropout=0.0),
    )
    return WorldConfig(
        model=model,
        schedule=ScheduleConfig(steps=40, batch=16, lr=1e-3),
        objective=ObjectiveConfig(
            projections=64, inverse_dynamics_weight=1.0, reconstruction_weight=1.0
        ),
        seed=seed,
    )


def _cpu(name: PresetName, task: str | None, action_dim: int, seed: int) -> WorldConfig:
    """Minutes (`cpu`) or up to two hours (`cpu-long`) on two cores."""
    model = LeWMConfig(
        action_dim=action_dim,
        encoder=ConvConfig(),
        projector_dim=512,
        predictor=PredictorConfig(depth=2, heads=4, dim_head=64, mlp_dim=512, dropout=0.0),
    )
    objective = ObjectiveConfig(
        regulariser_weight=0.3,
        projections=256,
        inverse_dynamics_weight=1.0,
        reconstruction_weight=3.0,
    )
    steps = task_preset(name, task).world_steps
    assert steps is not None, "the presets for CPUs have a length"
    schedule = ScheduleConfig(steps=steps, batch=64, lr=2e-3, warmup=0.03)
    return WorldConfig(model=model, schedule=schedule, objective=objective, seed=seed)


def _paper(episodes: Episodes, action_dim: int, seed: int) -> WorldConfig:
    """The public configuration; its length is in epochs, so it depends on the dataset."""
    model, split = LeWMConfig(action_dim=action_dim), SplitConfig()
    train = split_episodes(episodes.num_episodes, split).train
    windows = len(episodes.window_starts(model.history * model.frameskip + 1, train))
    steps = max(1, PAPER_EPOCHS * (windows // PAPER_BATCH))
    schedule = ScheduleConfig(steps=steps, batch=PAPER_BATCH)
    return WorldConfig(model=model, schedule=schedule, split=split, seed=seed)


def learns_time_to_go(name: PresetName) -> bool:
    """Whether the preset's horizon is the time-to-go, not the budget as in the paper."""
    return name != "paper"


def controller_config(
    name: PresetName, latents: Latents, *, kind: ModelKind = "gc-idm", seed: int = 0
) -> ControllerConfig:
    """A preset's configuration of an inverse dynamics model for embedded episodes."""
    latent_dim, action_dim = latents.z.shape[1], latents.actions.shape[1]
    longest = max(1, int(latents.lengths[latents.split.train].max()) - 1)
    network: GCIDMConfig | PairwiseConfig = GCIDMConfig(
        latent_dim=latent_dim,
        action_dim=action_dim,
        max_horizon=min(MAX_HORIZON, longest),  # farther goals could not be learned
    )
    if kind == "pairwise":
        network = PairwiseConfig(latent_dim=latent_dim, action_dim=action_dim)
    with_time_to_go = kind == "gc-idm" and learns_time_to_go(name)
    config = ControllerConfig(
        network=network,
        schedule=IDMSchedule(steps=_idm_steps(name, latents)),
        standardise=name != "paper",
        time_to_go=TimeToGoConfig() if with_time_to_go else None,
        horizon=HorizonConfig(mode="time-to-go" if with_time_to_go else "budget"),
        seed=seed,
    )
    if name != "smoke":
        own = task_preset(name, latents.metadata.task).controller
        changes = (*LONG_CHANGES, *own) if name == "cpu-long" else own
        return override(config, changes if kind == "gc-idm" else ())
    schedule = IDMSchedule(steps=30, batch=256, validations=2, validation_examples=1_024)
    return replace(config, network=replace(network, hidden_dim=32), schedule=schedule)


def _idm_steps(name: PresetName, latents: Latents) -> int:
    """Steps that take as many examples as the paper's epochs have, or as many as time allows."""
    rows = int((latents.lengths[latents.split.train] - 1).sum())
    steps = max(1, IDM_EPOCHS * rows // IDMSchedule(steps=1).batch)
    most = task_preset(name, latents.metadata.task).controller_steps
    return steps if most is None else min(steps, most)


def task_preset(name: PresetName, task: str | None) -> TaskPreset:
    """The sizes of a preset for a task; None, or a name unknown here, is a task of your own."""
    found = find_task(task)
    return TASK_PRESETS[name] if found is None else found.preset(name)

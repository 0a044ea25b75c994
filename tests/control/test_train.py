"""Training a controller: it learns, resumes to the bit, and stops with a reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from world_helpers import ROWS, same, tiny_model, weights

from controller_helpers import made_latents, smoke
from goalward.control.metrics import CPU, balanced_error, validate_controller
from goalward.control.networks import GCIDMConfig, HorizonConfig, PairwiseConfig, TimeToGoConfig
from goalward.control.train import (
    ControllerConfig,
    IDMSchedule,
    NoiseConfig,
    Training,
    train_controller,
    training_episodes,
)
from goalward.core.config import override
from goalward.core.curves import read_curves
from goalward.core.training import LOG_EVERY
from goalward.data.episodes import Index
from goalward.presets import controller_config
from goalward.world.checkpoint import save_world
from goalward.world.latents import embed, open_latents
from goalward.world.lewm import LeWM


def test_training_writes_a_controller_and_is_not_repeated(
    dot_latents: Path, tmp_path: Path
) -> None:
    config = smoke(dot_latents, 400)
    report = train_controller(config, dot_latents, tmp_path / "c")
    overall, *buckets = report.errors
    assert [e.horizons for e in buckets] == ["1", "2-5", "6-10", "11-25", "26-31"]
    assert buckets[0].r2 > overall.r2  # actions are random: only the next one can be known
    assert report.time_to_go is not None
    assert report.time_to_go.median_error < report.time_to_go.mean_steps
    assert 1 <= report.best_step <= 400
    names = {path.name: path.stat().st_size for path in (tmp_path / "c").iterdir()}
    for name in ("best.safetensors", "last.safetensors", "curves.png", "curves.jsonl"):
        assert names[name] > 1000
    assert "metrics.json" in names and not [name for name in names if name.startswith(".")]
    before = (tmp_path / "c" / "last.safetensors").stat().st_mtime_ns
    assert train_controller(config, dot_latents, tmp_path / "c") == report
    assert (tmp_path / "c" / "last.safetensors").stat().st_mtime_ns == before
    with pytest.raises(ValueError, match="holds another configuration"):
        train_controller(smoke(dot_latents, 3), dot_latents, tmp_path / "c")


def test_the_best_weights_are_those_of_the_lowest_balanced_error(
    dot_latents: Path, tmp_path: Path
) -> None:
    hasty = IDMSchedule(steps=200, batch=64, lr=0.02)  # good once, then worse
    config = replace(smoke(dot_latents), schedule=hasty)
    report = train_controller(config, dot_latents, tmp_path / "c")
    history = read_curves(tmp_path / "c")
    errors = [row["validation/balanced"] for row in history if "validation/balanced" in row]
    assert len(errors) == 20
    assert balanced_error(report.errors) == pytest.approx(min(errors), rel=1e-5)
    assert errors[-1] > min(errors)
    assert not same(weights(tmp_path / "c", "best"), weights(tmp_path / "c", "last"))


def test_the_same_seed_gives_the_same_weights_and_another_does_not(
    dot_latents: Path, tmp_path: Path
) -> None:
    config = smoke(dot_latents, 20, noise=NoiseConfig(sigma=0.1, schedule="uniform"))
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train_controller(replace(config, seed=seed), dot_latents, tmp_path / name)
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert not same(weights(tmp_path / "a"), weights(tmp_path / "c"))


def test_a_training_stopped_anywhere_resumes_to_the_same_weights(
    dot_latents: Path, tmp_path: Path
) -> None:
    config = smoke(dot_latents, 3 * LOG_EVERY + 7, noise=NoiseConfig(sigma=0.1))
    whole = train_controller(config, dot_latents, tmp_path / "whole")

    class StopError(Exception):
        pass

    def stop(done: int, examples: int, note: str) -> None:
        if done == 2 * LOG_EVERY:
            raise StopError

    broken = tmp_path / "broken"
    with pytest.raises(StopError):
        train_controller(config, dot_latents, broken, save_seconds=0.0, on_progress=stop)
    resumed = train_controller(config, dot_latents, broken)
    for name in ("best", "last"):
        assert same(weights(tmp_path / "whole", name), weights(broken, name))
    assert resumed.errors == whole.errors and resumed.best_step == whole.best_step


def test_two_threads_give_the_same_weights_again(tmp_path: Path) -> None:
    """At full width, where torch does share the work between threads."""
    rng = np.random.default_rng(0)
    latents = made_latents(rng.normal(size=(4000, 64)), rng.normal(size=(4000, 2)), [100] * 40)
    config = ControllerConfig(
        network=GCIDMConfig(latent_dim=64, action_dim=2),
        schedule=IDMSchedule(steps=3, validations=1, validation_examples=64),
    )
    found = []
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            torch.manual_seed(0)
            network = config.network.build()
            training = Training(config, latents, network, tmp_path / name, device=CPU)
            training.run(save_seconds=60.0)
            found.append({k: v.clone() for k, v in training.trainer.modules.state_dict().items()})
    finally:
        torch.set_num_threads(before)
    assert same(*found)


def test_the_time_to_go_head_does_not_change_the_network(dot_latents: Path, tmp_path: Path) -> None:
    config = smoke(dot_latents, 60)
    alone = replace(config, time_to_go=None, horizon=HorizonConfig())
    train_controller(config, dot_latents, tmp_path / "both")
    train_controller(alone, dot_latents, tmp_path / "alone")
    both = weights(tmp_path / "both", part="network.")
    assert same(both, weights(tmp_path / "alone", part="network."))
    assert weights(tmp_path / "both", part="time_to_go.")


def test_a_share_of_the_data_holds_the_smaller_shares_and_whole_episodes(dot_latents: Path) -> None:
    latents = open_latents(dot_latents)

    def chosen(share: float) -> Index:
        return training_episodes(latents, replace(smoke(dot_latents), data_fraction=share))

    assert np.array_equal(chosen(1.0), latents.split.train)
    assert len(chosen(0.5)) == round(len(latents.split.train) / 2)
    assert set(chosen(0.1)) < set(chosen(0.5)) < set(latents.split.train)
    assert len(chosen(1e-6)) == 1


def test_the_paper_preset_has_the_papers_figures(dot_latents: Path) -> None:
    latents = open_latents(dot_latents)
    config = controller_config("paper", latents)
    schedule = config.schedule
    assert (schedule.batch, schedule.lr, schedule.weight_decay) == (1024, 1e-3, 1e-4)
    assert (schedule.clip, schedule.final_lr) == (1.0, 0.01)
    assert schedule.lr_at(schedule.steps) == pytest.approx(1e-5)
    rows = int((latents.lengths[latents.split.train] - 1).sum())
    assert schedule.steps == 50 * rows // 1024
    network = config.network
    assert (network.hidden_dim, network.num_layers) == (512, 3)
    assert network.max_horizon == ROWS - 1  # the paper's 50, were the dots' episodes as long
    assert config.time_to_go is None and config.horizon.mode == "budget"
    assert config.noise.sigma == 0 and not config.standardise


def test_only_the_long_preset_leaves_the_papers_network(dot_latents: Path) -> None:
    latents = open_latents(dot_latents)
    short, long = (controller_config(name, latents) for name in ("cpu", "cpu-long"))
    assert short.network == controller_config("paper", latents).network
    assert long.network == replace(short.network, dropout=0.0)
    assert long.time_to_go == TimeToGoConfig(dropout=0.0)
    pushing = replace(latents, metadata=replace(latents.metadata, task="push-t"))
    deep = controller_config("cpu-long", pushing)
    assert deep.network == replace(long.network, num_layers=5)
    assert deep.time_to_go == TimeToGoConfig(num_layers=4, dropout=0.0)
    assert (short.schedule.lr, long.schedule.lr) == (1e-3, 3e-3)
    pairwise = [controller_config(name, latents, kind="pairwise") for name in ("cpu", "cpu-long")]
    assert pairwise[0] == pairwise[1]


def test_pairwise_models_are_trained_and_validated_under_noise(
    dot_latents: Path, tmp_path: Path
) -> None:
    config = smoke(dot_latents, 300, time_to_go=None, horizon=HorizonConfig())
    network = PairwiseConfig(latent_dim=16, action_dim=2, hidden_dim=32)
    train_controller(replace(config, network=network), dot_latents, tmp_path / "p")
    found = validate_controller(tmp_path / "p", dot_latents, sigmas=(0, 0.5, 2))
    assert [row.sigma for row in found.noise] == [0, 0.5, 2]
    r2 = [row.error.r2 for row in found.noise]
    assert r2[0] == found.errors[0].r2 > 0.4 and r2[0] > r2[1] > r2[2]


def test_latents_of_another_encoder_are_refused_with_both_ids(
    dots: Path, dot_latents: Path, tmp_path: Path
) -> None:
    train_controller(smoke(dot_latents, 2), dot_latents, tmp_path / "c")
    assert validate_controller(tmp_path / "c", dot_latents).errors[0].count > 0
    torch.manual_seed(1)
    save_world(tmp_path / "other", "best", LeWM(tiny_model()), None)
    other = embed(tmp_path / "other", dots, tmp_path / "z").metadata.world_id
    with pytest.raises(ValueError, match=other) as refusal:
        validate_controller(tmp_path / "c", tmp_path / "z")
    assert open_latents(dot_latents).metadata.world_id in str(refusal.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("network.latent_dim=5", "network.latent_dim is 5, the latents have 16"),
        ("network.max_horizon=32", "set network.max_horizon=31"),
        ("time_to_go=null", "horizon.mode is time-to-go, but"),
        ("schedule.lr=1e30", "no longer finite at step .* lower schedule.lr"),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(
    dot_latents: Path, tmp_path: Path, value: str, message: str
) -> None:
    unclipped = override(smoke(dot_latents), ["schedule.clip=1e30"])
    with pytest.raises(ValueError, match=message):
        train_controller(override(unclipped, [value]), dot_latents, tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_pairwise_model_has_no_horizon() -> None:
    with pytest.raises(ValueError, match="pairwise"):
        ControllerConfig(
            network=PairwiseConfig(latent_dim=4, action_dim=2),
            schedule=IDMSchedule(steps=1),
            time_to_go=TimeToGoConfig(),
        )

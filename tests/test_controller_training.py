"""Training a controller: it learns, resumes to the bit, and stops with a reason."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from controller_helpers import (  # noqa: F401
    dot_latents_fixture,
    made_latents,
    many_dots_fixture,
    smoke,
    tiny_world_fixture,
)
from goalward import cli
from goalward.control.checkpoint import load_trained_idm
from goalward.control.horizon import HorizonConfig
from goalward.control.metrics import ActionMetrics, balanced_error, validate_controller
from goalward.control.networks import GCIDMConfig, TimeToGoConfig
from goalward.control.train import (
    CPU,
    ControllerConfig,
    IDMSchedule,
    NoiseConfig,
    Training,
    train_controller,
    training_episodes,
)
from goalward.core.curves import read_curves
from goalward.core.tensors import read_tensors
from goalward.core.training import LOG_EVERY
from goalward.data.episodes import Index
from goalward.presets import controller_config
from goalward.world.checkpoint import save_world
from goalward.world.latents import embed, open_latents
from goalward.world.lewm import LeWM
from test_cli import refusal
from world_helpers import ROWS, dots_fixture, tiny_model  # noqa: F401

Capture = pytest.CaptureFixture[str]


def weights(folder: Path, name: str = "last", part: str = "") -> dict[str, torch.Tensor]:
    tensors = read_tensors(folder / f"{name}.safetensors")[0]
    return {name: tensor for name, tensor in tensors.items() if name.startswith(part)}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_training_writes_a_controller_and_is_not_repeated(
    dot_latents: Path, tmp_path: Path
) -> None:
    config = smoke(dot_latents, 400)
    report = train_controller(config, dot_latents, tmp_path / "c")
    overall, *buckets = report.errors
    assert [e.horizons for e in buckets] == ["1", "2-5", "6-10", "11-25", "26-31"]
    assert buckets[0].r2 > overall.r2  # the actions are random: only the next one shows
    assert report.time_to_go is not None
    assert report.time_to_go.median_error < report.time_to_go.mean_steps
    assert 1 <= report.best_step <= 400
    for name in ("best.safetensors", "last.safetensors", "curves.png", "curves.jsonl"):
        assert (tmp_path / "c" / name).stat().st_size > 1000
    assert not [p.name for p in (tmp_path / "c").iterdir() if p.name.startswith(".")]
    before = (tmp_path / "c" / "last.safetensors").stat().st_mtime_ns
    assert train_controller(config, dot_latents, tmp_path / "c") == report
    assert (tmp_path / "c" / "last.safetensors").stat().st_mtime_ns == before


def test_the_best_weights_are_those_that_do_best_at_all_distances_alike(
    dot_latents: Path, tmp_path: Path
) -> None:
    hasty = IDMSchedule(steps=200, batch=64, lr=0.02)  # good once, then worse
    report = train_controller(
        replace(smoke(dot_latents), schedule=hasty), dot_latents, tmp_path / "c"
    )
    history = read_curves(tmp_path / "c")
    judged = [row["validation/balanced"] for row in history if "validation/balanced" in row]
    assert len(judged) == 20
    assert balanced_error(report.errors) == pytest.approx(min(judged), rel=1e-5)
    assert judged[-1] > min(judged)
    assert not same(weights(tmp_path / "c", "best"), weights(tmp_path / "c", "last"))


def test_an_error_that_is_halved_counts_the_same_at_every_distance() -> None:
    def errors(*mse: float) -> list[ActionMetrics]:
        return [ActionMetrics(horizons="", count=1, mse=m, cosine=0, r2=0) for m in (9.0, *mse)]

    assert balanced_error(errors(0.01, 0.5)) == pytest.approx(balanced_error(errors(0.02, 0.25)))
    assert balanced_error(errors(0.005, 0.6)) < balanced_error(errors(0.01, 0.5))
    assert balanced_error(errors()) == pytest.approx(9.0)  # pairs of one distance


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

    with pytest.raises(StopError):
        train_controller(
            config, dot_latents, tmp_path / "broken", save_seconds=0.0, on_progress=stop
        )
    broken = train_controller(config, dot_latents, tmp_path / "broken")
    for name in ("best", "last"):
        assert same(weights(tmp_path / "whole", name), weights(tmp_path / "broken", name))
    assert broken.errors == whole.errors and broken.best_step == whole.best_step


def test_a_killed_training_ends_in_the_weights_of_an_unbroken_one(
    dot_latents: Path, tmp_path: Path
) -> None:
    def command(out: str) -> list[str]:
        run = [sys.executable, "-m", "goalward.cli", "train", str(dot_latents)]
        run += ["--out", str(tmp_path / out), "--preset", "smoke", "--steps", "400"]
        return [*run, "--threads", "1", "--save-seconds", "0", "--json", "--device", "cpu"]

    state = tmp_path / "broken.partial" / ".checkpoint.safetensors"
    process = subprocess.Popen(
        command("broken"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 60
    while not state.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "broken").exists()
    for out in ("broken", "whole"):
        subprocess.run(command(out), check=True, capture_output=True, timeout=120)
    for name in ("best", "last"):
        assert same(weights(tmp_path / "whole", name), weights(tmp_path / "broken", name))


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


def test_every_ablation_is_a_value_on_the_command_line(
    capsys: Capture, dot_latents: Path, tmp_path: Path
) -> None:
    values = {
        "network.hidden_dim": "16",
        "network.num_layers": "1",
        "network.max_horizon": "7",
        "network.horizon_embedding": "false",
        "noise.sigma": "0.2",
        "noise.schedule": "uniform",
        "data_fraction": "0.5",
        "horizon.mode": "fixed",
    }
    run = ["train", str(dot_latents), "--out", str(tmp_path / "c"), "--preset", "smoke", "--json"]
    for name, value in values.items():
        run += ["--set", f"{name}={value}"]
    assert cli.main([*run, "--steps", "5"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["train_episodes"] == 14 and facts["steps"] == 5
    metadata = load_trained_idm(tmp_path / "c").metadata
    assert metadata.network.max_horizon == 7 and metadata.horizon.mode == "fixed"


def test_pairwise_models_are_trained_and_judged_under_noise(
    capsys: Capture, dot_latents: Path, tmp_path: Path
) -> None:
    out = str(tmp_path / "p")
    run = ["train", str(dot_latents), "--out", out, "--preset", "smoke", "--kind", "pairwise"]
    assert cli.main([*run, "--steps", "300", "--set", "network.frameskip=1"]) == 0
    assert "R²" in capsys.readouterr().out
    judge = ["judge", out, str(dot_latents), "--noise", "0", "0.5", "2"]
    assert cli.main([*judge, "--json"]) == 0
    noise = json.loads(capsys.readouterr().out)["noise"]
    assert [row["sigma"] for row in noise] == [0, 0.5, 2]
    r2 = [row["error"]["r2"] for row in noise]
    assert r2[0] > 0.5 and r2[0] > r2[1] > r2[2]
    assert cli.main(judge) == 0
    assert "with noise" in capsys.readouterr().out


def test_latents_of_another_encoder_are_refused_with_both_ids(
    capsys: Capture, dots: Path, dot_latents: Path, tmp_path: Path
) -> None:
    train_controller(smoke(dot_latents, 2), dot_latents, tmp_path / "c")
    torch.manual_seed(1)
    save_world(tmp_path / "other", "best", LeWM(tiny_model()), None)
    other = embed(tmp_path / "other", dots, tmp_path / "z")
    text = refusal(capsys, "judge", str(tmp_path / "c"), str(tmp_path / "z"))
    assert other.metadata.world_id in text
    assert open_latents(dot_latents).metadata.world_id in text
    assert validate_controller(tmp_path / "c", dot_latents).errors[0].count > 0


def test_a_folder_of_another_training_is_refused(
    capsys: Capture, dot_latents: Path, tmp_path: Path
) -> None:
    train_controller(smoke(dot_latents, 2), dot_latents, tmp_path / "c")
    run = ("train", str(dot_latents), "--out", str(tmp_path / "c"), "--preset", "smoke")
    assert "holds another configuration" in refusal(capsys, *run, "--steps", "3")


@pytest.mark.parametrize(
    ("flag", "named"),
    [
        ("data_fraction=0", "data_fraction"),
        ("noise.sigma=-1", "sigma"),
        ("schedule.lr=0", "lr"),
        ("network.latent_dim=5", "network.latent_dim is 5, the latents have 16"),
        ("horizon.level=1.5", "level"),
        ("network.max_horizon=32", "set network.max_horizon=31"),
        ("schedule.validations=0", "validations"),
        ("time_to_go=null", "time_to_go"),
        ("network.width=3", "no such value"),
    ],
)
def test_values_out_of_range_are_refused_in_one_line(
    capsys: Capture, dot_latents: Path, tmp_path: Path, flag: str, named: str
) -> None:
    run = ("train", str(dot_latents), "--out", str(tmp_path / "c"), "--preset", "smoke")
    assert named in refusal(capsys, *run, "--set", flag)
    assert not list(tmp_path.iterdir())


def test_a_loss_that_is_no_longer_finite_stops_the_training(
    capsys: Capture, dot_latents: Path, tmp_path: Path
) -> None:
    run = ("train", str(dot_latents), "--out", str(tmp_path / "c"), "--preset", "smoke", "--json")
    text = refusal(capsys, *run, "--set", "schedule.lr=1e30", "--set", "schedule.clip=1e30")
    assert "no longer finite" in text and "schedule.lr" in text


def test_a_pairwise_model_has_no_horizon() -> None:
    from goalward.control.networks import PairwiseConfig, TimeToGoConfig

    with pytest.raises(ValueError, match="pairwise"):
        ControllerConfig(
            network=PairwiseConfig(latent_dim=4, action_dim=2),
            schedule=IDMSchedule(steps=1),
            time_to_go=TimeToGoConfig(),
        )

"""The benchmarks compare like with like; no test says how fast anything is."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from goalward import bundle
from goalward.control.checkpoint import in_half_precision, load_trained_idm, model_id
from goalward.planning.cost import LatentCost

# stable-worldmodel misses a game library that nothing here uses.
pytestmark = pytest.mark.filterwarnings("ignore:ale-py not found:UserWarning")

Bench = Callable[[str], ModuleType]
BARS = pytest.mark.parametrize(("wanted", "code"), [(0.0, 0), (1e9, 1)])


@pytest.fixture(name="bench")
def bench_fixture(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Benchmarks by name; they are no part of the installed package."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1]))
    return lambda name: importlib.import_module(f"benchmarks.{name}")


def test_ratios_are_of_each_turn_to_the_fastest_of_the_others(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    others = {"slow": np.array([1.0, 1.0, 1.0]), "fast": np.array([4.0, 100.0, 400.0])}
    ours = {"ours": np.array([8.0, 250.0, 600.0])}  # 2, 2.5 and 1.5 times as fast
    assert bench("setting").show_rates("speed", others, ours, wanted=2.0)
    assert "2.00x" in capsys.readouterr().out
    assert not bench("setting").show_rates("speed", others, ours, wanted=2.1)
    assert "below" in capsys.readouterr().out


def test_the_ordinary_examples_are_pairs_of_one_episode_with_their_action(bench: Bench) -> None:
    train = bench("train")
    latents = train.random_latents(10)
    latents.z[:, 0] = np.arange(len(latents.z))  # each row's first number is its place
    dataset = train.OrdinaryExamples(latents, 50)
    assert len(dataset) == len(latents.split.train) * (train.ROWS - 1)
    for number in range(0, len(dataset), 7):
        z, z_goal, steps, action = dataset[number]
        row, goal = int(z[0]), int(z_goal[0])
        assert 1 <= steps <= 50 and goal == row + steps
        assert row // train.ROWS == goal // train.ROWS in latents.split.train
        np.testing.assert_array_equal(action, latents.actions[row])


def test_without_the_table_of_horizons_the_network_gives_the_same_actions(
    bench: Bench, tmp_path: Path
) -> None:
    train = bench("train")
    latents = train.random_latents(10)
    ours, naive = (
        train.make_training(latents, network, tmp_path).trainer.modules["network"]
        for network in (train.GCIDM, train.WithoutTable)
    )
    torch.nn.init.normal_(ours.modulation.gamma.weight)  # initial weights ignore the horizon
    naive.load_state_dict(ours.state_dict())
    z, z_goal = torch.from_numpy(latents.z[:64]), torch.from_numpy(latents.z[64:128])
    pairs = (z, z_goal, torch.arange(64) % 50 + 1)
    with torch.inference_mode():
        torch.testing.assert_close(naive.eval()(*pairs), ours.eval()(*pairs))


def test_the_arithmetic_of_a_step_is_counted_as_the_sizes_of_the_layers_say(
    bench: Bench, tmp_path: Path
) -> None:
    train = bench("train")
    # Inputs, outputs, and products: forward, weights' gradient and, but for data, the inputs'.
    pair = [(2 * 192, 512, 2), (512, 512, 3), (512, 512, 3), (512, 2, 3)]
    horizon = [(64, 512, 2), (512, 512, 3), (512, 512, 3), (512, 512, 3)]
    latents = train.random_latents(10)
    for network, horizons in ((train.GCIDM, 50), (train.WithoutTable, 1024)):
        training = train.make_training(latents, network, tmp_path)
        wanted = sum(2 * 1024 * i * o * products for i, o, products in pair)
        wanted += sum(2 * horizons * i * o * products for i, o, products in horizon)
        assert train.step_operations(training) == wanted


@BARS
def test_the_training_benchmark_fails_below_its_bar(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, wanted: float, code: int
) -> None:
    monkeypatch.setattr(bench("train"), "WANTED", wanted)
    assert bench("train").main(episodes=14, repeats=1, seconds=0.0, workers=(0,)) == code


@torch.inference_mode()
def test_both_planners_give_plans_the_same_costs(bench: Bench) -> None:
    pytest.importorskip("stable_worldmodel")
    plan = bench("plan")
    model = plan.make_model()
    z, goal = plan.latents(2, 192)
    plans = torch.randn(2, 3, 5, 10, generator=torch.Generator().manual_seed(0))
    info = {
        name: tensor[:, None].expand(-1, 3, *tensor.shape[1:])
        for name, tensor in plan.their_info(2, 192).items()
    }
    expected = plan.their_model(model).get_cost(info, plans)
    assert expected.std() > 0
    torch.testing.assert_close(LatentCost(model, z[:, None], goal)(plans), expected)


def test_the_arithmetic_of_a_rollout_is_counted_as_the_sizes_of_the_layers_say(
    bench: Bench,
) -> None:
    # Inputs, outputs, and rows: windows of 1, 2, 3, 3 and 3 steps, in two blocks each.
    layers = [(192, 6 * 192), (192, 3 * 256), (256, 192), (192, 512), (512, 192)]
    wanted = sum(2 * i * o * 2 * (1 + 2 + 3 + 3 + 3) for i, o in layers)
    wanted += 2 * 2 * 2 * 256 * (1 + 4 + 9 + 9 + 9)  # queries times keys, weights times values
    wanted += sum(2 * i * o * 5 for i, o in [(192, 512), (512, 192)])  # the head
    wanted += sum(2 * i * o * 5 for i, o in [(10, 10), (10, 768), (768, 192)])  # the actions
    assert bench("plan").rollout_operations(bench("plan").make_model().config, 5) == wanted


@BARS
def test_the_planning_benchmark_fails_below_its_bar(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, wanted: float, code: int
) -> None:
    pytest.importorskip("stable_worldmodel")
    monkeypatch.setattr(bench("plan"), "WANTED", {2: wanted})
    monkeypatch.setattr(bench("plan"), "WITHIN", 1e9)
    assert bench("plan").main(environments=(2,), iterations=1, repeats=1) == code


@pytest.mark.slow
def test_what_was_trained_and_drawn_is_bundled(
    bench: Bench, smoke_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "FOLDER", tmp_path)
    bench("bundle").main("smoke", ("two-room",), pairs=2, run_dir=smoke_runs, out=tmp_path)
    trained = load_trained_idm(smoke_runs / "smoke" / "two-room" / "controller-42")
    bundled = load_trained_idm(bundle.controller_path("two-room"))
    assert model_id(bundled) == model_id(in_half_precision(trained))
    assert len(bundle.bundled_pairs("two-room", 2).pairs) == 2

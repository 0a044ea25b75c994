"""The benchmarks compare like with like; how fast anything is, no test says."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from goalward.core.config import read_json
from goalward.evaluation.results import ResultsFile
from goalward.experiments.catalog import find_experiments
from goalward.experiments.stored import stored_table
from goalward.planning.mpc import MPCConfig

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(name="bench")
def bench_fixture(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark of training; benchmarks are no part of the installed package."""
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.train")


def test_the_ordinary_examples_are_pairs_of_one_episode_with_their_action(
    bench: ModuleType,
) -> None:
    latents = bench.random_latents(10)
    latents.z[:, 0] = np.arange(len(latents.z))  # each row's first number is its place
    dataset = bench.OrdinaryExamples(latents, 50)
    assert len(dataset) == len(latents.split.train) * (bench.ROWS - 1)
    for number in range(0, len(dataset), 7):
        z, z_goal, steps, action = dataset[number]
        row, goal = int(z[0]), int(z_goal[0])
        assert 1 <= steps <= 50 and goal == row + steps
        assert row // bench.ROWS == goal // bench.ROWS in latents.split.train
        np.testing.assert_array_equal(action, latents.actions[row])


def test_without_the_table_of_horizons_the_network_says_the_same(
    bench: ModuleType, tmp_path: Path
) -> None:
    latents = bench.random_latents(10)
    ours = bench.make_training(latents, bench.GCIDM, tmp_path).trainer.modules["network"]
    naive = bench.make_training(latents, bench.OneByOne, tmp_path).trainer.modules["network"]
    torch.nn.init.normal_(ours.modulation.gamma.weight)  # at birth the horizon is ignored
    naive.load_state_dict(ours.state_dict())
    z, z_goal = torch.from_numpy(latents.z[:64]), torch.from_numpy(latents.z[64:128])
    pairs = (z, z_goal, torch.arange(64) % 50 + 1)  # more of them than horizons: the table is used
    with torch.inference_mode():
        torch.testing.assert_close(naive.eval()(*pairs), ours.eval()(*pairs))


def test_a_steps_arithmetic_is_counted_as_the_layers_sizes_say(
    bench: ModuleType, tmp_path: Path
) -> None:
    # Inputs, outputs, and products: forward, weights' gradient and, but for data, the inputs'.
    pair = [(2 * 192, 512, 2), (512, 512, 3), (512, 512, 3), (512, 2, 3)]
    horizon = [(64, 512, 2), (512, 512, 3), (512, 512, 3), (512, 512, 3)]
    latents = bench.random_latents(10)
    for network, horizons in ((bench.GCIDM, 50), (bench.OneByOne, 1024)):
        training = bench.make_training(latents, network, tmp_path)
        wanted = sum(2 * 1024 * i * o * products for i, o, products in pair)
        wanted += sum(2 * horizons * i * o * products for i, o, products in horizon)
        assert bench.step_operations(training) == wanted


@pytest.mark.parametrize(("wanted", "code"), [(0.0, 0), (1e9, 1)])
def test_the_training_benchmark_reports_and_fails_below_its_bar(
    bench: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wanted: float,
    code: int,
) -> None:
    monkeypatch.setattr(bench, "WANTED", wanted)
    few = bench.Arguments(episodes=14, repeats=1, seconds=0.0, workers=(0,))
    assert bench.main(few) == code
    assert ("below" in capsys.readouterr().out) == bool(code)


@pytest.mark.slow
def test_the_embedding_benchmark_reports_and_fails_below_its_bar(
    dataset: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    bench = importlib.import_module("benchmarks.embed")
    frames, bare, staged = bench.measure(dataset("two-room"), tmp_path, repeats=1)
    assert frames == 8 * 101 and bare > 0 and staged > 0
    assert bench.report(1_000, bare=0.80, staged=1.0) == 0  # seconds: 0.80 is still enough
    assert "0.80x" in capsys.readouterr().out
    assert bench.report(1_000, bare=0.79, staged=1.0) == 1
    assert "below" in capsys.readouterr().out


@pytest.mark.slow
def test_the_upper_bound_acts_on_true_states(
    smoke_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    bench = importlib.import_module("benchmarks.upper_bound")
    push_t = bench.get_task("push-t")
    state = np.array([[1.0, 2.0, 3.0, 4.0, np.pi / 2]])
    np.testing.assert_allclose(
        bench.state_features(push_t, {"state": state}), [[1, 2, 3, 4, 1, 0]], atol=1e-6
    )
    few = bench.Arguments(preset="smoke", tasks=("two-room",), pairs=2, runs=smoke_runs)
    found = bench.measure("two-room", few)
    for mode in ("time-to-go", "budget"):
        assert [len(wins) for wins in found["success"][mode]] == [2]


def test_the_bundled_weights_are_compared_without_any_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    bench = importlib.import_module("benchmarks.compare")
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "results")
    few = bench.Arguments(
        preset="bundled",
        pairs=2,
        controllers=("gc-idm",),
        planners=("gradient:solver.num_iters=1",),
        blind=("zero",),
        seeds=(42,),
        runs=tmp_path / "runs",
    )
    out = bench.compare("two-room", "moderate", few)
    assert out == tmp_path / "results" / "compare" / "bundled" / "two-room" / "moderate"
    about = read_json(out / "about.json")
    assert about["config"]["protocol"] == "moderate" and about["config"]["episodes"] == "test"
    assert about["seconds"] == {} and sorted(about["latency"]) == [
        *("gc-idm", "gc-idm-onnx", "gradient:solver.num_iters=1", "zero")
    ]
    rows = [row for path in out.glob("*.jsonl") for row in ResultsFile(path).read()]
    assert len(rows) == 4 * 2 and {row.pairs for row in rows} == {about["pairs"]}


def test_the_cost_of_a_decision_is_told_beside_cems_in_every_batch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    bench = importlib.import_module("benchmarks.cost")
    monkeypatch.setattr(bench, "TIMED_DECISIONS", 2)
    monkeypatch.setattr(bench, "MPCConfig", lambda: MPCConfig(receding_horizon=1))
    few = bench.Arguments(tasks=("two-room",), methods=("gc-idm", "cem"), batches=(1, 2))
    found = bench.measure("two-room", few)
    for size in ("1", "2"):
        times = found["latency"][size]
        assert list(times) == ["gc-idm-onnx", "gc-idm", "cem"]
        assert {t["environments"] for t in times.values()} == {int(size)}
        assert times["cem"]["plan"] > times["gc-idm"]["plan"] > 0
    for wanted, code in ((0.0, 0), (1e9, 1)):
        monkeypatch.setattr(bench, "WANTED", wanted)
        assert bench.report(found) == code
        said = capsys.readouterr().out
        assert said.count("1x") >= 2 and ("below" in said) == bool(code)  # CEM beside itself


def test_the_undisturbed_time_of_a_training_leaves_out_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    undisturbed_seconds = importlib.import_module("benchmarks.world").undisturbed_seconds
    paces = [1.0, 1.0, 1.0, 9.0, 2.0]  # seconds a step, of 20 steps each
    clock = 20 * np.cumsum(paces)
    history = [{"step": 20 * (k + 1), "seconds": s, "loss": 0.0} for k, s in enumerate(clock)]
    history.insert(2, {"step": 40, "seconds": 41.0, "held_out_loss": 0.0})
    assert undisturbed_seconds(history) == pytest.approx(100.0)


def test_the_curve_of_errors_has_all_trainings_at_one_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    bench = importlib.import_module("benchmarks.world_curve")

    def point(steps: int, seconds: float, rmse: float) -> dict[str, object]:
        scores = [
            {"measure": name, "unit": "px", "rmse": k * rmse, "median": rmse / 4}
            for k, name in enumerate(("agent", "block"), start=1)
        ]
        return {"steps": steps, "undisturbed_seconds": seconds, "network": scores}

    points = bench.at_one_pace(
        [point(100, 99.0, 8.0), point(600, 599.0, 5.0), point(1_200, 600.0, 2.0)]
    )
    assert [p["minutes"] for p in points] == pytest.approx([0.5 * 100 / 60, 5.0, 10.0])
    panels = bench.curve_figure(points, "errors").axes
    assert [axes.get_title(loc="left") for axes in panels] == ["agent", "block"]
    for k, axes in enumerate(panels, start=1):
        rmse, median = (line.get_xydata() for line in axes.lines)
        np.testing.assert_allclose(rmse, [(5 / 6, 8.0 * k), (5, 5.0 * k), (10, 2.0 * k)])
        np.testing.assert_allclose(median[:, 1], [2.0, 1.25, 0.5])


def test_compared_rows_fill_the_tasks_that_a_table_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    bench = importlib.import_module("benchmarks.main_tables")
    rows = ROOT / "results" / "compare" / "cpu"
    (main,) = find_experiments(["main"])
    whole = stored_table(ROOT / "results" / "experiments" / "cpu", "main")
    assert whole is not None
    entries = tuple(entry for entry in whole.entries if entry.task == "two-room")
    sources = {"two-room": whole.sources["two-room"]}
    table = replace(whole, tasks=("two-room",), entries=entries, verdicts=(), sources=sources)
    found = bench.with_compared(table, main, ["two-room", "cube", "reacher"], rows)
    assert found.tasks == ("two-room", "reacher", "cube")
    assert found.entries[: len(entries)] == entries  # in the tasks' order
    about = read_json(rows / "cube" / "paper" / "about.json")
    (origin,) = found.sources["cube"].origins
    assert origin.git_revision == about["git_revision"]
    ours = {(e.method, e.point): e.summary for e in found.entries if e.task == "cube"}
    assert len(ours) == len(entries)
    search = ResultsFile(rows / "cube" / "paper" / "cem-seed42.jsonl").read()
    assert ours["cem", "all pairs"].rate.mean == np.mean([row.success for row in search])
    assert ours["cem", "first 50"].rate.mean == np.mean([row.success for row in search[:50]])
    assert ours["gc-idm", "all pairs"].seeds == 3
    judged = {verdict.task: verdict.verdict for verdict in found.verdicts}
    assert judged == {"cube": "holds", "reacher": "holds"}
    assert found.sources["cube"].pairs == about["config"]["count"] == 200
    stale = replace(found, entries=found.entries[: len(entries)])
    again = bench.with_compared(stale, main, ["two-room", "cube", "reacher"], rows)
    assert again.entries == found.entries  # what was compared before is taken anew

"""Experiments: the catalog holds together, and a row is enough."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from goalward import cli
from goalward.control.horizon import HorizonConfig
from goalward.control.networks import GCIDMConfig, PairwiseConfig, TimeToGoConfig
from goalward.control.train import ControllerConfig, IDMSchedule
from goalward.core.config import override
from goalward.core.machine import machine
from goalward.data.episodes import open_episodes
from goalward.evaluation.results import EpisodeResult
from goalward.experiments import ablations, catalog, pictures
from goalward.experiments.analyses import latent_geometry, pairwise_cells
from goalward.experiments.catalog import EXPERIMENTS, STUDIES, find_experiments
from goalward.experiments.experiment import (
    FRONTIER,
    PATHS,
    WITH_TIME_TO_GO,
    Cell,
    Claim,
    Experiment,
    Point,
    method_name,
    no_figure,
    search_size,
)
from goalward.experiments.run import Lab, State, Work, levels_of_work, run_cells, without_repeats
from goalward.experiments.stored import stored_table
from goalward.experiments.tables import all_cells
from goalward.world.train import ScheduleConfig, WorldConfig
from test_cli import refusal
from world_helpers import tiny_model

Capture = pytest.CaptureFixture[str]


def test_the_catalog_has_every_experiment_once() -> None:
    names = [e.id for e in EXPERIMENTS] + [s.id for s in STUDIES]
    assert len(names) == len(set(names)) >= 23
    assert [one.id for one in find_experiments(())] == names
    assert find_experiments(["budget", "main"]) == [
        next(e for e in EXPERIMENTS if e.id == name) for name in ("budget", "main")
    ]
    with pytest.raises(ValueError, match="'magic' is not one of main, solvers"):
        find_experiments(["magic"])


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.id)
def test_every_change_is_one_that_its_configuration_knows(experiment: Experiment) -> None:
    controller = ControllerConfig(
        network=GCIDMConfig(latent_dim=4, action_dim=2), schedule=IDMSchedule(steps=1)
    )
    pairwise = replace(controller, network=PairwiseConfig(latent_dim=4, action_dim=2))
    controller = replace(
        controller, time_to_go=TimeToGoConfig(), horizon=HorizonConfig(mode="time-to-go")
    )
    world = WorldConfig(model=tiny_model(), schedule=ScheduleConfig(steps=1))
    for _, method, cell in experiment.cells(experiment.tasks[0]):
        plain = pairwise if method.startswith("waypoints") else controller
        changed = override(plain, cell.controller)
        assert changed.network.latent_dim == 4
        # What an experiment asks is trained, and in a controller of its own nothing else is.
        if method == WITH_TIME_TO_GO:
            assert changed.time_to_go is not None
        elif cell.controller:
            assert changed.time_to_go is None
        assert override(world, cell.world).model == tiny_model()


def test_the_papers_figures_stand_beside_the_right_points() -> None:
    with_figures = [e for e in EXPERIMENTS if e.figure is not no_figure]
    assert len(with_figures) >= 12
    for experiment in with_figures:
        for task in experiment.tasks:
            for point in experiment.points:
                found = [experiment.figure(task, point.label, m) for m in experiment.methods]
                assert any(figure is not None for figure in found), (experiment.id, point)
    distance = next(e for e in EXPERIMENTS if e.id == "goal-distance")
    assert distance.figure("push-t", "10", "gc-idm:mode=budget") == 90.5
    assert distance.figure("push-t", "10", "gc-idm") is None  # which the paper does not have
    planning = next(e for e in EXPERIMENTS if e.id == "pairwise-planning")
    assert planning.figure("two-room", "success", PATHS[-1]) == 48
    assert planning.figure("two-room", "success", "cem") == 87
    held_out = next(e for e in EXPERIMENTS if e.id == "held-out")
    assert held_out.figure("push-t", "held-out", "gc-idm:mode=budget") == 84.8
    assert held_out.figure("push-t", "all", "gc-idm:mode=budget") == 84.2  # of the main table


def test_the_frontier_has_twelve_settings_below_the_default() -> None:
    sizes = [search_size(spec) for spec in FRONTIER]
    assert len(set(sizes)) == 12 and max(samples * iters for samples, iters in sizes) < 9_000


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("gc-idm:mode=budget", "GC-IDM (budget)"),
        (FRONTIER[0], "CEM 30 x 2"),
        ("cem:solver.num_iters=5", "CEM 300 x 5"),
        ("cem:mpc.horizon=3", "cem:mpc.horizon=3"),
        ("hybrid:search=null,steps_left.mode=budget,commit=25", "GC-IDM, 25 at a look"),
        (PATHS[-1], "line, 3 refinements, 10 candidates"),
        ("zero", "zero"),
    ],
)
def test_methods_have_short_names(spec: str, name: str) -> None:
    assert method_name(spec) == name


def test_cells_are_shared_between_experiments() -> None:
    both = all_cells(find_experiments(["main", "trajectories"]), ["two-room"])
    alone = all_cells(find_experiments(["main"]), ["two-room"])
    assert set(both) == set(alone)
    # CEM acts without the pairwise model that this table trains with noise.
    lines = all_cells(find_experiments(["pairwise-planning"]), ["two-room"])
    assert [cell for cell in lines if cell in alone] == [Cell(task="two-room", method="cem")]


def test_a_slow_method_has_the_first_seed_alone() -> None:
    (main,) = find_experiments(["main"])
    assert isinstance(main, Experiment)
    seeds = {name: {c.seed for _, m, c in main.cells("cube") if m == name} for name in main.methods}
    assert seeds.pop("cem") == {42}
    assert set(map(frozenset, seeds.values())) == {frozenset({42, 123, 456})}


def test_a_row_more_in_the_catalog_is_all_that_an_experiment_takes(
    capsys: Capture, tmp_path: Path, smoke_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = Experiment(
        id="added",
        title="A row more",
        paper="Not in the paper",
        axis="steps",
        points=(
            Point(label="3", changes={"budget": 3}),
            Point(label="5", changes={"budget": 5}),
            Point(label="never", first=1000),
        ),
        methods=("zero", "gc-idm"),
        tasks=("two-room",),
        timed=True,
        claims=(
            Claim(text="more is not worse", better=("zero", "5"), worse=("zero", "3"), margin=1),
        ),
    )
    monkeypatch.setattr(catalog, "EXPERIMENTS", (*EXPERIMENTS, added))
    run = ["reproduce", "added", "--preset", "smoke", "--runs", str(smoke_runs), "--jobs", "1"]
    run += ["--out", str(tmp_path / "tables"), "--device", "cpu", "--workers", "1"]
    assert cli.main([*run, "--json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)
    places = [(entry["method"], entry["point"]) for entry in table["entries"]]
    assert places == [("zero", "3"), ("zero", "5"), ("gc-idm", "3"), ("gc-idm", "5")]
    assert all(entry["latency"]["mean"] > 0 for entry in table["entries"])
    assert [verdict["verdict"] for verdict in table["verdicts"]] == ["open"]  # one pair is few
    assert [o["machine"] for o in table["sources"]["two-room"]["origins"]] == [machine()]
    assert (tmp_path / "tables" / "smoke" / "added.svg").stat().st_size > 5_000
    assert cli.main(run) == 0
    shown = capsys.readouterr().out
    assert "A row more (1 pairs, preset smoke)" in shown and "open: two-room" in shown

    out = tmp_path / "report"
    assert cli.main(["report", str(tmp_path / "tables" / "smoke"), "--out", str(out)]) == 0
    page = (out / "report.html").read_text()
    assert "A row more" in page and "~ open" in page and "data:image/svg+xml;base64," in page
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", page)  # nothing from elsewhere
    text = (out / "report.md").read_text()
    assert "| zero | " in text and "Not run yet: main" in text
    assert text.startswith("# goalward") and "- *jerk*: mean size" in text  # words are explained
    rows = list(csv.DictReader((out / "report.csv").read_text().splitlines()))
    successes = [row for row in rows if row["quantity"] == "success"]
    assert [(row["method"], row["point"]) for row in successes] == places
    assert {row["quantity"] for row in rows} >= {"jerk", "steps", "ms_decision", "ms_plan"}

    again = ["report", str(tmp_path / "tables" / "smoke"), "--out", str(out), "--json"]
    capsys.readouterr()
    assert cli.main(again) == 0
    told = json.loads(capsys.readouterr().out)
    assert [Path(path).name for path in told["files"]] == ["report.html", "report.md", "report.csv"]
    assert told["verdicts"]["paper"] == {"holds": 0, "fails": 0, "open": 1}


def test_every_study_finds_its_numbers_and_pictures(
    capsys: Capture, tmp_path: Path, smoke_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds = {"preset": (), "untrained": ablations.UNTRAINED}
    known = {study.id: study for study in STUDIES}
    known["latent-geometry"] = replace(
        known["latent-geometry"],
        measure=latent_geometry(worlds),
        uses=pairwise_cells(worlds.values()),
    )
    monkeypatch.setattr(catalog, "STUDIES", tuple(known.values()))
    monkeypatch.setattr(pictures, "SHOWN_PAIRS", 1)
    tables = tmp_path / "tables"
    run = ["reproduce", *(study.id for study in STUDIES), "--preset", "smoke", "--json"]
    run += ["--tasks", "two-room", "--runs", str(smoke_runs), "--out", str(tables)]
    assert cli.main([*run, "--device", "cpu", "--workers", "1", "--jobs", "1"]) == 0
    found = {table["id"]: table for table in json.loads(capsys.readouterr().out)}
    assert found.keys() == {study.id for study in STUDIES}
    noise = [fact for fact in found["oracle-noise"]["facts"] if fact["column"] == "mse"]
    assert [fact["row"] for fact in noise][::4] == ["0", "0.1", "2"]
    assert noise[0]["paper"] == 0.005017 and noise[0]["value"] > 0
    geometry = {(f["row"], f["column"]): f["value"] for f in found["latent-geometry"]["facts"]}
    assert {row for row, _ in geometry} == {"preset", "untrained"}
    assert 0 < geometry["preset", "isotropy"] <= 1 <= geometry["preset", "κ (median)"]
    for name in ("plans", "executions"):
        drawn = [tables / "smoke" / picture["path"] for picture in found[name]["pictures"]]
        assert drawn and all(path.stat().st_size > 5_000 for path in drawn)

    assert cli.main(["report", str(tables / "smoke"), "--out", str(tmp_path / "report")]) == 0
    page = (tmp_path / "report" / "report.html").read_text()
    assert "data:image/gif;base64," in page and "inverse R²" in page


@pytest.mark.slow  # about five minutes on two cores
def test_every_row_of_the_catalog_runs_and_every_figure_is_drawn(tmp_path: Path) -> None:
    run = ["reproduce", "--all", "--preset", "smoke", "--json", "--device", "cpu"]
    assert cli.main([*run, "--runs", str(tmp_path / "runs"), "--out", str(tmp_path)]) == 0
    require_whole(tmp_path / "smoke")


def require_whole(folder: Path) -> None:
    """See that every experiment has its table with all its tasks, and its figures."""
    for one in find_experiments(()):
        table = stored_table(folder, one.id)
        assert table is not None and set(table.tasks) == set(one.tasks)
        drawn = [picture.path for picture in table.pictures]
        if isinstance(one, Experiment) and one.chart != "none":
            drawn.append(f"{one.id}.svg")
        assert drawn or table.facts or table.entries
        assert all((folder / path).stat().st_size > 1_000 for path in drawn)


def test_other_demonstrations_have_folders_of_their_own(tmp_path: Path) -> None:
    lab = Lab(preset="smoke", runs=tmp_path, pairs=2, device="cpu")
    smooth, noisy, usual = (
        Cell(task="push-t", method="cem", demonstrator=name)
        for name in ("pusher", "noisy-pusher", None)
    )
    assert lab.pipeline_of(smooth).folder == tmp_path / "smoke" / "push-t-pusher"
    assert lab.pipeline_of(noisy) == lab.pipeline_of(usual)
    assert lab.pipeline_of(usual).folder == tmp_path / "smoke" / "push-t"
    assert [lab.plain(cell) for cell in (smooth, noisy, usual)] == [smooth, usual, usual]
    levels = levels_of_work([smooth, usual])
    assert [len(level) for level in levels] == [2, 2, 2, 2, 2]  # nothing is shared
    jerks = []
    for cell in (smooth, noisy):
        with open_episodes(lab.pipeline_of(cell).episodes()) as episodes:
            actions = episodes.rows("action", np.arange(2_000))
        jerks.append(np.nanmean(np.abs(np.diff(actions, n=2, axis=0))))
    assert jerks[1] > 2 * jerks[0]
    # Named or not, the usual ones are the same work.
    named, plain = (
        Cell(task="push-t", method="zero", demonstrator=name) for name in ("noisy-pusher", None)
    )
    told: list[str] = []
    rows = run_cells(lab, [named, plain], on_state=lambda _, work: told.append(work.doing)).cells
    assert told.count("run") == 1 and rows[named].rows == rows[plain].rows != []
    # The long preset's usual ones are the smooth ones that its bundled weights were trained on.
    long = replace(lab, preset="cpu-long")
    assert [long.plain(cell) for cell in (smooth, noisy, usual)] == [usual, noisy, usual]


def test_cells_run_side_by_side_give_the_same_rows(smoke_runs: Path) -> None:
    experiment = next(e for e in EXPERIMENTS if e.id == "budget")
    cells = [c for _, m, c in experiment.cells("two-room") if m == "gc-idm" and c.budget < 15]
    lab = Lab(preset="smoke", runs=smoke_runs, pairs=2, device="cpu")
    told: list[tuple[str, int, int, int, bool]] = []

    def tell(state: State, work: Work) -> None:
        told.append((work.doing, state.done, state.running, state.waiting, state.finished))

    both = run_cells(lab, cells, jobs=2, on_state=tell).cells
    # Both cells share the episodes, the pairs, the world model and the controller.
    assert told == [
        ("collect", 0, 1, 5, False),
        ("draw pairs", 1, 1, 4, False),
        ("train world", 2, 1, 3, False),
        ("train", 3, 1, 2, False),
        ("run", 4, 2, 0, False),  # both begin
        ("run", 5, 1, 0, True),
        ("run", 6, 0, 0, True),
    ]
    for path in smoke_runs.glob("smoke/two-room/pairs-*/results/*"):
        path.unlink()
    one = run_cells(lab, cells).cells
    assert {cell: timeless(found.rows) for cell, found in one.items()} == {
        cell: timeless(found.rows) for cell, found in both.items()
    }
    with pytest.raises(ValueError, match="jobs must be at least 1"):
        run_cells(lab, cells, jobs=0)


def test_studies_that_run_no_cell_prepare_theirs_side_by_side(smoke_runs: Path) -> None:
    study = next(one for one in STUDIES if one.id == "latents")
    lab = Lab(preset="smoke", runs=smoke_runs, pairs=1, device="cpu")
    told: list[str] = []

    def tell(_: State, work: Work) -> None:
        told.append(work.doing)

    found = run_cells(lab, [], prepared=study.uses("two-room"), jobs=2, on_state=tell)
    assert not found.cells and not found.failures
    assert told == ["collect", "draw pairs", "train world", "train"]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_what_fails_is_named_and_does_not_stop_the_rest(
    capsys: Capture, tmp_path: Path, smoke_runs: Path, monkeypatch: pytest.MonkeyPatch, jobs: str
) -> None:
    usual = Experiment(
        id="well",
        title="",
        paper="",
        axis="steps",
        points=(Point(label="5", changes={"budget": 5}),),
        methods=("zero",),
        tasks=("two-room",),
    )
    far = replace(usual, id="far", points=(Point(label="far", changes={"offset": 5_000}),))
    study = replace(STUDIES[0], id="study", uses=lambda task: [c for _, _, c in far.cells(task)])
    monkeypatch.setattr(catalog, "EXPERIMENTS", (far, usual))
    monkeypatch.setattr(catalog, "STUDIES", (study,))
    run = ["reproduce", "--all", "--preset", "smoke", "--runs", str(smoke_runs), "--jobs", jobs]
    run += ["--out", str(tmp_path), "--device", "cpu", "--workers", "1"]
    assert cli.main(run) == 2
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert "draw pairs two-room paper goals 5000 steps off: " in line and "budget" not in line
    assert {path.name for path in (tmp_path / "smoke").iterdir()} == {"well.json", "well.svg"}


def test_the_time_left_is_told_from_work_of_the_same_kind() -> None:
    slow, quick = (
        Work(doing="run", cell=Cell(task="cube", method=name)) for name in ("cem:x=1", "zero")
    )
    assert slow.kind == ("run", "cube cem") != quick.kind
    state = State(jobs=2, left=Counter({slow.kind: 3, quick.kind: 2}))
    state.finish(quick, 0.01)  # found, not run
    assert state.seconds_left is None
    state.finish(slow, 60.0)
    assert state.seconds_left is None  # how long the quick one takes is not known
    state.leave_out(quick)
    assert state.seconds_left == pytest.approx(2 * 60 / 2)
    assert (state.done, state.waiting) == (2, 2)
    state.finish(slow, 30.0)
    assert state.seconds_left == pytest.approx(45 / 2)


def test_work_says_what_tells_it_from_other_work() -> None:
    cell = Cell(task="push-t", method="cem", offset=50, budget=10, episodes="all", world=("a=1",))
    assert str(Work(doing="run", cell=cell)) == (
        "run cem push-t a=1 seed 42 goals 50 steps off budget 10 all episodes"
    )
    assert str(Work(doing="train world", cell=cell)) == "train world push-t a=1"
    assert str(Work(doing="train", cell=cell)) == "train gc-idm push-t a=1 seed 42"
    pairwise = replace(cell, method="waypoints")
    assert str(Work(doing="train", cell=pairwise)) == "train pairwise push-t a=1 seed 42"
    assert str(Work(doing="collect", cell=replace(cell, demonstrator="pusher"))) == (
        "collect push-t pusher"
    )


def timeless(rows: Sequence[EpisodeResult]) -> list[EpisodeResult]:
    return [replace(row, batched_latency_ms=0.0) for row in rows]


def test_a_report_without_tables_is_refused(capsys: Capture, tmp_path: Path) -> None:
    assert "no tables there" in refusal(capsys, "report", str(tmp_path))
    (tmp_path / "other.json").write_text("{}")
    assert "a folder of `goalward reproduce`" in refusal(capsys, "report", str(tmp_path))


def test_reproduce_says_what_there_is_and_refuses_what_there_is_not(capsys: Capture) -> None:
    assert cli.main(["reproduce", "--list"]) == 0
    assert "goal-distance" in capsys.readouterr().out
    assert "name experiments" in refusal(capsys, "reproduce")
    assert "'magic' is not one of" in refusal(capsys, "reproduce", "magic")
    assert "'magic'" in refusal(capsys, "reproduce", "main", "--tasks", "magic")
    assert "pairs must be at least 1" in refusal(capsys, "reproduce", "main", "--pairs", "0")
    elsewhere = refusal(capsys, "reproduce", "pairwise-noise", "--tasks", "cube")
    assert "none of these experiments is about task cube" in elsewhere


def test_a_world_model_without_regulariser_may_collapse_and_others_may_not() -> None:
    plain = WorldConfig(model=tiny_model(), schedule=ScheduleConfig(steps=1))
    for changes in ablations.WORLDS.values():
        config = override(plain, changes)
        assert (config.min_latent_std == 0) == (config.objective.regulariser == "none")


def test_changes_that_change_nothing_are_no_training_of_their_own(smoke_runs: Path) -> None:
    lab = Lab(preset="smoke", runs=smoke_runs, pairs=1, device="cpu")
    own = lab.pipeline("two-room").controller_folder(seed=42)
    cells = [
        Cell(task="two-room", method="gc-idm", seed=42, controller=changes)
        for changes in ((), ("data_fraction=1.0",), ("noise.sigma=0.0",), ("noise.sigma=0.1",))
    ]
    works = [Work(doing="train", cell=cell) for cell in cells]
    assert [work.cell for work in without_repeats(lab, works)] == [cells[0], cells[3]]
    assert own.name == "controller-42"
    worlds = [replace(cells[0], world=changes) for changes in ((), ("min_latent_std=0.01",))]
    works = [Work(doing="train world", cell=cell) for cell in worlds]
    assert [work.cell for work in without_repeats(lab, works)] == [worlds[0]]


def test_an_experiment_without_a_method_makes_no_claim_about_it() -> None:
    (budget,) = find_experiments(["budget"])
    assert isinstance(budget, Experiment)
    left = budget.without("gc-idm")
    assert left.methods == ("gc-idm:mode=budget",) and 0 < len(left.claims) < len(budget.claims)
    assert {place[0] for c in left.claims for place in (c.better, c.worse)} == {*left.methods}
    assert {method for _, method, _ in left.cells("two-room")} == {"gc-idm:mode=budget"}

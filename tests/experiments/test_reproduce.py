"""`gw.reproduce`: a row of the catalog is enough for a table and a report."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import goalward as gw
from goalward.core.machine import machine
from goalward.experiments import ablations, analyses, catalog, pictures
from goalward.experiments.catalog import ANALYSES, EXPERIMENTS, find_experiments
from goalward.experiments.experiment import Experiment, Point, Variant, as_good
from goalward.experiments.tables import Table, read_table

Reproduce = Callable[..., list[Table]]
ZERO, GC_IDM = Variant("nothing", "zero"), Variant("ours", "gc-idm")
ADDED = Experiment(
    id="added",
    title="A row more",
    paper="Not in the paper",
    axis="steps",
    points=(
        Point(label="3", changes={"budget": 3}),
        Point(label="5", changes={"budget": 5}),
        Point(label="never", first=1000),
    ),
    variants=(ZERO, GC_IDM),
    tasks=("two-room",),
    timed=True,
    claims=(as_good("more is not worse", (ZERO, "5"), (ZERO, "3"), margin=1),),
)


@pytest.fixture(name="tables")
def tables_fixture(tmp_path: Path) -> Path:
    return tmp_path / "tables"


@pytest.fixture(name="measure")
def measure_fixture(tables: Path, smoke_runs: Path) -> Reproduce:
    """`gw.reproduce` of preset smoke with models that are trained already."""
    return partial(
        gw.reproduce,
        out=tables,
        preset="smoke",
        run_dir=smoke_runs,
        device="cpu",
        workers=1,
        jobs=1,
    )


def test_a_row_more_in_the_catalog_is_all_that_an_experiment_takes(
    measure: Reproduce, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "EXPERIMENTS", (*EXPERIMENTS, ADDED))
    (table,) = measure(["added"])
    places = [(entry.variant, entry.point) for entry in table.entries]
    assert places == [("nothing", "3"), ("nothing", "5"), ("ours", "3"), ("ours", "5")]
    assert all(entry.latency is not None and entry.latency.mean > 0 for entry in table.entries)
    assert all(len(entry.outcomes["42"]) == 1 for entry in table.entries)
    assert [v.verdict for v in table.verdicts] == ["inconclusive"]  # one pair is few
    assert [origin.machine for origin in table.sources["two-room"].origins] == [machine()]
    assert read_table(tables / "smoke" / "added.json.gz") == table
    (again,) = measure(["added"])
    assert [e.summary for e in again.entries] == [e.summary for e in table.entries]  # found

    page = gw.report(tables / "smoke", tables / "report")
    text = page.read_text()
    assert "A row more" in text and "~ inconclusive" in text
    assert "data:image/svg+xml;base64," in text
    text = page.with_name("report.md").read_text()
    assert "| two-room | 3 | " in text or "| two-room | nothing | " in text
    assert "Not measured: main" in text
    rows = list(csv.DictReader(page.with_name("report.csv").read_text().splitlines()))
    successes = [row for row in rows if row["quantity"] == "success"]
    assert [(row["controller"], row["point"]) for row in successes] == places
    assert {row["quantity"] for row in rows} >= {"jerk", "steps", "ms_decision", "ms_plan"}


def test_every_analysis_finds_its_numbers_and_pictures(
    measure: Reproduce, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds = {"preset": (), "untrained": ablations.UNTRAINED}
    monkeypatch.setattr(analyses, "WORLDS", worlds)
    # Minutes of CEM, of training, of probes; the references have tests of their own.
    left_out = {"decision-cost", "training-length", "world-models", "true-state", "baselines"}
    monkeypatch.setattr(pictures, "SHOWN_PAIRS", 1)
    ids = [one.id for one in ANALYSES if one.id not in left_out]
    found = {table.id: table for table in measure(ids, tasks=["two-room"])}
    assert [*found] == ids

    noise = [metric for metric in found["oracle-noise"].metrics if metric.column == "mse"]
    assert [metric.row for metric in noise][::4] == ["0", "0.1", "2"]
    assert noise[0].paper == 0.005017 and (noise[0].value or 0) > 0
    geometry = {(m.row, m.column): m.value or 0.0 for m in found["latent-geometry"].metrics}
    assert {row for row, _ in geometry} == {"preset", "untrained"}
    assert 0 < geometry["preset", "isotropy"] <= 1 <= geometry["preset", "κ (median)"]
    recordings = {m.column: m.value for m in found["recordings"].metrics}
    assert recordings["frames of 100 that differ"] == 0
    rows = {metric.row for metric in found["controllers"].metrics}
    assert {"all goals", "training", "horizon budget", "horizon fixed, 25 steps"} <= rows
    times = {metric.column: metric.value or 0.0 for metric in found["training-time"].metrics}
    assert [*times] == ["episodes", "world model", "latents", "controller"]
    assert all(value > 0 for value in times.values())
    for name in ("plans", "executions"):
        drawn = [tables / "smoke" / picture.path for picture in found[name].pictures]
        assert drawn and all(path.stat().st_size > 5_000 for path in drawn)

    text = gw.report(tables / "smoke", tables / "report").read_text()
    assert "data:image/gif;base64," in text and "inverse R²" in text


@pytest.mark.slow  # about five minutes on two cores
def test_every_row_of_the_catalog_runs_and_every_figure_is_drawn(tmp_path: Path) -> None:
    gw.reproduce(
        ["all"], tmp_path / "tables", preset="smoke", run_dir=tmp_path / "runs", device="cpu"
    )
    for one in find_experiments():
        table = read_table(tmp_path / "tables" / "smoke" / f"{one.id}.json.gz")
        assert {*table.tasks} == {*one.tasks} and not table.is_empty
        paths = [tmp_path / "tables" / "smoke" / picture.path for picture in table.pictures]
        assert all(path.stat().st_size > 1_000 for path in paths)
    text = gw.report(tmp_path / "tables" / "smoke", tmp_path).read_text()
    charts = [one for one in EXPERIMENTS if one.chart != "none"]
    assert text.count("data:image/svg+xml;base64,") == len(charts)
    assert "Not measured" not in text


def test_what_fails_is_named_and_does_not_stop_the_rest(
    measure: Reproduce, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = replace(
        ADDED, id="usual", points=ADDED.points[1:2], variants=(ZERO,), claims=(), timed=False
    )
    far = replace(usual, id="far", points=(Point(label="far", changes={"goal_offset": 5_000}),))
    ((_, _, far_run),) = far.runs("two-room")
    analysis = replace(ANALYSES[0], id="x", tasks=far.tasks, uses=lambda _: [far_run])
    monkeypatch.setattr(catalog, "EXPERIMENTS", (far, usual))
    monkeypatch.setattr(catalog, "ANALYSES", (analysis,))
    with pytest.raises(
        ValueError, match=r"draw pairs two-room.* goals 5000 steps away: "
    ) as caught:
        measure(["all"], jobs=2)
    assert "budget" not in str(caught.value) and "\n" not in str(caught.value)
    assert {path.name for path in (tables / "smoke").iterdir()} == {"usual.json.gz"}


def test_the_bundled_preset_measures_what_needs_no_training(
    measure: Reproduce, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = replace(ADDED, points=ADDED.points[:1], seeds=(42, 123), claims=(), timed=False)
    monkeypatch.setattr(catalog, "EXPERIMENTS", (*EXPERIMENTS, few))
    (table,) = measure(["added"], preset="bundled", pairs=2)
    assert table.preset == "bundled" and table.sources["two-room"].pairs == 2
    # There is one bundled controller, hence one seed.
    assert [{*map(len, entry.outcomes.values())} for entry in table.entries] == [{2}, {2}]
    assert [[*entry.outcomes] for entry in table.entries] == [["42"], ["42"]]
    assert read_table(tables / "bundled" / "added.json.gz") == table
    with pytest.raises(ValueError, match="more than 1; give --pairs 2, or another --out"):
        measure(["added"], preset="bundled", pairs=1)
    with pytest.raises(ValueError, match="bundled trains nothing, which goal-distance, width need"):
        measure(["goal-distance", "commit", "width"], preset="bundled")


def test_experiments_and_tasks_that_do_not_exist_are_refused_before_any_work(
    measure: Reproduce, tables: Path
) -> None:
    assert "goal-distance" in [one.id for one in gw.list_experiments()]
    with pytest.raises(ValueError, match="'magic'"):
        measure(["main"], tasks=["magic"])
    with pytest.raises(ValueError, match="none of these experiments is about task cube"):
        measure(["pairwise-noise"], tasks=["cube"])
    assert not tables.exists()

"""The report's page in a real browser: nothing missing, no error, and it fits a phone."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from goalward import cli
from goalward.core.config import read_config
from goalward.core.figures import add_common_legend, new_figure, save_figure
from goalward.core.machine import Provenance
from goalward.evaluation.latency import Latency
from goalward.evaluation.results import summarise_method
from goalward.evaluation.statistics import Difference
from goalward.evaluation.video import Strip, save_gif
from goalward.experiments.catalog import find_experiments
from goalward.experiments.claims import Verdict
from goalward.experiments.experiment import Chart, Experiment, Fact
from goalward.experiments.figures import save_table_figure
from goalward.experiments.report import html_page, markdown_page, read_report
from goalward.experiments.stored import is_current, require_room, save_table, stored_table
from goalward.experiments.tables import Entry, Picture, Source, Table
from test_evaluation import row

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-extensions"),
)
ROUTER = "cem:solver.num_samples=30,solver.num_iters=2,solver.num_elites=3"
# In the page: what is broken, and how wide it is; afterwards the DOM is printed.
PROBE = """
<script>
const errors = [];
addEventListener("error", event => errors.push(String(event.message || event.target.src)), true);
addEventListener("load", () => {
  const images = [...document.images];
  images.forEach(image => { image.loading = "eager"; });
  const found = document.createElement("pre");
  found.id = "found";
  found.textContent = JSON.stringify({
    images: images.length,
    broken: images.filter(image => image.complete && !image.naturalWidth).length,
    errors: errors,
    width: document.documentElement.scrollWidth,
    window: document.documentElement.clientWidth,
    dead: [...document.querySelectorAll("a")].filter(a => !document.querySelector(a.hash)).length,
  });
  document.body.append(found);
});
</script>
"""


def table(name: str, **changes: object) -> Table:
    """A table with a little of everything."""
    times = Latency(
        environments=1, decisions=5, mean=1.0, p50=1.0, p99=1.0, plan=1.0, memory_mb=None
    )
    entries = [
        Entry(
            task=task,
            method=method,
            point=point,
            summary=summarise_method([row(method=method, pair=k) for k in range(4)]),
            latency=times,
            paper=97.5,
        )
        for task in ("two-room", "push-t")
        for method in ("gc-idm:mode=budget", "gc-idm", "cem", ROUTER)
        for point in ("first 50", "all pairs")
    ]
    verdicts = [
        Verdict(
            task=task,
            claim="GC-IDM succeeds as often as CEM or more often",
            verdict="holds",
            ours=False,
            about="success",
            difference=Difference(mean=0.1, low=0.0, high=0.2),
        )
        for task in ("two-room", "push-t")
    ]
    facts: dict[str, object] = {
        "id": name,
        "title": f"The title of {name}",
        "paper": "Table 1: what the paper finds",
        "axis": "pairs",
        "preset": "smoke",
        "tasks": ("two-room", "push-t"),
        "entries": tuple(entries),
        "verdicts": tuple(verdicts),
        "facts": (),
        "pictures": (),
        "sources": dict.fromkeys(("two-room", "push-t"), source(None)),
    }
    return Table(**{**facts, **changes})  # type: ignore[arg-type]


def source(revision: str | None, pairs: int = 4) -> Source:
    return Source(pairs=pairs, origins=(origin(revision),))


def origin(revision: str | None) -> Provenance:
    return Provenance(
        machine="x86_64, 2 CPUs, no GPU",
        git_revision=revision,
        versions={"python": "3", "torch": "2"},
    )


def drawing(path: str, task: str = "two-room") -> Picture:
    return Picture(task=task, path=path)


@pytest.fixture(name="page", scope="module")
def page_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with tables, a chart of each kind, numbers, a picture and a moving picture."""
    tables = tmp_path_factory.mktemp("tables")
    charts: dict[str, Chart] = {"main": "bars", "budget": "line", "frontier": "frontier"}
    for name, chart in charts.items():
        save_table(tables, table(name), chart)
    save_figure(new_figure(6, 2), tables / "plans.png")
    frames = np.zeros((4, 32, 32, 3), dtype=np.uint8)
    save_gif(tables / "moving.gif", frames[0], [Strip(label="a", frames=frames, success=True)])
    number = Fact(task="two-room", row="0.1", column="mse", value=None, paper=0.5)
    study = table("oracle-noise", entries=(), verdicts=(), facts=(number,), axis="sigma")
    save_table(tables, study)
    drawn = table(
        "plans", entries=(), verdicts=(), pictures=tuple(map(drawing, ("plans.png", "moving.gif")))
    )
    save_table(tables, drawn)
    out = tables / "report"
    assert cli.main(["report", str(tables), "--out", str(out)]) == 0
    return out / "report.html"


def opened(page: Path, width: int, tmp_path: Path) -> dict[str, object]:
    """What the probe finds in a frame so wide: a window itself cannot be as narrow as a phone."""
    assert CHROMIUM is not None
    probed, outer = tmp_path / "probed.html", tmp_path / "outer.html"
    probed.write_text(page.read_text().replace("<head>", f"<head>{PROBE}", 1))
    inner = "document.querySelector('iframe').contentDocument.querySelector('#found')"
    outer.write_text(
        f'<!doctype html><iframe src="probed.html" style="width:{width}px;height:900px;border:0" '
        f'onload="document.body.append({inner})"></iframe>'
    )
    done = subprocess.run(
        [
            *(CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}"),
            *("--allow-file-access-from-files", "--virtual-time-budget=5000", "--dump-dom"),
            *("--enable-logging=stderr", "--v=0", outer.as_uri()),
        ],
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert b"CONSOLE" not in done.stderr, done.stderr
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout.decode())
    assert found, done.stdout[-500:]
    facts: dict[str, object] = json.loads(found[1])
    return facts


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_shows_whole_in_a_browser(page: Path, width: int, tmp_path: Path) -> None:
    found = opened(page, width, tmp_path)
    assert found["images"] == 5 and found["broken"] == 0 and found["dead"] == 0
    assert found["errors"] == []
    assert found["width"] == found["window"]  # nothing sticks out; tables scroll


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_broken_page_would_be_found_out(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    broken = tmp_path / "broken.html"
    broken.write_text(re.sub(r"data:image/png;base64,[^\"]{40}", "data:image/png;base64,", text))
    assert opened(broken, 1280, tmp_path)["broken"] == 1
    wide = tmp_path / "wide.html"
    wide.write_text(text.replace("<h1>", '<div style="width:2000px">x</div><h1>'))
    assert opened(wide, 390, tmp_path)["width"] == 2016  # beside the body's padding


def test_the_page_marks_where_the_paper_lies(page: Path) -> None:
    text = page.read_text()
    assert "[97.5 =]" in text
    assert "∞ [0.5]" in text  # a number beyond all bounds
    assert text.index("The title of main") < text.index("The title of budget")


@pytest.mark.parametrize(
    ("paper", "low", "high", "shown"),
    [
        (100.0, 0.92, 0.997, "(92 to 100) [100 =]"),  # though 99.7 is less
        (100.0, 0.92, 0.987, "(92 to 99) [100 ↓]"),
        (97.0, 0.976, 0.997, "(98 to 100) [97 ↑]"),
    ],
)
def test_a_mark_fits_the_interval_that_is_shown(
    paper: float, low: float, high: float, shown: str, tmp_path: Path
) -> None:
    whole = table("main")
    entry = whole.entries[0]
    rate = replace(entry.summary.rate, mean=0.95, low=low, high=high)
    entries = (replace(entry, paper=paper, summary=replace(entry.summary, rate=rate)),)
    save_table(tmp_path, replace(whole, entries=entries, verdicts=()))
    (section,) = read_report(tmp_path).sections
    assert section.grids[0].rows[0][1].endswith(shown)


def test_times_that_were_not_taken_have_no_column(tmp_path: Path) -> None:
    whole = table("main")
    timed, untimed = tmp_path / "timed", tmp_path / "untimed"
    for folder in (timed, untimed):
        folder.mkdir()
    save_table(timed, whole)
    save_table(untimed, replace(whole, entries=tuple(_untimed(e) for e in whole.entries)))
    headers = [read_report(folder).sections[0].grids[0].header for folder in (timed, untimed)]
    assert headers[0][-1] == "ms a decision" and headers[1] == headers[0][:-1]


def _untimed(entry: Entry) -> Entry:
    return replace(entry, latency=None)


@pytest.mark.parametrize("letters", [3, 15, 25, 45])
def test_a_legend_stays_inside_its_figure(letters: int) -> None:
    figure = new_figure(6, 3)
    axes = figure.add_subplot()
    for k in range(6):
        axes.plot([0, 1], [k, k], label=str(k) + "m" * letters)
    add_common_legend(figure, axes)
    figure.canvas.draw()
    extent = figure.legends[0].get_window_extent()
    assert extent.x0 >= 0 and extent.x1 <= figure.bbox.x1


def test_sittings_of_different_tasks_make_one_table(tmp_path: Path) -> None:
    both = table("main")

    def one(task: str, revision: str, **changes: object) -> Table:
        entries = tuple(entry for entry in both.entries if entry.task == task)
        verdicts = tuple(verdict for verdict in both.verdicts if verdict.task == task)
        kept = {"tasks": (task,), "entries": entries, "verdicts": verdicts}
        changes["sources"] = {task: source(revision)}
        return table("main", **{**kept, **changes})

    save_table(tmp_path, one("push-t", "a", pictures=(drawing("b.png", "push-t"),)))
    whole = save_table(tmp_path, one("two-room", "b", pictures=(drawing("a.png"),)))
    assert read_config(Table, tmp_path / "main.json") == whole
    assert whole.tasks == ("two-room", "push-t") and len(whole.entries) == len(both.entries)
    assert len(whole.verdicts) == 2 and {p.path for p in whole.pictures} == {"a.png", "b.png"}
    assert [*whole.sources.items()] == [("two-room", source("b")), ("push-t", source("a"))]
    again = save_table(tmp_path, one("push-t", "c", entries=()))
    assert again.sources == {"two-room": source("b"), "push-t": source("c")}
    assert {entry.task for entry in again.entries} == {"two-room"}  # measured anew: replaced
    assert {picture.task for picture in again.pictures} == {"two-room"}
    (experiment,) = find_experiments(["main"])
    require_room(tmp_path, [experiment], 4, [])
    for tasks in ([], ["push-t", "two-room"]):
        with pytest.raises(ValueError, match="two-room measured on 4 pairs, more than 3; give --p"):
            require_room(tmp_path, [experiment], 3, tasks)


def test_tasks_that_were_asked_something_else_do_not_stand_beside_new_ones(tmp_path: Path) -> None:
    (budget,) = find_experiments(["budget"])
    assert isinstance(budget, Experiment)
    folder = Path(__file__).parents[1] / "results" / "experiments" / "cpu"
    stored = stored_table(folder, "budget")
    assert stored is not None and is_current(stored, "push-t", budget)
    require_room(folder, [budget], 1, ["cube"])  # with fewer pairs than the others
    for other in (
        replace(stored, verdicts=stored.verdicts[:-1]),  # a claim was added
        replace(stored, verdicts=tuple(replace(v, claim="other") for v in stored.verdicts)),
        replace(stored, entries=tuple(replace(e, point="6") for e in stored.entries)),
    ):
        save_table(tmp_path, other)
        with pytest.raises(ValueError, match=r"push-t measured when other .*--tasks two-room pu"):
            require_room(tmp_path, [budget], 10_000, ["two-room"])
        require_room(tmp_path, [budget], 10_000, [])  # all are measured anew


def test_a_picture_is_drawn_before_another_process_may_change_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []

    def draw(path: Path, whole: Table, chart: Chart) -> None:
        other = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(other)
        drawn.append((path.name, whole.tasks, chart))

    monkeypatch.setattr("goalward.experiments.stored.save_table_figure", draw)
    charts: dict[str, Chart] = {"push-t": "none", "two-room": "bars"}
    for task, chart in charts.items():
        part = table("main", tasks=(task,), sources={task: source(None)})
        save_table(tmp_path, part, chart)
    assert drawn == [("main.svg", ("two-room", "push-t"), "bars")]


def test_a_table_tells_which_task_has_how_many_pairs(tmp_path: Path) -> None:
    few = {"two-room": source(None, 200), "push-t": source(None, 100)}
    assert table("main").shown_pairs == "4 pairs"
    mixed = save_table(tmp_path, table("main", sources=few), "bars")
    assert mixed.shown_pairs == "200 pairs (two-room), 100 pairs (push-t)"
    assert mixed.shown_pairs in (tmp_path / "main.svg").read_text()
    report = read_report(tmp_path)
    for page in (html_page(report), markdown_page(report, tmp_path)):
        for task, pairs in (("two-room", 200), ("push-t", 100)):
            assert f"reproduce main --preset smoke --pairs {pairs} --tasks {task}" in page
    assert mixed.shown_pairs in html_page(report)


def test_the_page_tells_what_was_not_claimed_counted_and_run(tmp_path: Path) -> None:
    paper = "a budget of 25 is better than one of 50"  # of Push-T alone
    ours = (
        "told the time to go, a budget of 100 is as good as one of 50, within 3 points (our claim)"
    )
    found = replace(table("budget").verdicts[0], task="push-t", claim=paper)
    both = (found, replace(found, claim=ours, ours=True, verdict="fails"))
    save_table(tmp_path, table("budget", verdicts=both))
    report = read_report(tmp_path)
    assert report.shown(paper, "push-t").startswith("✓ holds")
    assert report.shown(paper, "two-room") == "not claimed" and report.shown(ours, "cube") == ""
    assert report.verdicts(ours=False) == {"holds": 1, "fails": 0, "open": 0}
    assert report.verdicts(ours=True, task="push-t") == {"holds": 0, "fails": 1, "open": 0}
    assert report.verdicts(ours=True, task="two-room")["fails"] == 0
    assert "main" in report.missing and "budget" not in report.missing
    page = html_page(report)
    assert "0 hold" in page and "Not run yet: main, solvers" in page and "time to go" in page


def test_pictures_are_called_by_their_task_wherever_the_tables_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "push-t").mkdir()
    names = ("plans-two-room.png", "push-t/pair-3-648713.png")
    for name in names:
        save_figure(new_figure(6, 2), tmp_path / name)
    drawn = tuple(map(drawing, names, ("two-room", "push-t")))
    save_table(tmp_path, table("plans", entries=(), verdicts=(), pictures=drawn))
    monkeypatch.chdir(tmp_path)
    report = read_report(Path())
    for name in ("two-room", "push-t, pair 3"):
        assert f"<figcaption>The title of plans: {name}, preset smoke." in html_page(report)
        assert f"![The title of plans: {name}](" in markdown_page(report, tmp_path)


def test_many_points_go_down_the_page_not_across(tmp_path: Path) -> None:
    whole = table("budget", axis="steps")
    entries = [replace(e, point=f"{k}") for e in whole.entries for k in (5, 10, 25, 50, 100)]
    save_table(tmp_path, replace(whole, entries=tuple(entries)))
    grid = read_report(tmp_path).sections[0].grids[0]
    assert grid.header[:2] == ("steps", "GC-IDM (budget)") and len(grid.header) == 5
    assert [row[0] for row in grid.rows] == ["5", "10", "25", "50", "100"]


def test_every_table_names_the_machine_and_the_code_it_was_measured_with(tmp_path: Path) -> None:
    save_table(tmp_path, table("budget"))
    both = tuple(origin(letter * 40) for letter in "ac")
    other = {"two-room": Source(pairs=4, origins=both), "push-t": source("b" * 40 + "+dirty")}
    save_table(tmp_path, table("main", sources=other))
    unknown = {task: Source(pairs=4, origins=()) for task in other}
    save_table(tmp_path, table("solvers", sources=unknown))
    report = read_report(tmp_path)
    machine = "x86_64, 2 CPUs, no GPU"
    expected = {
        "main": [
            f"two-room: {machine}, revision aaaaaaa, torch 2, Python 3 and {machine}, revision "
            "ccccccc, torch 2, Python 3",
            f"push-t: {machine}, revision bbbbbbb+dirty, torch 2, Python 3",
        ],
        "solvers": ["two-room, push-t: not noted by what"],
        "budget": [f"two-room, push-t: {machine}, revision unknown, torch 2, Python 3"],
    }
    assert {section.table.id: section.sources for section in report.sections} == expected
    for lines in expected.values():
        assert f"Measured: {'; '.join(lines)}." in markdown_page(report, tmp_path)
        assert "; ".join(lines) in html_page(report)


def test_a_table_of_another_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "main.json").write_text('{"machine": "x86_64"}')
    with pytest.raises(ValueError, match=r"main\.json: .*another version: give another --out"):
        save_table(tmp_path, table("main"))


def test_a_chart_of_one_point_leaves_it_to_the_legend(tmp_path: Path) -> None:
    several = table("main")
    one = replace(several, entries=tuple(e for e in several.entries if e.point == "all pairs"))
    for name, drawn in (("several", several), ("one", one)):
        save_table_figure(tmp_path / f"{name}.svg", drawn, "bars")
    labels = {
        name: re.findall("<!-- (.+?) -->", (tmp_path / f"{name}.svg").read_text())
        for name in ("several", "one")
    }
    assert {"pairs", "all pairs", "first 50", "success, %"} <= {*labels["several"]}
    assert not {"pairs", "all pairs"} & {*labels["one"]} and "success, %" in labels["one"]

"""The report: one page that a browser shows completely, Markdown, and CSV."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import goalward as gw
from goalward.core.figures import new_figure, save_figure
from goalward.evaluation.video import Strip, save_gif
from goalward.experiments.experiment import CEM, GC_IDM, TIME_TO_GO
from goalward.experiments.grids import success_grid
from goalward.experiments.report import (
    html_page,
    legend,
    markdown_page,
    markdown_table,
    read_report,
)
from goalward.experiments.tables import Metric, Source, save_table
from table_helpers import a_picture, a_source, a_table, a_verdict, an_origin, latency

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-extensions"),
)
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


@pytest.fixture(name="page", scope="module")
def page_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with tables, a chart of each kind, numbers, a picture and a moving picture."""
    tables = tmp_path_factory.mktemp("tables")
    for name in ("main", "budget", "frontier"):  # bars, lines, and times along x
        save_table(tables, a_table(name))
    save_figure(new_figure(6, 2), tables / "plans.png")
    frames = np.zeros((4, 32, 32, 3), dtype=np.uint8)
    save_gif(tables / "moving.gif", frames[0], [Strip(label="a", frames=frames, success=True)])
    number = Metric(task="two-room", row="0.1", column="mse", value=None, paper=0.5)
    plain = a_table("oracle-noise", entries=(), verdicts=(), metrics=(number,), axis="sigma")
    save_table(tables, plain)
    pictures = tuple(map(a_picture, ("plans.png", "moving.gif")))
    save_table(tables, a_table("plans", entries=(), verdicts=(), pictures=pictures))
    page = gw.report(tables, tables / "report")
    assert {path.name for path in page.parent.iterdir()} == {
        *("report.html", "report.md", "report.csv")
    }
    return page


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


def test_the_page_needs_nothing_from_elsewhere_and_explains_its_words(page: Path) -> None:
    text = page.read_text()
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", text)
    assert "data:image/svg+xml;base64," in text and "data:image/gif;base64," in text
    markdown = page.with_name("report.md").read_text()
    assert markdown.startswith("# goalward") and legend() in markdown
    assert "- *jerk*: mean norm" in markdown and "<dt>jerk</dt>" in text


def test_the_page_marks_where_the_papers_figure_is(page: Path) -> None:
    text = page.read_text()
    assert "[97.5 =]" in text
    assert "∞ [0.5]" in text  # a number beyond all bounds
    assert text.index("The title of main") < text.index("The title of budget")


def test_the_csv_has_a_row_for_every_number(page: Path) -> None:
    rows = list(csv.DictReader(page.with_name("report.csv").read_text().splitlines()))
    main = [row for row in rows if row["experiment"] == "main"]
    success = [row for row in main if row["quantity"] == "success"]
    assert len(success) == 2 * 4 * 2 and {row["preset"] for row in rows} == {"smoke"}
    first = success[0]
    assert (first["task"], first["controller"], first["point"]) == (
        *("two-room", GC_IDM.label, "first 50"),
    )
    assert (float(first["value"]), first["pairs"], first["seeds"]) == (1.0, "4", "1")
    assert float(first["low"]) < 0.9 < float(first["high"]) and float(first["paper"]) == 0.975
    numbers = {row["quantity"]: row["value"] for row in main if row["point"] == "all pairs"}
    assert numbers["jerk"] == "0.5" and numbers["steps"] == "10.0"
    assert numbers["ms_decision"] == numbers["ms_plan"] == "1.0"
    (metric,) = (row for row in rows if row["experiment"] == "oracle-noise")
    assert (metric["point"], metric["quantity"], metric["value"]) == ("0.1", "mse", "")
    assert metric["paper"] == "0.5"


@pytest.mark.parametrize(
    ("paper", "low", "high", "shown"),
    [
        (100.0, 0.92, 0.997, "(92 to 100) [100 =]"),  # though 99.7 is less
        (100.0, 0.92, 0.987, "(92 to 99) [100 ↓]"),
        (97.0, 0.976, 0.997, "(98 to 100) [97 ↑]"),
        (None, 0.976, 0.997, "(98 to 100)"),
    ],
)
def test_a_mark_fits_the_interval_that_is_shown(
    paper: float | None, low: float, high: float, shown: str
) -> None:
    whole = a_table("main")
    entry = whole.entries[0]
    rate = replace(entry.summary.rate, mean=0.95, low=low, high=high)
    entry = replace(entry, paper=paper, summary=replace(entry.summary, rate=rate))
    grid = success_grid(replace(whole, entries=(entry,)))
    assert grid.rows == (("two-room", GC_IDM.label, f"95.0 {shown}"),)


def test_the_spread_over_seeds_is_beside_the_rate() -> None:
    entry = a_table("main").entries[0]
    spread = replace(entry, paper=None, summary=replace(entry.summary, seed_std=0.012))
    grid = success_grid(a_table("main", entries=(spread,)))
    assert grid.rows[0][2].startswith("100.0 ±1.2 (")


def test_latencies_that_were_not_measured_have_no_column(tmp_path: Path) -> None:
    whole = a_table("main")
    timed, untimed = tmp_path / "timed", tmp_path / "untimed"
    for folder, entries in (
        (timed, whole.entries),
        (untimed, tuple(replace(entry, latency=None) for entry in whole.entries)),
    ):
        folder.mkdir()
        save_table(folder, replace(whole, entries=entries))
    headers = [read_report(folder).sections[0].grids[1].header for folder in (timed, untimed)]
    times = {"ms a decision", "ms a plan", "CEM's time / its time"}
    assert {*headers[0]} - {*headers[1]} == times
    assert [name for name in headers[0] if name not in times] == [*headers[1]]


def test_speed_is_compared_with_cem_and_smoothness_with_the_paper(tmp_path: Path) -> None:
    whole = a_table("main")
    entries = tuple(
        replace(entry, latency=latency(500.0 if entry.variant == CEM.label else 4.0))
        for entry in whole.entries
    )
    save_table(tmp_path, replace(whole, entries=entries))
    grid = read_report(tmp_path).sections[0].grids[1]
    rows = {row[:2]: dict(zip(grid.header, row, strict=True)) for row in grid.rows}
    ours, cem = (rows["push-t", one.label] for one in (GC_IDM, CEM))
    assert ours["CEM's time / its time"] == "125" and cem["CEM's time / its time"] == "1"
    assert ours["ms a decision"] == "4.00" and cem["ms a plan"] == "500.00"
    assert re.fullmatch(r"0\.500 \[[\d.]+\]", ours["jerk"])
    assert rows["push-t", TIME_TO_GO.label]["jerk"] == "0.500"  # which the paper does not have


def test_commands_name_the_pairs_of_every_task(tmp_path: Path) -> None:
    few = {"two-room": a_source(None, 200), "push-t": a_source(None, 100)}
    save_table(tmp_path, a_table("main", sources=few))
    report = read_report(tmp_path)
    for page in (html_page(report), markdown_page(report, tmp_path)):
        for task, pairs in (("two-room", 200), ("push-t", 100)):
            assert f"reproduce main --preset smoke --pairs {pairs} --tasks {task}" in page
        assert "200 pairs (two-room), 100 pairs (push-t)" in page


def test_claims_are_counted_by_their_author(tmp_path: Path) -> None:
    paper = a_verdict("push-t")
    ours = replace(paper, claim="ours, within 3 points (our claim)", ours=True, verdict="refuted")
    save_table(tmp_path, a_table("budget", verdicts=(paper, ours)))
    report = read_report(tmp_path)
    assert report.verdicts(ours=False) == {"supported": 1, "refuted": 0, "inconclusive": 0}
    assert report.verdicts(ours=True) == {"supported": 0, "refuted": 1, "inconclusive": 0}
    (claims,) = report.sections[0].claims
    assert [row[2] for row in claims.rows] == ["✓ supported", "✗ refuted"]
    assert "main" in report.missing and "budget" not in report.missing
    page = html_page(report)
    assert "1 supported" in page and "Not measured: main, solvers" in page


def test_pictures_are_named_by_their_task_wherever_the_tables_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "push-t").mkdir()
    names = ("plans-two-room.png", "push-t/pair-3-648713.png")
    for name in names:
        save_figure(new_figure(6, 2), tmp_path / name)
    pictures = tuple(map(a_picture, (*names, "lost.png"), ("two-room", "push-t", "push-t")))
    save_table(tmp_path, a_table("plans", entries=(), verdicts=(), pictures=pictures))
    monkeypatch.chdir(tmp_path)
    report = read_report(Path())
    html, markdown = html_page(report), markdown_page(report, tmp_path / "pages")
    for name, path in zip(("two-room", "push-t, pair 3"), names, strict=True):
        assert f"<figcaption>The title of plans: {name}, preset smoke." in html
        assert f"![The title of plans: {name}](../{path})" in markdown
    assert "lost" not in html + markdown  # a picture that was deleted


def test_many_points_are_rows_not_columns() -> None:
    whole = a_table("budget", axis="steps")
    entries = [replace(e, point=f"{k}") for e in whole.entries for k in (5, 10, 25, 50, 100)]
    grid = success_grid(replace(whole, entries=tuple(entries)))
    assert grid.header[:3] == ("task", "steps", GC_IDM.label) and len(grid.header) == 6
    assert [row[1] for row in grid.rows[:5]] == ["5", "10", "25", "50", "100"]
    wide = replace(whole, entries=tuple(entries), tasks=whole.tasks)
    assert [len(part.header) for part in success_grid(wide).split()] == [6]
    grid = replace(grid, header=tuple("abcdefgh"), rows=(tuple("12345678"),))
    parts = list(grid.split())
    assert ["".join(part.header) for part in parts] == ["abcdef", "abgh"]
    assert ["".join(part.rows[0]) for part in parts] == ["123456", "1278"]


def test_every_table_names_the_machine_and_the_code_it_was_measured_with(tmp_path: Path) -> None:
    save_table(tmp_path, a_table("budget"))
    both = tuple(an_origin(letter * 40) for letter in "ac")
    other = {"two-room": Source(pairs=4, origins=both), "push-t": a_source("b" * 40 + "+dirty")}
    save_table(tmp_path, a_table("main", sources=other))
    unknown = {task: Source(pairs=4, origins=()) for task in other}
    save_table(tmp_path, a_table("solvers", sources=unknown))
    report = read_report(tmp_path)
    machine = "x86_64, 2 CPUs, no GPU"
    expected = {
        "main": [
            f"two-room: {machine}, revision aaaaaaa, torch 2, Python 3 and {machine}, revision "
            "ccccccc, torch 2, Python 3",
            f"push-t: {machine}, revision bbbbbbb+dirty, torch 2, Python 3",
        ],
        "solvers": ["two-room, push-t: unknown"],
        "budget": [f"two-room, push-t: {machine}, revision unknown, torch 2, Python 3"],
    }
    assert {s.table.id: s.sources for s in report.sections} == {
        name: "; ".join(lines) for name, lines in expected.items()
    }
    for lines in expected.values():
        assert f"Measured: {'; '.join(lines)}." in markdown_page(report, tmp_path)
        assert "; ".join(lines) in html_page(report)


def test_the_contents_of_the_markdown_page_link_to_its_headings(tmp_path: Path) -> None:
    save_table(tmp_path, a_table("main", title="GC-IDM, and CEM"))
    text = markdown_page(read_report(tmp_path), tmp_path)
    assert "- [GC-IDM, and CEM (`smoke`)](#gc-idm-and-cem-smoke)" in text
    assert "\n## GC-IDM, and CEM (`smoke`)\n" in text


def test_metrics_with_the_same_columns_share_a_table(tmp_path: Path) -> None:
    metrics = [
        Metric(task="two-room", row=name, column=column, value=value)
        for name, columns in (("a", "xy"), ("b", "z"), ("c", "xy"))
        for column, value in zip(columns, (1234.56, 0.123456), strict=False)
    ]
    rate = Metric(
        task="two-room", row="d", column="success, %", value=50.0, low=9.6, high=90.2, count=4
    )
    metrics.append(replace(rate, paper=97.5))
    table = a_table("true-state", entries=(), verdicts=(), metrics=tuple(metrics), axis="what")
    save_table(tmp_path, table)
    grids = read_report(tmp_path).sections[0].grids
    assert [grid.header[2:] for grid in grids] == [("x", "y"), ("z",), ("success, %",)]
    assert grids[0].rows[1] == ("two-room", "c", "1,235", "0.1235")
    assert grids[2].rows == (("two-room", "d", "50 (10 to 90) n=4 [97.5]"),)


def test_a_markdown_table_has_a_line_a_row() -> None:
    lines = list(markdown_table(("a", "b"), [("1", "2")]))
    assert lines == ["| a | b |", "| --- | --- |", "| 1 | 2 |", ""]


def test_a_report_without_tables_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="no tables there; give a folder of `goalward reproduce`"):
        gw.report(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()

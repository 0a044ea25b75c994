"""The report: one page that needs no other file, Markdown, and CSV."""

from __future__ import annotations

import base64
import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import goalward as gw
from goalward.core.figures import new_figure, save_figure
from goalward.evaluation.video import Strip, save_gif
from goalward.experiments.experiment import CEM, GC_IDM, TIME_TO_GO
from goalward.experiments.grids import success_grid
from goalward.experiments.report import html_page, legend, markdown_page, read_report
from goalward.experiments.tables import Metric, Source, save_table
from table_helpers import a_picture, a_source, a_table, a_verdict, latency


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


def test_every_picture_of_the_page_opens_and_every_link_has_its_place(page: Path) -> None:
    text = page.read_text()
    pictures = re.findall(r'src="data:image/([\w+]+);base64,([^"]+)"', text)
    assert len(pictures) == 5
    for kind, data in pictures:
        content = base64.b64decode(data, validate=True)
        if kind == "svg+xml":
            ElementTree.fromstring(content)
        else:
            Image.open(io.BytesIO(content)).verify()
    links = set(re.findall(r'href="#([^"]+)"', text))
    assert links and links <= set(re.findall(r'id="([^"]+)"', text))


def test_the_page_needs_nothing_from_elsewhere_and_explains_its_words(page: Path) -> None:
    text = page.read_text()
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", text)
    assert "data:image/svg+xml;base64," in text and "data:image/gif;base64," in text
    markdown = page.with_name("report.md").read_text()
    assert markdown.startswith("# goalward") and legend() in markdown
    assert "- *jerk*: mean norm" in markdown and "<dt>jerk</dt>" in text


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


def test_every_table_names_the_machine_and_the_code_it_was_measured_with(tmp_path: Path) -> None:
    sources = {"two-room": a_source("a" * 40), "push-t": a_source("b" * 40 + "+dirty")}
    save_table(tmp_path, a_table("main", sources=sources))
    unknown = dict.fromkeys(sources, Source(pairs=4, origins=()))
    save_table(tmp_path, a_table("solvers", sources=unknown))
    report = read_report(tmp_path)
    machine = "x86_64, 2 CPUs, no GPU"
    for line in (
        f"two-room: {machine}, revision aaaaaaa, torch 2, Python 3; "
        f"push-t: {machine}, revision bbbbbbb+dirty, torch 2, Python 3",
        "two-room, push-t: unknown",
    ):
        assert f"Measured: {line}." in markdown_page(report, tmp_path)
        assert line in html_page(report)

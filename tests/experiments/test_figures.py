"""Charts of tables."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from goalward.core.figures import add_common_legend, new_figure
from goalward.experiments.comparisons import FRONTIER
from goalward.experiments.experiment import GC_IDM, TIME_TO_GO, Chart
from goalward.experiments.figures import save_table_figure
from goalward.experiments.tables import Table
from table_helpers import a_source, a_table, latency


def texts(table: Table, chart: Chart, folder: Path) -> list[str]:
    """What is written in the chart of a table."""
    save_table_figure(folder / "chart.svg", table, chart)
    return re.findall("<!-- (.+?) -->", (folder / "chart.svg").read_text())


@pytest.mark.parametrize("letters", [3, 45])
def test_a_legend_stays_inside_its_figure(letters: int) -> None:
    figure = new_figure(6, 3)
    axes = figure.add_subplot()
    for k in range(6):
        axes.plot([0, 1], [k, k], label=str(k) + "m" * letters)
    add_common_legend(figure, axes)
    figure.canvas.draw()
    extent = figure.legends[0].get_window_extent()
    assert extent.x0 >= 0 and extent.x1 <= figure.bbox.x1


@pytest.mark.parametrize("chart", ["line", "bars"])
def test_a_chart_names_its_variants_its_tasks_and_the_number_of_pairs(
    chart: Chart, tmp_path: Path
) -> None:
    sources = {"two-room": a_source(None, 200), "push-t": a_source(None, 100)}
    shown = texts(a_table("main", sources=sources), chart, tmp_path)
    assert {GC_IDM.label, TIME_TO_GO.label, FRONTIER[0].label, "two-room", "push-t"} <= {*shown}
    heading = " ".join(shown)
    assert "200 pairs (two-room), 100 pairs (push-t)" in heading and "hollow: paper" in heading


def test_the_frontier_has_times_along_x_and_names_the_iterations(tmp_path: Path) -> None:
    whole = a_table("frontier")
    times = {GC_IDM.label: 0.5, TIME_TO_GO.label: 0.6, FRONTIER[0].label: 5.0}
    entries = tuple(
        replace(entry, latency=latency(times.get(entry.variant, 50.0)))
        for entry in whole.entries
        if entry.point == "all pairs"
    )
    shown = texts(replace(whole, entries=entries), "frontier", tmp_path)
    assert "ms a decision" in shown and "CEM, 2 iterations" in shown
    assert "CEM, 30 iterations" in shown and GC_IDM.label in shown

"""The generated blocks of README.md and findings.md, and README's picture, from `results/`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import get_args

from goalward.core import figures
from goalward.evaluation.latency import Latency, SpeedUp
from goalward.evaluation.statistics import Rate
from goalward.experiments.claims import Decision
from goalward.experiments.experiment import (
    ALL_PAIRS,
    CEM,
    EXPORTED,
    GC_IDM,
    HYBRID,
    RANDOM,
    TASKS,
    TIME_TO_GO,
    Variant,
)
from goalward.experiments.report import markdown_table, read_report
from goalward.experiments.tables import Entry

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
PICTURE = ROOT / "docs" / "pictures" / "results.png"
BEGIN, END = "<!-- {}: written by `make docs` -->\n", "<!-- end of the {} -->\n"
PRESETS = ("cpu", "cpu-long")
BARS = {
    TIME_TO_GO: figures.BLUE,
    GC_IDM: figures.SKY,
    HYBRID: figures.GREEN,
    CEM: figures.VERMILION,
    RANDOM: figures.ORANGE,
}
TIMED = {EXPORTED: figures.GREEN, TIME_TO_GO: figures.BLUE, CEM: figures.VERMILION}
ROOM = 0.8  # of a task's place that its bars take

Row = tuple[str, str]  # task and preset


def with_block(name: str, block: Callable[[], str], text: str) -> str:
    """The text with what stands between the marks of this name replaced."""
    begin, end = BEGIN.format(name), END.format(name)
    before, rest = text.split(begin)
    return before + begin + block() + end + rest.split(end)[1]


def claims() -> str:
    """How many claims are supported, refuted and inconclusive, for every task."""
    verdicts = [v for s in read_report(RESULTS / "cpu").sections for v in s.table.verdicts]
    names: tuple[Decision, ...] = get_args(Decision)

    def counts(task: str, ours: bool) -> str:
        found = [v.verdict for v in verdicts if v.task == task and v.ours == ours]
        return ", ".join(str(found.count(name)) for name in names)

    header = ("task", f"the paper's: {', '.join(names)}", f"ours: {', '.join(names)}")
    rows = [(task, counts(task, False), counts(task, True)) for task in TASKS]
    return "\n" + "\n".join(markdown_table(header, rows)) + "\n"


def main_table() -> str:
    """Success of GC-IDM, CEM and random actions, and the ratio of decision times."""
    header = (
        *("task, preset", "GC-IDM, time-to-go", "GC-IDM, budget", "CEM", "random"),
        "CEM's decision time / GC-IDM's: torch, ONNX",
    )
    rows = []
    for row in _rows():
        own = (TIME_TO_GO, EXPORTED)
        ratios = (SpeedUp.of(_latency(row, one), _latency(row, CEM)) for one in own)
        rows.append(
            (
                f"{row[0]}, `{row[1]}`",
                *(_shown(_rate(row, one)) for one in (TIME_TO_GO, GC_IDM, CEM, RANDOM)),
                ", ".join(f"{ratio.decision:.0f}x" for ratio in ratios),
            )
        )
    return "\n" + "\n".join(markdown_table(header, rows)) + "\n"


def save_picture(path: Path = PICTURE) -> None:
    """Success with intervals, and the time of a decision, of all tasks."""
    rows = list(_rows())
    figure = figures.new_figure(*figures.panels_size(2, 2))
    figures.add_heading(
        figure,
        "GC-IDM and CEM on the same frozen world models, trained from nothing on two CPU cores",
        "200 held-out test pairs a task, 95% intervals",
    )
    success, times = figure.subplots(2, 1)
    figures.style_axes(success, "success, %")
    for k, (variant, colour) in enumerate(BARS.items()):
        rates = [_rate(row, variant) for row in rows]
        x, width = _places(len(rows), k, len(BARS))
        heights = [100 * rate.mean for rate in rates]
        below = [100 * (rate.mean - rate.low) for rate in rates]
        above = [100 * (rate.high - rate.mean) for rate in rates]
        success.bar(x, heights, width=width, color=colour, label=variant.label)
        bars = {"color": figures.INK, "linewidth": 0, "elinewidth": 0.8}
        success.errorbar(x, heights, yerr=[below, above], **bars)
    figures.style_axes(times, "milliseconds a decision; a plan is spread over its actions")
    for k, (variant, colour) in enumerate(TIMED.items()):
        x, width = _places(len(rows), k, len(TIMED))
        means = [_latency(row, variant).mean for row in rows]
        shown = times.bar(x, means, width=width, color=colour, label=variant.label)
        times.bar_label(shown, [f"{ms:.2g}" if ms < 10 else f"{ms:.0f}" for ms in means], size=7)
    times.set_yscale("log")
    times.margins(y=0.15)
    for axes in (success, times):
        axes.set_xticks(range(len(rows)), [f"{task}\n{preset}" for task, preset in rows])
        axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    figures.save_figure(figure, path)


def _places(rows: int, number: int, bars: int) -> tuple[Sequence[float], float]:
    """Where the bars of one controller are, and how wide."""
    width = ROOM / bars
    return [at + (number - (bars - 1) / 2) * width for at in range(rows)], 0.9 * width


TABLES = {
    preset: {s.table.id: s.table for s in read_report(RESULTS / preset).sections}
    for preset in PRESETS
}


def _rows() -> Iterator[Row]:
    """Tasks with the presets that they were measured with."""
    for task in TASKS:
        yield from ((task, p) for p in PRESETS if task in TABLES[p]["main"].tasks)


def _entry(row: Row, variant: Variant, table: str) -> Entry:
    """The entry of all pairs."""
    wanted = (row[0], variant.label, ALL_PAIRS)
    entries = TABLES[row[1]][table].entries
    (found,) = (e for e in entries if (e.task, e.variant, e.point) == wanted)
    return found


def _rate(row: Row, variant: Variant) -> Rate:
    return _entry(row, variant, "main").summary.rate


def _latency(row: Row, variant: Variant) -> Latency:
    found = _entry(row, variant, "exported").latency  # all three timed in one session
    assert found is not None
    return found


def _shown(rate: Rate) -> str:
    return f"{100 * rate.mean:.1f} ({100 * rate.low:.0f}-{100 * rate.high:.0f})"

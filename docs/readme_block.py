"""The README's tables and its picture, from `results/compare/` and `results/experiments/`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cost_section import decision_costs, speed_up
from markdown_table import table
from results_page import ROOT, Comparison, comparisons

from goalward.bundle import NAME as BUNDLED
from goalward.core.figures import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    SKY,
    VERMILION,
    add_heading,
    label_axes,
    new_figure,
    panels_size,
    save_figure,
    style_axes,
)
from goalward.evaluation.latency import SpeedUp
from goalward.evaluation.statistics import Rate
from goalward.experiments.experiment import method_name
from goalward.experiments.report import read_report

README, PICTURE = ROOT / "README.md", ROOT / "docs" / "pictures" / "results.png"
BEGIN, END = "<!-- {}: written by `make docs` -->\n", "<!-- end of the {} -->\n"
PRESETS = ("cpu", "cpu-long")
BATCH = "50"  # environments at once, as in the benchmark
MARK = "†"  # run with the bundled weights
DIRECT, ONNX, PAPERS, HYBRID, CEM, RANDOM = (
    *("gc-idm", "gc-idm-onnx", "gc-idm:mode=budget"),
    *("hybrid", "cem", "random"),
)
OTHER_PLANNERS = ("icem", "mppi", "gradient")
SHOWN = {DIRECT: BLUE, PAPERS: SKY, HYBRID: GREEN, CEM: VERMILION, RANDOM: ORANGE}  # in the picture
TIMED = {
    ONNX: ("GC-IDM, ONNX Runtime", GREEN),
    DIRECT: ("GC-IDM, torch", BLUE),
    CEM: (method_name(CEM), VERMILION),
}
ROOM = 0.8  # of a task's place that its bars take


def with_blocks(readme: str) -> str:
    """The README's text with tables of the present results."""
    for name, block in (("main table", main_table), ("claims", claims)):
        begin, end = BEGIN.format(name), END.format(name)
        before, rest = readme.split(begin)
        readme = before + begin + block() + end + rest.split(end)[1]
    return readme


def claims() -> str:
    """How many claims hold, of every task."""
    report = read_report(ROOT / "results" / "experiments" / PRESETS[0])
    header = ("judged on", "the paper's: hold, fail, open", "ours: hold, fail, open")
    rows = [
        [
            task,
            *(
                ", ".join(map(str, report.verdicts(ours=ours, task=task).values()))
                for ours in (False, True)
            ),
        ]
        for task in report.tasks
    ]
    return "\n".join(["", *table(header, rows), ""])


def main_table() -> str:
    """Success and times of all tasks."""
    header = (
        *("task", "preset, pairs", *map(method_name, (DIRECT, PAPERS, HYBRID, CEM))),
        *("best other planner", "random", "ms a decision: ONNX, torch, CEM"),
        "CEM / torch, CEM / ONNX",
    )
    rows = table(header, [_row(c) for c in _found()])
    return "\n".join(["", *rows, *_marked(), *_in_batches(), *_other_protocols()]) + "\n"


def _marked() -> list[str]:
    """What the mark means, and CEM's success there, which its own row does not have."""
    marked = [c for c in _found() if MARK in _best_other_planner(c)]
    if not marked:
        return []
    each = (f"{_shown(_rates(twin)[CEM])}% on {c.task}" for c in marked for twin in _twins(c))
    return [
        f"{MARK} with the bundled weights, on the same pairs: the same world model rounded to half "
        f"precision, on which CEM comes to {' and '.join(each)}.",
        "",
    ]


def _other_protocols() -> list[str]:
    """GC-IDM, told either horizon, and CEM under the other protocols."""
    lines, compared = [], (DIRECT, PAPERS, CEM)
    for protocol in ("moderate", "strict"):
        found = [c for preset in (PRESETS[0], BUNDLED) for c in comparisons(preset, protocol)]
        each = (
            f"{c.task} {' / '.join(f'{100 * rates[name].mean:.0f}' for name in compared)}%"
            for c, rates in ((c, _rates(c)) for c in sorted(found, key=lambda c: c.place))
        )
        sizes = " or ".join(str(size) for size in sorted({c.size for c in found}))
        if found:
            lines.append(f"- `{protocol}` (n = {sizes}): {', '.join(each)}")
    if not lines:
        return []
    names = " / ".join(map(method_name, compared))
    return [
        f"Under the other protocols (Two-Room: `{PRESETS[0]}`, three seeds; the rest: bundled "
        "weights, one seed, Push-T's of smooth demonstrations; intervals are in "
        f"[docs/RESULTS.md](docs/RESULTS.md)), {names} come to:",
        "",
        *lines,
        "",
    ]


def _in_batches() -> list[str]:
    """The paper's own measure of cost, where it was taken."""
    ratios = {
        cost["task"]: [speed_up(cost, BATCH, name) for name in (PAPERS, ONNX)]
        for cost in decision_costs()
    }
    if not ratios:
        return []
    each = "; ".join(
        f"{task} {torch:,.0f}x and {onnx:,.0f}x" for task, (torch, onnx) in ratios.items()
    )
    return [
        f"In batches of {BATCH} environments, as the paper times it (116 to 129x on GPUs, with "
        f"larger models), a decision of GC-IDM (budget) in torch, and of GC-IDM (time to go) by "
        f"ONNX Runtime, is cheaper than CEM's in torch by: {each} (`make bench-cost`).",
        "",
    ]


def _found() -> list[Comparison]:
    """What was compared under the paper's protocol, task by task."""
    return sorted(
        (c for preset in PRESETS for c in comparisons(preset, "paper")),
        key=lambda c: (c.place, PRESETS.index(c.preset)),
    )


def _row(comparison: Comparison) -> list[str]:
    rates = _rates(comparison)
    times = [comparison.latency(name).mean for name in (ONNX, DIRECT, CEM)]
    slow = comparison.latency(CEM)
    faster = [SpeedUp.of(comparison.latency(name), slow).decision for name in (DIRECT, ONNX)]
    return [
        comparison.task,
        f"`{comparison.preset}`, {comparison.size}",
        *(_shown(rates[name]) for name in (DIRECT, PAPERS, HYBRID, CEM)),
        _best_other_planner(comparison),
        _shown(rates[RANDOM]),
        ", ".join(f"{ms:.2g}" if ms < 10 else f"{ms:.0f}" for ms in times),
        ", ".join(f"{ratio:.0f}x" for ratio in faster),
    ]


def _best_other_planner(comparison: Comparison) -> str:
    """Where none was run, that of the bundled weights on the very same pairs, with a mark."""
    candidates = ((comparison, ""), *((twin, MARK) for twin in _twins(comparison)))
    for candidate, mark in candidates:
        rates = _rates(candidate)
        known = [(rates[name].mean, name) for name in OTHER_PLANNERS if name in rates]
        if known:
            best = max(known)[1]
            return f"{method_name(best)} {_shown(rates[best])}{mark}"
    return "not run"


def _twins(comparison: Comparison) -> list[Comparison]:
    """What was compared on the very same pairs with the bundled weights."""
    pairs = comparison.about["pairs"]
    return [c for c in comparisons(BUNDLED, "paper") if c.about["pairs"] == pairs]


def _rates(comparison: Comparison) -> dict[str, Rate]:
    return {name: s.rate for name, s in comparison.summaries(comparison.size).items()}


def _shown(rate: Rate) -> str:
    return f"{100 * rate.mean:.1f} ({100 * rate.low:.0f}-{100 * rate.high:.0f})"


def save_picture(path: Path = PICTURE) -> None:
    """Success with intervals, and the time of a decision, of all tasks."""
    found = _found()
    figure = new_figure(*panels_size(2, 2))
    add_heading(
        figure,
        "GC-IDM and CEM on the same frozen world models, trained from nothing on two CPU cores",
        "held-out test episodes, 95% intervals",
    )
    success, times = figure.subplots(2, 1)
    style_axes(success, "success, %")
    for k, (method, colour) in enumerate(SHOWN.items()):
        rates = [_rates(c)[method] for c in found]
        x, width = _places(len(found), k, len(SHOWN))
        heights = [100 * rate.mean for rate in rates]
        below = [100 * (rate.mean - rate.low) for rate in rates]
        above = [100 * (rate.high - rate.mean) for rate in rates]
        success.bar(x, heights, width=width, color=colour, label=method_name(method))
        success.errorbar(x, heights, yerr=[below, above], color=INK, linewidth=0, elinewidth=0.8)
    style_axes(times, "milliseconds a decision, a plan spread over its actions")
    for k, (method, (name, colour)) in enumerate(TIMED.items()):
        x, width = _places(len(found), k, len(TIMED))
        means = [c.latency(method).mean for c in found]
        shown = times.bar(x, means, width=width, color=colour, label=name)
        times.bar_label(shown, [f"{ms:.2g}" if ms < 10 else f"{ms:.0f}" for ms in means], size=7)
    times.set_yscale("log")
    times.margins(y=0.15)
    for axes in (success, times):
        labels = [f"{c.task}\n{c.preset}\nn = {c.size}" for c in found]
        axes.set_xticks(range(len(found)), labels)
        label_axes(axes, "")
        axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    save_figure(figure, path)


def _places(tasks: int, number: int, bars: int) -> tuple[Sequence[float], float]:
    """Where the bars of one method are, and how wide."""
    width = ROOM / bars
    return [at + (number - (bars - 1) / 2) * width for at in range(tasks)], 0.9 * width

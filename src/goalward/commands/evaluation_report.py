"""What the commands tell about an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goalward.core import console
from goalward.core.config import to_json

if TYPE_CHECKING:
    from goalward.evaluation.results import MethodSummary
    from goalward.evaluation.run import Evaluation


def evaluation_facts(found: Evaluation, pictures: Sequence[Path]) -> dict[str, Any]:
    """Everything that was measured, for a JSON document."""
    return {
        "pairs": found.pairs.id,
        "methods": [to_json(summary) for summary in found.summaries()],
        "latency": {name: to_json(value) for name, value in found.latency.items()},
        "speed_up": {name: to_json(value) for name, value in found.speed_ups().items()},
        "pictures": [str(path) for path in pictures],
    }


def show_evaluation(found: Evaluation, folder: Path, pictures: Sequence[Path]) -> None:
    """Print what was measured and where it is."""
    from goalward.evaluation.results import ALL

    summaries = found.summaries()
    config = found.pairs.metadata.config
    which = "all episodes" if config.episodes == "all" else f"{config.episodes} episodes"
    title = f"{config.task}, protocol {config.protocol}, {config.count} pairs of {which}"
    header = (
        "method",
        "pairs",
        "success",
        "difference to CEM",
        "steps",
        "jerk",
        "monotonic",
        "approach rate",
    )
    console.show_table(title, header, [_success_row(summary) for summary in summaries])
    everywhere = [summary for summary in summaries if summary.subset == ALL]
    columns = ("method", "ms a decision", "p50", "p99", "batched", "planning time")
    rows = [_time_row(found, summary) for summary in everywhere]
    console.show_table("Time from frames to actions", columns, rows)
    columns = ("method", "ms", "predictor calls", "decision", "plan", "MB")
    rows = [_cost_row(found, summary) for summary in everywhere]
    console.show_table("An episode; how much faster than CEM; memory of the process", columns, rows)
    console.show_line(
        f"results: {folder / 'results'}, pairs: {folder / 'pairs.npz'} ({found.pairs.id})"
    )
    for path in pictures:
        console.show_line(f"picture: {path}")


def _success_row(summary: MethodSummary) -> tuple[str, ...]:
    spread = "" if summary.seed_std is None else f" ±{100 * summary.seed_std:.1f}"
    seeds = "" if summary.seeds == 1 else f", {summary.seeds} seeds"
    return (
        summary.method,
        summary.subset,
        f"{summary.rate}{spread} n={summary.rate.count}{seeds}",
        "" if summary.difference is None else str(summary.difference),
        f"{summary.steps:.1f}",
        _shown(summary.jerk, "{:.3f}"),
        _shown(summary.monotonic, "{:.0%}"),
        _shown(summary.approach_rate, "{:.0%}"),
    )


def _time_row(found: Evaluation, summary: MethodSummary) -> tuple[str, ...]:
    time = found.latency[summary.method]
    shown = (time.mean, time.p50, time.p99, summary.batched_latency_ms, time.plan)
    return (summary.method, *(f"{value:,.2f}" for value in shown))


def _cost_row(found: Evaluation, summary: MethodSummary) -> tuple[str, ...]:
    time, faster = found.latency[summary.method], found.speed_ups().get(summary.method)
    return (
        summary.method,
        f"{time.episode(summary.steps, summary.plans):,.0f}",
        f"{summary.predictor_calls:,.0f}",
        "-" if faster is None else f"{faster.decision:,.1f}x",
        "-" if faster is None else f"{faster.plan:,.1f}x",
        _shown(time.memory_mb, "{:,.0f}"),
    )


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)

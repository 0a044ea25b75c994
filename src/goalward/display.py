"""How the command line prints what the verbs return: tables for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python as plain

from goalward.core import console

if TYPE_CHECKING:
    from goalward.control.checkpoint import TrainedIDM
    from goalward.control.metrics import ControllerMetrics
    from goalward.core.verify import FileCheck
    from goalward.data.episodes import Episodes
    from goalward.data.summary import EpisodesSummary
    from goalward.diagnostics import Finding
    from goalward.evaluation.results import MethodSummary, Results
    from goalward.experiments.experiment import Analysis, Experiment
    from goalward.experiments.tables import Table
    from goalward.tasks.task import Task
    from goalward.world.checkpoint import World
    from goalward.world.latents import Latents

FOUND_WRONG = 1  # exit code of a command that looks for what is wrong, and found some


def show(command: str, result: Any, *, as_json: bool) -> int:
    """Print a command's result; the exit code."""
    facts, tables = VIEWS[command]
    if as_json:
        console.show_json(facts(result))
    else:
        tables(result)
    is_wrong = FAULTS.get(command)
    return FOUND_WRONG if is_wrong is not None and is_wrong(result) else 0


def _episodes_facts(episodes: Episodes) -> dict[str, Any]:
    return {
        "file": str(episodes.path),
        "episodes": episodes.num_episodes,
        "frames": episodes.num_rows,
        "attributes": episodes.attributes,
    }


def _show_episodes(episodes: Episodes) -> None:
    rows = [
        ("episodes", f"{episodes.num_episodes:,}"),
        ("frames", f"{episodes.num_rows:,}"),
        ("file", str(episodes.path)),
    ]
    console.show_facts(f"Collected {episodes.attributes.get('task', '')}".strip(), rows)


def _show_summary(summary: EpisodesSummary) -> None:
    solved = summary.solved_pairs.items()
    rows = [
        ("task", summary.task or "unknown; name it with --task"),
        ("episodes", f"{summary.episodes:,}"),
        ("steps", f"{summary.steps:,} ({summary.shortest} to {summary.longest} an episode)"),
        *((f"solved at the start: {name}", f"{share:.1%}") for name, share in solved),
        ("contact sheet", str(summary.contact_sheet or "none: give --sheet PATH")),
        *(("training will refuse it", problem) for problem in summary.problems),
    ]
    console.show_facts(summary.path, rows)
    columns = [(c.name, str(c.shape), c.dtype) for c in summary.columns]
    console.show_table("Columns", ("name", "shape of a row", "type"), columns)
    if (action := summary.action) is None:
        return
    parts = zip(action.mean, action.std, action.low, action.high, strict=True)
    numbers = [(str(i), *(f"{value:.3f}" for value in part)) for i, part in enumerate(parts)]
    title = f"Actions ({action.rows:,} rows, mean second difference {action.roughness:.3f})"
    console.show_table(title, ("component", "mean", "std", "min", "max"), numbers)


def _world_facts(world: World) -> dict[str, Any]:
    return {"folder": str(world.folder), "id": world.id, **_report(world.folder)}


def _show_world(world: World) -> None:
    report = _report(world.folder)
    rows = [("world model", world.id), ("folder", str(world.folder))]
    if report:
        _show_prediction(report["metrics"])
        speed = f"{report['frames_per_second']:,.0f} frames/s"
        rows = [
            ("parameters", f"{report['parameters']['total']:,}"),
            ("steps", f"{report['steps']:,}"),
            ("time", f"{console.duration(report['seconds'])}, {speed}"),
            ("held-out loss", f"{report['held_out_loss']:.4f}"),
            *rows,
        ]
    console.show_facts("World model", rows)


def _show_prediction(metrics: Mapping[str, Any]) -> None:
    """Prediction errors and probes, of metrics as plain JSON."""
    rows = [
        (f"{e['steps']}", f"{e['model']:.4f}", f"{e['copy_last']:.4f}", _ratio(e))
        for e in metrics["prediction"]
    ]
    header = ("model steps", "error", "error of copying", "ratio")
    console.show_table("Latent prediction on held-out episodes (mean squared error)", header, rows)
    scores = [
        (kind, s["target"], f"{s['rmse']:.3g} {s['unit']}", f"{s['r2']:.4f}")
        for kind in ("linear", "mlp")
        for s in metrics["probes"][kind]
    ]
    if metrics.get("outcomes"):
        rows = [
            (e["actions"], f"{e['model']:.4f}", f"{e['copy_first']:.4f}", _ratio(e, "copy_first"))
            for e in metrics["outcomes"]
        ]
        title = "Prediction of what executed actions lead to (mean squared error)"
        console.show_table(title, ("actions", "error", "error of copying", "ratio"), rows)
    if scores:
        title = "True state read from latents of held-out episodes"
        console.show_table(title, ("probe", "of", "RMSE", "R²"), scores)


def _ratio(error: Mapping[str, Any], copying: str = "copy_last") -> str:
    """An error over that of copying; nothing where copying has none."""
    return f"{error['model'] / error[copying]:.3f}" if error[copying] else "-"


def _show_latents(latents: Latents) -> None:
    std = latents.metadata.std
    rows = [
        ("frames", f"{latents.metadata.rows:,} of {len(latents.lengths):,} episodes"),
        ("latent", f"{len(std)} numbers, standard deviations {min(std):.2g} to {max(std):.2g}"),
        ("world model", latents.metadata.world_id),
        ("folder", str(latents.folder)),
    ]
    console.show_facts("Embedded", rows)


def _model_facts(model: TrainedIDM) -> dict[str, Any]:
    return {"file": str(model.path), **_report(model.path and model.path.parent)}


def _show_model(model: TrainedIDM) -> None:
    report = _report(model.path and model.path.parent)
    _show_errors(report["errors"], "Actions on validation episodes")
    _show_time_to_go(report["time_to_go"])
    parts = ", ".join(f"{name} {number:,}" for name, number in report["parameters"].items())
    speed = f"{report['examples_per_second']:,.0f} examples/s"
    rows = [
        ("parameters", parts),
        ("data", f"{report['train_rows']:,} rows of {report['train_episodes']:,} episodes"),
        ("steps", f"{report['steps']:,}, the best {report['best_step']:,}"),
        ("time", f"{console.duration(report['seconds'])}, {speed}"),
        ("controller", str(model.path)),
    ]
    console.show_facts("Trained", rows)


def _show_metrics(found: ControllerMetrics) -> None:
    metrics = plain(found)
    _show_errors(metrics["errors"], "Actions on held-out episodes")
    _show_time_to_go(metrics["time_to_go"])
    if metrics["noise"]:
        header = ("noise, standard deviations", "mean squared error", "cosine", "R²")
        rows = [(f"{n['sigma']:g}", *_numbers(n["error"])) for n in metrics["noise"]]
        console.show_table("Actions with noise on both latents", header, rows)


def _show_errors(errors: Sequence[Mapping[str, Any]], title: str) -> None:
    header = ("steps to the goal", "mean squared error", "cosine", "R²", "examples")
    rows = [(e["horizons"], *_numbers(e), f"{e['count']:,}") for e in errors]
    console.show_table(title, header, rows)


def _numbers(error: Mapping[str, Any]) -> tuple[str, str, str]:
    return f"{error['mse']:.6f}", f"{error['cosine']:.4f}", f"{error['r2']:.4f}"


def _show_time_to_go(metrics: Mapping[str, Any] | None) -> None:
    if metrics is None:
        return
    rows = [
        (f"{c['quantile']:g}", f"{c['expected']:.1%}", f"{c['observed']:.1%}")
        for c in metrics["coverage"]
    ]
    median, mean = metrics["median_error"], metrics["mean_steps"]
    title = f"Time-to-go: median error {median:.1f} steps (mean distance {mean:.1f})"
    console.show_table(title, ("quantile", "expected within it", "observed"), rows)


def _file_facts(path: Path) -> dict[str, Any]:
    return {"file": str(path), "bytes": path.stat().st_size}


def _show_file(path: Path) -> None:
    console.show_facts("Written", [("file", f"{path}, {path.stat().st_size / 1e6:.1f} MB")])


def _report(folder: Path | None) -> dict[str, Any]:
    """What a training wrote about itself; nothing for a model that was not trained here."""
    from goalward.core.config import read_json

    path = None if folder is None else folder / "metrics.json"
    return read_json(path) if path is not None and path.is_file() else {}


def _results_facts(results: Results) -> dict[str, Any]:
    return {
        "folder": str(results.folder),
        "pairs": results.pairs.id,
        "controllers": plain(results.summary()),
        "latency": plain(results.latency),
        "speed_up": plain(results.speed_ups()),
    }


def _show_results(results: Results) -> None:
    summaries, config = results.summary(), results.pairs.metadata.config
    which = "all episodes" if config.split == "all" else f"{config.split} episodes"
    title = f"{config.task}, protocol {config.protocol}, {config.count} pairs of {which}"
    header = ("controller", "pairs", "success (95% interval)", "difference to CEM", "steps", "jerk")
    console.show_table(title, header, [_success_row(summary) for summary in summaries])
    everywhere = [s for s in summaries if s.subset == "all" and s.method in results.latency]
    if everywhere:
        rows = [_latency_row(results, summary) for summary in everywhere]
        header = ("controller", "ms a decision", "p50", "p99", "ms a plan", "faster than CEM")
        console.show_table("Latency from frames to actions, batch size 1", header, rows)
    console.show_line(f"results: {results.folder} (pairs {results.pairs.id})")


def _success_row(summary: MethodSummary) -> tuple[str, ...]:
    spread = "" if summary.seed_std is None else f" ±{100 * summary.seed_std:.1f}"
    seeds = "" if summary.seeds == 1 else f", {summary.seeds} seeds"
    return (
        summary.method,
        summary.subset,
        f"{summary.rate}{spread} n={summary.rate.count}{seeds}",
        "" if summary.difference is None else str(summary.difference),
        f"{summary.steps:.1f}",
        "-" if summary.jerk is None else f"{summary.jerk:.3f}",
    )


def _latency_row(results: Results, summary: MethodSummary) -> tuple[str, ...]:
    time, faster = results.latency[summary.method], results.speed_ups().get(summary.method)
    shown = (f"{value:,.2f}" for value in (time.mean, time.p50, time.p99, time.plan))
    return (summary.method, *shown, "-" if faster is None else f"{faster.decision:,.1f}x")


def _show_reproduced(tables: Sequence[Table]) -> None:
    from goalward.experiments.report import Section

    for table in tables:
        section = Section(table=table, folder=Path())
        for grid in (*section.grids, *section.claims):
            for part in grid.split():
                console.show_table(table.title, part.header, part.rows)


def _show_tasks(tasks: Sequence[Task]) -> None:
    for task in tasks:
        facts = task.describe()
        steps = f"{task.episode_steps} steps an episode"
        rows = [
            ("environment", facts["env_id"]),
            ("action", f"{task.action_dim} numbers in [-1, 1]"),
            ("demonstrators", f"{', '.join(task.demonstrators)} ({steps})"),
            *((f"success: {name}", text) for name, text in facts["protocols"].items()),
        ]
        console.show_facts(f"{task.name}: {task.summary}", rows)


def _show_experiments(found: Sequence[Experiment | Analysis]) -> None:
    rows = [(e.id, e.title, e.paper) for e in found]
    console.show_table("Experiments", ("id", "title", "paper"), rows)


def _show_checks(checks: Sequence[FileCheck]) -> None:
    rows = [("damaged" if c.problem else "ok", str(c.path), c.problem or "") for c in checks]
    console.show_table("Files", ("", "file", "problem"), rows)


def _finding_facts(findings: Sequence[Finding]) -> dict[str, Any]:
    return {"ok": all(f.ok for f in findings), "findings": plain(findings)}


def _show_findings(findings: Sequence[Finding]) -> None:
    rows = [("ok" if f.ok else "missing", f.name, f.found, "" if f.ok else f.fix) for f in findings]
    console.show_table("This machine", ("", "what", "found", "fix"), rows)


View = tuple[Callable[[Any], Any], Callable[[Any], None]]  # gives JSON, prints tables
VIEWS: dict[str, View] = {
    "collect": (_episodes_facts, _show_episodes),
    "inspect": (plain, _show_summary),
    "train-world": (_world_facts, _show_world),
    "validate-world": (plain, lambda found: _show_prediction(plain(found))),
    "convert-world": (_world_facts, _show_world),
    "embed": (lambda z: {"folder": str(z.folder), "id": z.id, **plain(z.metadata)}, _show_latents),
    "train": (_model_facts, _show_model),
    "validate": (plain, _show_metrics),
    "export": (_file_facts, _show_file),
    "evaluate": (_results_facts, _show_results),
    "baselines": (_results_facts, _show_results),
    "run": (_results_facts, _show_results),
    "reproduce": (plain, _show_reproduced),
    "list-tasks": (lambda tasks: [task.describe() for task in tasks], _show_tasks),
    "list-experiments": (
        lambda found: [{"id": e.id, "title": e.title, "paper": e.paper} for e in found],
        _show_experiments,
    ),
    "report": (_file_facts, _show_file),
    "verify": (plain, _show_checks),
    "doctor": (_finding_facts, _show_findings),
}
FAULTS: dict[str, Callable[[Any], bool]] = {  # whether a command has found what is wrong
    "verify": lambda checks: any(check.problem for check in checks),
    "doctor": lambda findings: not all(finding.ok for finding in findings),
}

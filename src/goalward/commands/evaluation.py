"""Commands that compare methods on the same pairs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from goalward import console, defaults
from goalward.commands.base import AsJson, Device, NumThreads, NumWorkers, TaskName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from goalward.evaluate.evaluation import Evaluation
    from goalward.evaluate.summary import MethodSummary


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Compare methods on the same start and goal pairs; run again to resume or to add some."""

    task: TaskName
    """A task: see `goalward tasks`."""
    out: Path
    """Folder to keep the pairs and every episode's row in."""
    controller: tuple[str, ...] = ("gc-idm", "random")
    """Methods: gc-idm, cem, icem, mppi, gradient, hybrid, interpolation, random, zero; settings
    follow a colon, as in gc-idm:mode=budget. A controller's path stands for gc-idm with it."""
    model: tuple[Path, ...] = ()
    """Controllers that `goalward train` wrote, for the methods that need one; with several, each is
    run with a seed of its own."""
    pairwise: Annotated[Path | None, arg(help_behavior_hint="(default: none)")] = None
    """A pairwise model, for interpolation."""
    episodes: Annotated[Path | None, arg(help_behavior_hint="(default: the folder's pairs)")] = None
    """Episode file to draw the pairs from."""
    pairs: int = defaults.PAIRS
    """Start and goal pairs."""
    protocol: defaults.ProtocolName = "paper"
    """When an episode counts as a success; see `goalward tasks`."""
    budget: int = defaults.BUDGET
    """Steps an episode may take."""
    offset: int = defaults.GOAL_OFFSET
    """Steps between start and goal in the recording."""
    in_distribution: bool = False
    """Draw pairs from all episodes, training ones included, as the paper does."""
    seed: int = defaults.SEED
    """Seed of the pairs."""
    seeds: tuple[int, ...] = (defaults.SEED,)
    """Seeds of the methods that draw at random."""
    environments: int = defaults.ENVIRONMENTS
    """Environments that run side by side."""
    workers: NumWorkers = None
    """Simulator processes; the result does not depend on their number."""
    device: Device = "auto"
    threads: NumThreads = None
    """CPU threads of the controllers."""
    video: tuple[int, ...] = ()
    """Pairs, by their numbers, to show: a filmstrip and a GIF of each, all methods side by side."""
    as_json: AsJson = False
    """Print one JSON document and no progress."""

    def run(self) -> int:
        """Evaluate and print the table."""
        from goalward.commands.evaluation_setup import evaluation_runs, require_split
        from goalward.config import to_json
        from goalward.devices import use_threads
        from goalward.evaluate.evaluation import evaluate, prepare_pairs
        from goalward.evaluate.frozen_pairs import PairsConfig
        from goalward.evaluate.show import save_comparison
        from goalward.tasks import get_task
        from goalward.workers import usable_cpus

        use_threads(self.threads)
        task = get_task(self.task)
        config = PairsConfig(
            task=task.name,
            protocol=self.protocol,
            count=self.pairs,
            offset=self.offset,
            seed=self.seed,
            episodes="all" if self.in_distribution else "test",
        )
        runs, observer = evaluation_runs(
            task,
            self.controller,
            models=self.model,
            pairwise=self.pairwise,
            seeds=self.seeds,
            device=self.device,
        )
        if not self.in_distribution:
            paths = [*self.model, *(Path(c) for c in self.controller if Path(c).exists())]
            require_split(paths, config.split)
        pairs = prepare_pairs(self.out, config, self.episodes)
        total = len(runs) * len(pairs.attempts)
        bar = console.progress(f"evaluate {task.name}", total, unit="episodes", quiet=self.as_json)
        with bar as update:
            found = evaluate(
                self.out,
                pairs,
                runs,
                observer=observer,
                budget=self.budget,
                environments=self.environments,
                workers=usable_cpus() if self.workers is None else self.workers,
                on_progress=update,
            )
        pictures = save_comparison(self.out, pairs, runs, shown=self.video, budget=self.budget)
        summaries = found.summaries()
        if self.as_json:
            latency = {name: to_json(value) for name, value in found.latency.items()}
            facts = [to_json(summary) for summary in summaries]
            shown = [str(path) for path in pictures]
            console.show_json(
                {"pairs": pairs.id, "methods": facts, "latency": latency, "pictures": shown}
            )
            return 0
        show_evaluation(found, summaries, self.out)
        for path in pictures:
            console.show_line(f"picture: {path}")
        return 0


def show_evaluation(found: Evaluation, summaries: Sequence[MethodSummary], folder: Path) -> None:
    """Print what was measured and where it is."""
    config = found.pairs.card.config
    which = "all episodes" if config.episodes == "all" else f"{config.episodes} episodes"
    title = f"{config.task}, protocol {config.protocol}, {config.count} pairs of {which}"
    header = ("method", "pairs", "success", "less CEM's", "steps", "jerk", "monotone")
    rows = [
        (
            s.method,
            s.subset,
            f"{s.rate} n={s.rate.count}" + (f" ±{100 * s.seed_std:.1f}" if s.seed_std else ""),
            "" if s.versus is None else str(s.versus),
            f"{s.steps:.1f}",
            _shown(s.jerk, "{:.3f}"),
            _shown(s.monotone, "{:.0%}"),
        )
        for s in summaries
    ]
    console.show_table(title, header, rows)
    header = ("method", "ms a decision, alone", "p50", "p99", "ms a plan", "in batches", "calls")
    by_name = {s.method: s for s in summaries if s.subset == "all"}
    times = [
        (
            name,
            f"{t.mean:.2f}",
            f"{t.p50:.2f}",
            f"{t.p99:.2f}",
            f"{t.longest:.1f}",
            f"{by_name[name].decision_ms:.2f}",
            f"{by_name[name].predictor_calls:,.0f}",
        )
        for name, t in found.latency.items()
    ]
    console.show_table("Time of a decision; predictor calls an episode", header, times)
    console.show_line(f"rows: {folder / 'rows'}, pairs: {folder / 'pairs.npz'} ({found.pairs.id})")


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)

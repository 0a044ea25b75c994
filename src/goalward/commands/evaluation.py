"""Commands that compare methods on the same pairs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from goalward import defaults
from goalward.commands.base import AsJson, Device, NumThreads, NumWorkers, TaskName
from goalward.commands.evaluation_report import evaluation_facts, show_evaluation
from goalward.core import console


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Compare methods on the same start and goal pairs; run again to resume or to add some."""

    task: TaskName
    """A task: see `goalward tasks`."""
    out: Annotated[
        Path | None, arg(metavar="PATH", help_behavior_hint="(default: runs/TASK-evaluation)")
    ] = None
    """Folder to keep the pairs and every episode's row in."""
    controller: tuple[str, ...] = ("gc-idm", "random")
    """Methods: gc-idm, cem, icem, mppi, gradient, hybrid, interpolation, random, zero; settings
    follow a colon, as in gc-idm:mode=budget. A controller's path (also an exported one's) stands
    for gc-idm with it, and so does `bundled`: the controller that comes with goalward."""
    model: tuple[Path, ...] = ()
    """Controllers that `goalward train` wrote, for the methods that need one; with several, each is
    run with a seed of its own."""
    pairwise: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="(default: none)")] = (
        None
    )
    """A pairwise model, for interpolation."""
    episodes: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="(default: none)")] = (
        None
    )
    """Episode file to draw the pairs from, unless the folder has some of it; without it, those that
    come with goalward."""
    pairs: int = defaults.PAIRS
    """Start and goal pairs."""
    protocol: str = "paper"
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
    """Seeds of the methods that draw at random; others are run once."""
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
        from goalward.commands.evaluation_setup import evaluation_runs, pairs_to_compare_on
        from goalward.core.machine import usable_cpus, use_threads
        from goalward.evaluation.pairs import PairsConfig
        from goalward.evaluation.run import evaluate
        from goalward.evaluation.video import save_comparison
        from goalward.tasks import get_task

        use_threads(self.threads)
        task = get_task(self.task)
        workers = usable_cpus() if self.workers is None else self.workers
        self._require_usable(workers)
        out = Path("runs", f"{task.name}-evaluation") if self.out is None else self.out
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
            split=None if self.in_distribution else config.split,
        )
        pairs = pairs_to_compare_on(out, config, self.episodes)
        total = len(runs) * len(pairs.attempts)
        bar = console.progress(f"evaluate {task.name}", total, unit="episodes", quiet=self.as_json)
        with bar as update:
            found = evaluate(
                out,
                pairs,
                runs,
                observer=observer,
                budget=self.budget,
                environments=self.environments,
                workers=workers,
                on_progress=update,
            )
        pictures = save_comparison(out, pairs, runs, shown=self.video, budget=self.budget)
        if self.as_json:
            console.show_json(evaluation_facts(found, pictures))
        else:
            show_evaluation(found, out, pictures)
        return 0

    def _require_usable(self, workers: int) -> None:
        """Refuse what would be refused later, when pairs are drawn or episodes have been run."""
        from goalward.control.controller import MOST_STEPS
        from goalward.core.checks import whole_number
        from goalward.engines.local import require_workers
        from goalward.evaluation.video import require_pairs

        require_workers(workers)
        whole_number(self.budget, "budget", most=MOST_STEPS)
        whole_number(self.environments, "environments")
        require_pairs(self.video, self.pairs)

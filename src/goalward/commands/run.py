"""The command that does everything: from nothing to a comparison of methods."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from goalward import defaults
from goalward.commands.base import AsJson, Device, NumThreads, NumWorkers, TaskName
from goalward.commands.evaluation_report import evaluation_facts, show_evaluation
from goalward.core import console
from goalward.core.console import Update

if TYPE_CHECKING:
    from goalward.evaluation.run import Evaluation
    from goalward.pipeline import Pipeline

METHODS = ("gc-idm", "cem", "random")
STAGES = ("collect", "train-world", "embed", "train", "evaluate")
EVALUATION = "evaluation"


@dataclass(frozen=True, kw_only=True)
class RunTask:
    """From nothing to the table: collect, train-world, embed, train, evaluate; resumable."""

    task: TaskName
    """A task: see `goalward tasks`."""
    out: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="(default: runs/TASK)")] = (
        None
    )
    """Folder for the stages: episodes, world, latents, controller, evaluation."""
    preset: defaults.PresetName = "cpu"
    """Size and length of everything."""
    pairs: int = defaults.QUICK_PAIRS
    """Held-out start and goal pairs."""
    controller: tuple[str, ...] = METHODS
    """Methods to compare; see `goalward evaluate`."""
    seed: int = defaults.SEED
    """Seed of every stage."""
    workers: NumWorkers = None
    """Simulator processes; the result does not depend on their number."""
    device: Device = "auto"
    threads: NumThreads = None
    """CPU threads."""
    as_json: AsJson = False
    """Print one JSON document and no progress."""

    def run(self) -> int:
        """Run every stage that is missing, and print the table."""
        from goalward.commands.evaluation_setup import require_methods
        from goalward.core.machine import choose_device, use_threads
        from goalward.tasks import get_task

        require_methods(self.controller, get_task(self.task))
        choose_device(self.device)
        use_threads(self.threads)
        folder = Path("runs", self.task) if self.out is None else self.out
        found, pictures = self._compare(self._pipeline(folder))
        if self.as_json:
            facts = evaluation_facts(found, pictures)
            console.show_json({"folder": str(folder), **facts})
            return 0
        show_evaluation(found, folder / EVALUATION, pictures)
        console.show_line(f"world model: {folder / 'world'}")
        console.show_line(f"controller: {folder / 'controller' / 'best.safetensors'}")
        return 0

    def _pipeline(self, folder: Path) -> Pipeline:
        from goalward.core.machine import usable_cpus
        from goalward.pipeline import Pipeline
        from goalward.tasks import get_task

        return Pipeline(
            task=get_task(self.task),
            preset=self.preset,
            folder=folder,
            seed=self.seed,
            device=self.device,
            workers=usable_cpus() if self.workers is None else self.workers,
            bar=self._bar,
        )

    def _compare(self, pipeline: Pipeline) -> tuple[Evaluation, list[Path]]:
        """Train, and evaluate every method on the same pairs."""
        from goalward.commands.evaluation_setup import evaluation_runs
        from goalward.evaluation.pairs import PairsConfig
        from goalward.evaluation.run import evaluate, prepare_pairs
        from goalward.evaluation.video import save_comparison

        task, folder = pipeline.task, pipeline.folder / EVALUATION
        wanted = PairsConfig(
            task=task.name,
            count=self.pairs,
            seed=self.seed,
            split=pipeline.world_config().split,
        )
        pairs = prepare_pairs(folder, wanted, pipeline.episodes())  # too few: told before training
        runs, observer = evaluation_runs(
            task,
            self.controller,
            models=[pipeline.controller()],
            pairwise=None,
            seeds=[self.seed],
            device=self.device,
            split=wanted.split,
        )
        with self._bar("evaluate", len(runs) * self.pairs, "episodes") as update:
            found = evaluate(
                folder,
                pairs,
                runs,
                observer=observer,
                workers=pipeline.workers,
                on_progress=update,
            )
        return found, save_comparison(folder, pairs, runs)

    def _bar(self, stage: str, total: int, unit: str) -> AbstractContextManager[Update]:
        title = f"{STAGES.index(stage) + 1}/{len(STAGES)} {stage} {self.task}"
        return console.progress(title, total, unit=unit, quiet=self.as_json)

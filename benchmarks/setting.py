"""Where the benchmarks of trained models keep what they make."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from goalward.core.console import Update, progress
from goalward.core.machine import usable_cpus
from goalward.defaults import PresetName
from goalward.pipeline import Pipeline
from goalward.tasks import get_task

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PICTURES = ROOT / "results", ROOT / "docs" / "pictures"
RUNS = ROOT / "runs" / "bench"


def bench_pipeline(task: str, preset: PresetName, runs: Path) -> Pipeline:
    """A task's stages, found again if an earlier benchmark made them."""

    def bar(stage: str, total: int, unit: str) -> AbstractContextManager[Update]:
        return progress(f"{stage} {task}", total, unit=unit, quiet=False)

    return Pipeline(
        task=get_task(task),
        preset=preset,
        folder=runs / preset / task,
        workers=usable_cpus(),
        bar=bar,
    )

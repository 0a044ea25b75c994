"""Put trained controllers and their pairs into the package: `goalward/bundled/`.

Needs what `benchmarks.compare` made, under the same run folder.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.setting import RUNS, bench_pipeline
from goalward import defaults
from goalward.bundle import FOLDER
from goalward.control.checkpoint import in_half_precision, load_trained_idm, save_trained_idm
from goalward.core.console import show_line
from goalward.defaults import PresetName
from goalward.evaluation.pairs import PairsConfig
from goalward.evaluation.run import PAIRS
from goalward.tasks import TASKS


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to bundle."""

    preset: PresetName = "cpu-long"
    """The preset that it was trained with."""
    tasks: tuple[str, ...] = TASKS.names()
    """The tasks."""
    seed: int = 42
    """The controllers' seed."""
    runs: Path = RUNS
    """Where weights and pairs are."""


def bundle(task: str, arguments: Arguments) -> Path:
    """One task's files; returns the controller's."""
    pipeline = bench_pipeline(task, arguments.preset, arguments.runs)
    model = load_trained_idm(pipeline.folder / f"controller-{arguments.seed}")
    drawn = PairsConfig(task=task, count=defaults.PAIRS, split=pipeline.world_config().split)
    path = FOLDER / f"{task}.safetensors"
    FOLDER.mkdir(exist_ok=True)
    save_trained_idm(path, in_half_precision(model), half=True)
    shutil.copy(pipeline.pairs_folder(drawn) / PAIRS, FOLDER / f"{task}.npz")
    return path


if __name__ == "__main__":
    given = tyro.cli(Arguments)
    for name in given.tasks:
        written = bundle(name, given)
        show_line(f"wrote {written}, {written.stat().st_size / 1e6:.1f} MB")

"""What a decision costs, alone and in batches as the paper times it: writes `results/cost/`.

Uses the weights that come with the package. All methods of a task are timed in one run, with
nothing else running; the ratios are what matters.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro

from benchmarks.compare import export
from benchmarks.setting import RESULTS
from goalward import defaults
from goalward.bundle import bundled_pairs, controller_path
from goalward.commands.evaluation_setup import evaluation_runs
from goalward.core.config import to_json, write_json
from goalward.core.console import show_line, show_table
from goalward.core.machine import git_revision, machine
from goalward.evaluation.cells import ControllerSpec
from goalward.evaluation.latency import WARM_UP, Latency, SpeedUp, measure_latency
from goalward.evaluation.run import TIMED_DECISIONS
from goalward.evaluation.specs import REFERENCE, onnx_method
from goalward.planning.mpc import MPCConfig
from goalward.tasks import TASKS, get_task

SEED = 42
WANTED = 100.0  # times cheaper than CEM, as in the paper


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to time."""

    tasks: tuple[str, ...] = TASKS.names()
    """The tasks, one after the other."""
    methods: tuple[str, ...] = ("gc-idm", "gc-idm:mode=budget", REFERENCE)
    """Methods, beside GC-IDM by ONNX Runtime."""
    batches: tuple[int, ...] = (1, defaults.QUICK_PAIRS)
    """Environments at once; the paper has 50 and 200."""


def measure(task: str, arguments: Arguments) -> dict[str, Any]:
    """Times by batch and method."""
    runs, _ = evaluation_runs(
        get_task(task),
        arguments.methods,
        models=[controller_path(task)],
        pairwise=None,
        seeds=[SEED],
        device="auto",
        split=None,
    )
    with tempfile.TemporaryDirectory() as folder:
        exported, _ = onnx_method(export(controller_path(task), Path(folder)))
        methods = [exported, *(run.method for run in runs)]
        times = {str(size): _times(task, methods, size) for size in arguments.batches}
    return {
        "task": task,
        "latency": times,
        "machine": machine(),
        "torch": torch.__version__,
        "git_revision": git_revision(),
    }


def _times(task: str, methods: Sequence[ControllerSpec], size: int) -> dict[str, Any]:
    frames = np.stack([attempt.goal_frame for attempt in bundled_pairs(task, size).attempts])
    # Whole plans: a batch of them takes a minute, so it is timed once, warm from the time alone.
    alone = size == 1
    decisions = TIMED_DECISIONS if alone else MPCConfig().receding_horizon * defaults.FRAMESKIP
    return {
        method.name: to_json(
            measure_latency(
                lambda method=method: method.make(SEED),  # type: ignore[misc]
                frames,
                decisions=decisions,
                budget=defaults.BUDGET,
                warm_up=WARM_UP if alone or method.name != REFERENCE else 0,
            )
        )
        for method in methods
    }


def report(found: dict[str, Any]) -> int:
    """Print times and ratios; returns 1 if GC-IDM in the largest batch is below the bar."""
    rows, ratios = [], []
    for size, methods in found["latency"].items():
        slow = Latency(**methods[REFERENCE])
        for name, values in methods.items():
            own = Latency(**values)
            ratio = SpeedUp.of(own, slow).decision
            rows.append((size, name, f"{own.mean:.3f}", f"{ratio:,.0f}x"))
            if name != REFERENCE and int(size) == max(map(int, found["latency"])):
                ratios.append(ratio)
    header = ("environments", "method", "ms a decision", "faster than CEM")
    show_table(f"Cost of a decision, {found['task']}", header, rows)
    if min(ratios) >= WANTED:
        return 0
    show_line(f"below {WANTED:g}x in the largest batch: {min(ratios):.0f}x")
    return 1


if __name__ == "__main__":
    given, code = tyro.cli(Arguments), 0
    for task_name in given.tasks:
        result = measure(task_name, given)
        path = RESULTS / "cost" / f"{task_name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, result)
        code |= report(result)
    sys.exit(code)

"""Measures experiments of the catalog and stores their tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path

from goalward import defaults
from goalward.core.machine import choose_device, this_provenance, usable_cpus, use_threads
from goalward.defaults import ExperimentPreset
from goalward.evaluation.simulators import SimulatorPools
from goalward.experiments.catalog import find_experiments
from goalward.experiments.experiment import TIME_TO_GO, Analysis, Experiment, RunSpec
from goalward.experiments.run import OnState, Outcome, do_runs
from goalward.experiments.runner import Runner
from goalward.experiments.tables import (
    Table,
    measured_table,
    merged,
    require_compatible,
    save_table,
)
from goalward.pipeline import Bar
from goalward.presets import learns_time_to_go
from goalward.tasks import get_task


def reproduce(
    ids: Sequence[str],
    *,
    preset: ExperimentPreset,
    tasks: Sequence[str],
    pairs: int | None,
    runs: Path,
    out: Path,
    device: str,
    workers: int | None,
    jobs: int | None,
    threads: int | None,
    bar: Bar,
    on_state: OnState | None,
) -> list[Table]:
    """Measure experiments and analyses; what is done already is used.

    Args:
        ids: Their names (none: all that the preset allows).
        preset: Size and length of everything that is trained, or `bundled`.
        tasks: Only these tasks (none: all).
        pairs: Start and goal pairs of every run (None: the preset's).
        runs: Folder of everything that is trained and run.
        out: Folder of the tables, by preset.
        device: Where to compute.
        workers: Simulator processes (None: the CPUs).
        jobs: Trainings and runs at a time (None: the CPUs, 1 with a GPU).
        threads: CPU threads.
        bar: Shows the progress of a stage.
        on_state: Called when a job begins or is done.

    Returns:
        The tables, in the order of the catalog.

    Raises:
        ValueError: something is unknown or impossible, or a job failed; tables that do not need
            the failed job are written.
    """
    chosen = _chosen(ids, preset, tasks)
    if pairs is None:
        pairs = defaults.QUICK_PAIRS if preset == "bundled" else defaults.PRESET_PAIRS[preset]
    folder = out / preset
    this_provenance()  # read before tables may change the checkout
    require_compatible(folder, chosen, pairs)
    folder.mkdir(parents=True, exist_ok=True)  # fails before the work, not after it
    use_threads(threads)
    workers = usable_cpus() if workers is None else workers
    has_gpu = choose_device(device).type != "cpu"
    tables = []
    with SimulatorPools(workers) as pools:
        runner = Runner(
            preset=preset,
            runs=runs,
            pairs=pairs,
            device=device,
            workers=workers,
            bar=bar,
            pools=pools,
        )
        outcome = do_runs(
            runner,
            # One task after the other, so that simulators are shared.
            sorted(_specs(chosen, Experiment), key=lambda spec: (spec.task, spec.protocol)),
            prepared=_specs(chosen, Analysis),
            jobs=(1 if has_gpu else usable_cpus()) if jobs is None else jobs,
            threads=threads,
            on_state=on_state,
        )
        for one in chosen:
            ready = (task for task in one.tasks if _is_ready(runner, one, task, outcome))
            parts = [measured_table(runner, one, task, outcome.results, folder) for task in ready]
            if parts and not (table := reduce(merged, parts)).is_empty:
                tables.append(save_table(folder, table))
    if outcome.failures:
        raise ValueError("; ".join(f"{job}: {why}" for job, why in outcome.failures.items()))
    return tables


def _chosen(
    ids: Sequence[str], preset: ExperimentPreset, tasks: Sequence[str]
) -> list[Experiment | Analysis]:
    """What the preset allows, with these tasks only (none: all of them)."""
    chosen = find_experiments(ids)
    if preset == "bundled":
        impossible = [one.id for one in chosen if not one.bundled]
        if ids and impossible:
            raise ValueError(
                f"preset bundled trains nothing, which {', '.join(impossible)} needs; give "
                "another --preset"
            )
        chosen = [
            replace(one, seeds=one.seeds[:1]) if isinstance(one, Experiment) else one
            for one in chosen
            if one.id not in impossible
        ]
    elif not learns_time_to_go(preset):
        chosen = [one.without(TIME_TO_GO) if isinstance(one, Experiment) else one for one in chosen]
    if not tasks:
        return chosen
    wanted = [get_task(task).name for task in tasks]
    for task in wanted:
        if not any(task in one.tasks for one in chosen):
            raise ValueError(f"none of these experiments is about task {task}")
    kept = (replace(one, tasks=tuple(t for t in one.tasks if t in wanted)) for one in chosen)
    return [one for one in kept if one.tasks]


def _specs(chosen: Sequence[Experiment | Analysis], kind: type) -> list[RunSpec]:
    """Every run that the experiments, or the analyses, use."""
    found = (
        spec
        for one in chosen
        if isinstance(one, kind)
        for task in one.tasks
        for spec in one.uses(task)
    )
    return [*dict.fromkeys(found)]


def _is_ready(runner: Runner, one: Experiment | Analysis, task: str, outcome: Outcome) -> bool:
    """Whether no job failed that the task needs."""
    specs = [*map(runner.canonical, one.uses(task))]
    return not any(job.is_for(spec) for job in outcome.failures for spec in specs)

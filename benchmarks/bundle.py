"""Put trained controllers and their pairs into the package: `goalward/bundled/`.

It uses what `goalward reproduce` trained in the run folder, and trains what is missing there.
"""

from __future__ import annotations

from pathlib import Path

import tyro

from goalward import defaults
from goalward.bundle import FOLDER
from goalward.control.checkpoint import load_trained_idm, save_trained_idm
from goalward.core.console import show_line
from goalward.core.machine import usable_cpus
from goalward.defaults import PresetName
from goalward.evaluation.pairs import PAIRS, save_pairs
from goalward.experiments.experiment import SEEDS, TASKS, TIME_TO_GO, RunSpec
from goalward.experiments.runner import Runner


def main(
    preset: PresetName = "cpu-long",
    tasks: tuple[str, ...] = TASKS,
    pairs: int = defaults.PAIRS,
    seed: int = SEEDS[0],
    run_dir: Path = Path("runs", "experiments"),
    out: Path = FOLDER,
) -> None:
    """Write the controller and the pairs of each task.

    Args:
        preset: Size and length of the training.
        tasks: Tasks to bundle.
        pairs: Number of start and goal pairs.
        seed: Seed of the controllers.
        run_dir: Folder of everything that was trained, as of `goalward reproduce`.
        out: Folder to write.
    """
    runner = Runner(preset=preset, runs=run_dir, pairs=pairs, workers=usable_cpus())
    out.mkdir(parents=True, exist_ok=True)
    for task in tasks:
        spec = RunSpec(task=task, controller=TIME_TO_GO.controller, seed=seed)
        path = out / f"{task}.safetensors"
        save_trained_idm(path, load_trained_idm(runner.trained(spec)), half=True)
        save_pairs(out / f"{task}.{PAIRS}", runner.pairs_of(spec))
        show_line(f"wrote {path}, {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    tyro.cli(main)

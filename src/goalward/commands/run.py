"""The command that does everything: from nothing to a comparison of methods."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from goalward import console, defaults
from goalward.commands.base import AsJson, Device, NumThreads, NumWorkers, TaskName
from goalward.commands.evaluation import show_evaluation

if TYPE_CHECKING:
    from goalward.evaluate.evaluation import Evaluation

METHODS = ("gc-idm", "cem", "random")


@dataclass(frozen=True, kw_only=True)
class RunTask:
    """From nothing to the table: collect, train-world, embed, train, evaluate; resumable."""

    task: TaskName
    """A task: see `goalward tasks`."""
    out: Annotated[Path | None, arg(help_behavior_hint="(default: runs/TASK)")] = None
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
        from goalward.config import to_json
        from goalward.devices import use_threads

        use_threads(self.threads)
        folder = Path("runs", self.task) if self.out is None else self.out
        found, pictures = self._stages(folder)
        summaries = found.summaries()
        if self.as_json:
            console.show_json(
                {
                    "folder": str(folder),
                    "pairs": found.pairs.id,
                    "methods": [to_json(summary) for summary in summaries],
                    "latency": {name: to_json(value) for name, value in found.latency.items()},
                    "pictures": [str(path) for path in pictures],
                }
            )
            return 0
        show_evaluation(found, summaries, folder / "evaluation")
        rows = [
            ("controller", str(folder / "controller" / "best.safetensors")),
            ("world model", str(folder / "world")),
            *(("picture", str(path)) for path in pictures),
        ]
        console.show_facts("Written", rows)
        return 0

    def _stages(self, folder: Path) -> tuple[Evaluation, list[Path]]:
        from goalward.commands.evaluation_setup import evaluation_runs
        from goalward.controllers.stage import train_controller
        from goalward.data.collect import CollectConfig, collect
        from goalward.data.episodes import open_episodes
        from goalward.devices import choose_device, choose_devices
        from goalward.embed import embed
        from goalward.evaluate.evaluation import evaluate, prepare_pairs
        from goalward.evaluate.frozen_pairs import PairsConfig
        from goalward.evaluate.show import save_comparison
        from goalward.presets import controller_config, world_config
        from goalward.tasks import get_task
        from goalward.tasks.spec import SceneConfig
        from goalward.workers import usable_cpus
        from goalward.world.stage import train_world

        task, device = get_task(self.task), choose_device(self.device)
        workers = usable_cpus() if self.workers is None else self.workers
        episodes, world = folder / "episodes", folder / "world"
        wanted = CollectConfig.for_task(
            task.name,
            episodes=defaults.PRESET_EPISODES[self.preset][task.name],
            seed=self.seed,
            scene=SceneConfig(image_size=defaults.PRESET_IMAGE_SIZE[self.preset]),
        )
        with self._bar("1/5 collect", wanted.episodes, "frames") as update:
            collect(wanted, episodes, workers=workers, on_progress=update)
        with open_episodes(episodes) as opened:
            config = world_config(self.preset, opened, task=task.name, seed=self.seed)
            rows = opened.num_rows
        # Before the long stages: too few pairs are better told now.
        asked = PairsConfig(task=task.name, count=self.pairs, seed=self.seed, split=config.split)
        pairs = prepare_pairs(folder / "evaluation", asked, episodes)
        with self._bar("2/5 train-world", config.schedule.steps, "frames") as update:
            train_world(config, episodes, world, device=device, on_progress=update)
        with self._bar("3/5 embed", rows, "frames") as update:
            devices = choose_devices(self.device)
            latents = embed(
                world, episodes, folder / "latents", devices=devices, on_progress=update
            )
        plan = controller_config(self.preset, latents, seed=self.seed)
        with self._bar("4/5 train", plan.schedule.steps, "examples") as update:
            out = folder / "controller"
            train_controller(plan, latents.folder, out, device=device, on_progress=update)
        runs, observer = evaluation_runs(
            task,
            self.controller,
            models=[folder / "controller"],
            pairwise=None,
            seeds=[self.seed],
            device=self.device,
        )
        with self._bar("5/5 evaluate", len(runs) * self.pairs, "episodes") as update:
            found = evaluate(
                folder / "evaluation",
                pairs,
                runs,
                observer=observer,
                workers=workers,
                on_progress=update,
            )
        return found, save_comparison(folder / "evaluation", pairs, runs)

    def _bar(self, title: str, total: int, unit: str) -> Any:
        return console.progress(f"{title} {self.task}", total, unit=unit, quiet=self.as_json)

"""The stages of a task by a preset, each where the next one looks for it.

A stage makes first what it needs; whatever is complete is found, not made again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from goalward import defaults
from goalward.control.train import ControllerConfig, train_controller
from goalward.core import console
from goalward.core.config import content_id, override, to_json
from goalward.core.console import Update
from goalward.core.machine import choose_device, choose_devices
from goalward.data.collect import CollectConfig, collect
from goalward.data.episodes import open_episodes
from goalward.defaults import ModelKind, PresetName
from goalward.evaluation.pairs import PairsConfig
from goalward.evaluation.results import Results
from goalward.evaluation.run import evaluate, prepare_pairs
from goalward.evaluation.specs import require_known, resolve_controllers
from goalward.evaluation.video import save_comparison
from goalward.presets import controller_config, world_config
from goalward.tasks.task import RenderConfig, Task
from goalward.world.latents import Latents, embed
from goalward.world.train import WorldConfig, train_world

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Bar = Callable[[str, int, str], AbstractContextManager[Update]]  # title, total, unit


def silent_bar(title: str, total: int, unit: str) -> AbstractContextManager[Update]:
    """Show nothing."""
    return console.progress(title, total, unit=unit, quiet=True)


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Everything between a task's name and a controller.

    Args:
        task: What to do.
        preset: Size and length of everything.
        folder: Where the stages' folders are: episodes, world, latents, controller.
        seed: Of every stage.
        device: Where to compute: cpu, cuda, mps or auto.
        workers: Simulator processes; the result does not depend on their number.
        bar: Shows how far a stage is.
        demonstrator: Whose demonstrations (default: the preset's choice, or else the task's).
        world_changes: Values in place of the preset's for the world model, such as
            objective.regulariser=vicreg. Such a world model, and what is made from it, has folders
            of its own.
        curves: Draw the curves of controllers and of changed world models.
    """

    task: Task
    preset: PresetName
    folder: Path
    seed: int = defaults.SEED
    device: str = "auto"
    workers: int = 1
    bar: Bar = silent_bar
    demonstrator: str | None = None
    world_changes: tuple[str, ...] = ()
    curves: bool = True

    @property
    def usual_demonstrator(self) -> str:
        """Whose demonstrations are used unless another is asked for."""
        return self.task.preset(self.preset).demonstrator or self.task.default_demonstrator

    def episodes(self) -> Path:
        """What world model and controllers are trained on, and pairs are drawn from."""
        sizes = self.task.preset(self.preset)
        config = CollectConfig.for_task(
            self.task.name,
            episodes=sizes.episodes,
            seed=self.seed,
            demonstrator=self.demonstrator or self.usual_demonstrator,
            render=RenderConfig(image_size=sizes.image_size),
        )
        folder = self.folder / "episodes"
        with self.bar("collect", config.episodes, "frames") as update:
            collect(config, folder, workers=self.workers, on_progress=update)
        return folder

    def world_config(self) -> WorldConfig:
        """How the world model is trained on the demonstrations."""
        return override(self._plain_world_config(), self.world_changes)

    def _plain_world_config(self) -> WorldConfig:
        with open_episodes(self.episodes()) as episodes:
            return world_config(self.preset, episodes, task=self.task.name, seed=self.seed)

    def world(self) -> Path:
        """The world model; `validate_world` says more about it than its own report."""
        config, episodes = self.world_config(), self.episodes()
        folder, device = self.world_folder(), choose_device(self.device)
        with self.bar("train-world", config.schedule.steps, "frames") as update:
            train_world(
                config,
                episodes,
                folder,
                device=device,
                mlp_probe=False,
                pictures=self.curves or not self.world_changes,
                on_progress=update,
            )
        return folder

    def world_folder(self) -> Path:
        """Where the world model is, or will be: the same for changes that change nothing."""
        return self._folder("world")

    def latents(self) -> Latents:
        """Every frame of the demonstrations as the world model sees it."""
        world, episodes = self.world(), self.episodes()
        with open_episodes(episodes) as opened:
            rows = opened.num_rows
        devices = choose_devices(self.device)
        with self.bar("embed", rows, "frames") as update:
            return embed(
                world, episodes, self._folder("latents"), devices=devices, on_progress=update
            )

    def controller(
        self, *, kind: ModelKind = "gc-idm", seed: int | None = None, changes: Sequence[str] = ()
    ) -> Path:
        """A controller.

        Args:
            kind: Which network.
            seed: Of its training (default: as of all stages); with one, it has a folder of its own.
            changes: Values in place of the preset's, such as network.num_layers=5; the same.
        """
        latents, device = self.latents(), choose_device(self.device)
        config, folder = self._controller(latents, kind, seed, changes)
        with self.bar("train", config.schedule.steps, "examples") as update:
            train_controller(
                config,
                latents.folder,
                folder,
                device=device,
                pictures=self.curves,
                on_progress=update,
            )
        return folder

    def controller_folder(
        self, *, kind: ModelKind = "gc-idm", seed: int | None = None, changes: Sequence[str] = ()
    ) -> Path:
        """Where such a controller is, or will be; its latents are made if they are missing."""
        return self._controller(self.latents(), kind, seed, changes)[1]

    def _controller(
        self, latents: Latents, kind: ModelKind, seed: int | None, changes: Sequence[str]
    ) -> tuple[ControllerConfig, Path]:
        config = controller_config(
            self.preset, latents, kind=kind, seed=self.seed if seed is None else seed
        )
        changed = override(config, changes)
        name = "controller" if kind == "gc-idm" else kind
        numbered = name if seed is None else f"{name}-{seed}"
        return changed, self._folder(numbered + _suffix(config, changed))

    def pairs_folder(self, config: PairsConfig) -> Path:
        """Where pairs are, and what was run on them."""
        return self.folder / f"pairs-{content_id(to_json(config))[:8]}"

    def _folder(self, name: str) -> Path:
        """Where a stage is that depends on the world model."""
        return self.folder / (name + _suffix(self._plain_world_config(), self.world_config()))


def run_pipeline(pipeline: Pipeline, controllers: Sequence[str], *, pairs: int) -> Results:
    """Train what is missing, and compare controllers on held-out pairs."""
    task, folder, seed = pipeline.task, pipeline.folder / "evaluation", pipeline.seed
    require_known(controllers, task)  # before hours are spent
    wanted = PairsConfig(
        task=task.name,
        protocol=task.default_protocol,
        count=pairs,
        seed=seed,
        split_config=pipeline.world_config().split,
    )
    drawn = prepare_pairs(folder, wanted, pipeline.episodes())  # too few: refused before training
    specs, observer = resolve_controllers(
        task,
        controllers,
        seeds=(seed,),
        device=pipeline.device,
        split=wanted.split_config,
        model=pipeline.controller(),
    )
    with pipeline.bar("evaluate", len(specs) * pairs, "episodes") as update:
        results = evaluate(
            folder, drawn, specs, observer=observer, workers=pipeline.workers, on_progress=update
        )
    save_comparison(folder, drawn, specs)
    return results


def _suffix(plain: DataclassInstance, changed: DataclassInstance) -> str:
    """What tells a changed stage apart; nothing if the changes change nothing."""
    return "" if changed == plain else f"-{content_id(to_json(changed))[:8]}"

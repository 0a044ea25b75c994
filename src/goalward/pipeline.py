"""The stages of a task by a preset, each where the next one looks for it.

A stage makes first what it needs; whatever is complete is found, not made again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from goalward import console, defaults
from goalward.console import Update
from goalward.controllers.stage import train_controller
from goalward.data.collect import CollectConfig, collect
from goalward.data.episodes import open_episodes
from goalward.defaults import ModelKind, PresetName
from goalward.devices import choose_device, choose_devices
from goalward.embed import Latents, embed
from goalward.presets import controller_config, world_config
from goalward.tasks.spec import SceneConfig, Task
from goalward.world.stage import train_world
from goalward.world.train_config import WorldConfig

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
    """

    task: Task
    preset: PresetName
    folder: Path
    seed: int = defaults.SEED
    device: str = "auto"
    workers: int = 1
    bar: Bar = silent_bar

    def episodes(self) -> Path:
        """Demonstrations."""
        config = CollectConfig.for_task(
            self.task.name,
            episodes=defaults.PRESET_EPISODES[self.preset][self.task.name],
            seed=self.seed,
            scene=SceneConfig(image_size=defaults.PRESET_IMAGE_SIZE[self.preset]),
        )
        folder = self.folder / "episodes"
        with self.bar("collect", config.episodes, "frames") as update:
            collect(config, folder, workers=self.workers, on_progress=update)
        return folder

    def world_config(self) -> WorldConfig:
        """How the world model is trained on the demonstrations."""
        with open_episodes(self.episodes()) as episodes:
            return world_config(self.preset, episodes, task=self.task.name, seed=self.seed)

    def world(self) -> Path:
        """The world model; `judge_world` says more about it than its own report."""
        config, episodes = self.world_config(), self.episodes()
        folder, device = self.folder / "world", choose_device(self.device)
        with self.bar("train-world", config.schedule.steps, "frames") as update:
            train_world(config, episodes, folder, device=device, thorough=False, on_progress=update)
        return folder

    def latents(self) -> Latents:
        """Every frame of the demonstrations as the world model sees it."""
        world, episodes = self.world(), self.episodes()
        with open_episodes(episodes) as opened:
            rows = opened.num_rows
        devices = choose_devices(self.device)
        with self.bar("embed", rows, "frames") as update:
            return embed(
                world, episodes, self.folder / "latents", devices=devices, on_progress=update
            )

    def controller(self, *, kind: ModelKind = "gc-idm", seed: int | None = None) -> Path:
        """A controller; one with a seed of its own has a folder of its own."""
        latents = self.latents()
        name = "controller" if kind == "gc-idm" else kind
        folder = self.folder / (name if seed is None else f"{name}-{seed}")
        config = controller_config(
            self.preset, latents, kind=kind, seed=self.seed if seed is None else seed
        )
        device = choose_device(self.device)
        with self.bar("train", config.schedule.steps, "examples") as update:
            train_controller(config, latents.folder, folder, device=device, on_progress=update)
        return folder

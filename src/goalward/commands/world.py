"""Commands about world models: train, judge and convert them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from goalward import defaults
from goalward.commands.base import AsJson, Device, EpisodesPath, TaskOfFile, TrainingFlags
from goalward.core import console

if TYPE_CHECKING:
    from goalward.world.metrics import WorldMetrics
    from goalward.world.train import WorldReport


@dataclass(frozen=True, kw_only=True)
class TrainWorld(TrainingFlags):
    """Train a world model (LeWM) on an episode file; run again to resume. Works under torchrun."""

    path: EpisodesPath
    """An episode file (.h5, .lance) or a folder with one."""
    out: Path
    """Folder to write: weights, curves.png, latents.png, report.json."""
    task: TaskOfFile = None
    """The file's task: it decides what is probed, and how long the CPU presets train."""

    def run(self) -> int:
        """Train and print the quality figures."""
        from goalward.core.config import override, to_json
        from goalward.core.distributed import is_first_process
        from goalward.core.machine import choose_device, use_threads
        from goalward.data.episodes import open_episodes
        from goalward.data.summary import task_name
        from goalward.presets import world_config
        from goalward.world.train import train_world

        use_threads(self.threads)
        device = choose_device(self.device)
        with open_episodes(self.path) as episodes:
            name = task_name(episodes, self.task)
            config = world_config(self.preset, episodes, task=name, seed=self.seed)
        config = override(config, self.assignments())
        quiet = self.as_json or not is_first_process()
        title = f"train world {name or ''}".strip()
        bar = console.progress(title, config.schedule.steps, unit="frames", quiet=quiet)
        with bar as update:
            report = train_world(
                config,
                self.path,
                self.out,
                device=device,
                task=self.task,
                save_seconds=self.save_seconds,
                on_progress=update,
            )
        if report is not None and self.as_json:
            console.show_json({"folder": str(self.out), **to_json(report)})
        elif report is not None:
            _show_world(report, self.out)
        return 0


@dataclass(frozen=True, kw_only=True)
class JudgeWorld:
    """Judge a world model on an episode file: prediction errors and probes of its latents."""

    world: Annotated[Positional[Path], arg(metavar="WORLD")]
    """Folder of a world model: ours, or in the public LeWM layout."""
    path: EpisodesPath
    """An episode file (.h5, .lance) or a folder with one."""
    weights: Literal["best", "last"] = "best"
    """Which of the folder's weights."""
    frameskip: int = defaults.FRAMESKIP
    """Environment steps a model step, which public files do not tell."""
    task: TaskOfFile = None
    """The file's task."""
    seed: int = defaults.SEED
    """Seed of the choice of frames and of the network probe."""
    device: Device = "auto"
    as_json: AsJson = False
    """Print one JSON document instead of tables."""

    def run(self) -> int:
        """Print the quality figures."""
        from goalward.core.config import to_json
        from goalward.core.machine import choose_device
        from goalward.world.metrics import validate_world

        device = choose_device(self.device)
        quality = validate_world(
            self.world,
            self.path,
            weights=self.weights,
            task=self.task,
            seed=self.seed,
            frameskip=self.frameskip,
            device=device,
        )
        if self.as_json:
            console.show_json(to_json(quality))
        else:
            _show_quality(quality)
        return 0


@dataclass(frozen=True, kw_only=True)
class ConvertWorld:
    """Read a world model and write it in another layout; downloads only with --download."""

    source: Annotated[Positional[str], arg(metavar="SOURCE")]
    """Folder of a world model, or OWNER/NAME of a repository on Hugging Face."""
    out: Path
    """Folder to write."""
    to: Literal["goalward", "public"] = "goalward"
    """Our layout (safetensors), or the public LeWM one (config.json, weights.pt)."""
    weights: Literal["best", "last"] = "best"
    """Which weights of a folder in our layout."""
    frameskip: int = defaults.FRAMESKIP
    """Environment steps a model step, which public files do not tell."""
    names: Literal["transformers-4", "transformers-5"] = "transformers-4"
    """Whose tensor names a public file gets."""
    episodes: Annotated[Path | None, arg(metavar="PATH")] = None
    """What it was trained on: planners need its scale of actions, which public files lack."""
    download: bool = False
    """Fetch SOURCE from Hugging Face."""
    as_json: AsJson = False
    """Print one JSON document instead of a table."""

    def run(self) -> int:
        """Convert and print what was written."""
        from goalward.world.convert import convert_world

        done = convert_world(
            self.source,
            self.out,
            to=self.to,
            weights=self.weights,
            frameskip=self.frameskip,
            names=self.names,
            download=self.download,
            episodes=self.episodes,
        )
        if self.as_json:
            console.show_json(done)
        else:
            console.show_facts(f"Wrote {self.out}", list(done.items()))
        return 0


def _show_world(report: WorldReport, folder: Path) -> None:
    """Print what a training achieved and where it is."""
    _show_quality(report.quality)
    speed = f"{report.frames_per_second:,.0f} frames/s, {100 * report.data_share:.1f}% for data"
    rows = [
        ("parameters", f"{report.parameters['total']:,}"),
        ("steps", f"{report.steps:,}"),
        ("time", f"{report.seconds:.0f} s ({speed})"),
        ("held-out loss", f"{report.held_out_loss:.4f}"),
        ("weights", f"{folder / 'best.safetensors'} ({report.best_world_id}), last.safetensors"),
        ("pictures", f"{folder / 'curves.png'}, {folder / 'latents.png'}"),
    ]
    console.show_facts("Trained the world model", rows)


def _show_quality(quality: WorldMetrics) -> None:
    """Print prediction errors and probes."""
    rows = [
        (f"{e.steps}", f"{e.model:.4f}", f"{e.copy_last:.4f}", f"{e.ratio:.3f}", f"{e.windows:,}")
        for e in quality.prediction
    ]
    header = ("model steps", "error", "copying the last latent", "ratio", "windows")
    console.show_table("Latent prediction on held-out episodes (mean squared error)", header, rows)
    probes = [("linear", s) for s in quality.probes.linear]
    probes += [("network", s) for s in quality.probes.network]
    if probes:
        scores = [
            (kind, s.measure, f"{s.rmse:.3g} {s.unit}", f"{s.median:.3g} {s.unit}", f"{s.r2:.4f}")
            for kind, s in probes
        ]
        header = ("probe", "of", "RMSE", "median error", "R²")
        console.show_table("True state read from latents of held-out episodes", header, scores)

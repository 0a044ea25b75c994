"""Commands about controllers: embed a dataset, train on the latents, judge what was trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from goalward import defaults
from goalward.commands.base import AsJson, Device, EpisodesPath, TaskOfFile, TrainingFlags
from goalward.core import console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from goalward.control.metrics import ActionMetrics, NoiseError, TimeToGoMetrics
    from goalward.control.train import ControllerReport

LatentsPath = Annotated[Positional[Path], arg(metavar="LATENTS")]


@dataclass(frozen=True, kw_only=True)
class Embed:
    """Encode every frame of an episode file with a frozen world model; run again to resume."""

    world: Annotated[Positional[Path], arg(metavar="WORLD")]
    """Folder of a world model: ours, or in the public LeWM layout."""
    path: EpisodesPath
    """An episode file (.h5, .lance) or a folder with one."""
    out: Path
    """Folder to write: latents.npy, actions, statistics and a copy of the world model."""
    weights: Literal["best", "last"] = "best"
    """Which of the world model's weights."""
    batch: int = defaults.EMBED_BATCH
    """Frames a call of the encoder; several GPUs share them."""
    frameskip: int = defaults.FRAMESKIP
    """Environment steps a model step, which public files do not tell."""
    task: TaskOfFile = None
    """The file's task: it decides the bounds of the actions."""
    device: Device = "auto"
    save_seconds: float = defaults.SAVE_SECONDS
    """At most so much work, and a batch, is lost when the process is killed."""
    as_json: AsJson = False
    """Print one JSON document and no progress."""

    def run(self) -> int:
        """Embed and print what was written."""
        from goalward.core.config import to_json
        from goalward.core.machine import choose_devices
        from goalward.data.episodes import open_episodes
        from goalward.world.latents import EmbedConfig, embed

        with open_episodes(self.path) as episodes:
            rows = episodes.num_rows
        with console.progress("embed", rows, unit="frames", quiet=self.as_json) as update:
            latents = embed(
                self.world,
                self.path,
                self.out,
                EmbedConfig(batch=self.batch),
                weights=self.weights,
                task=self.task,
                frameskip=self.frameskip,
                devices=choose_devices(self.device),
                save_seconds=self.save_seconds,
                on_progress=update,
            )
        if self.as_json:
            console.show_json({"folder": str(self.out), **to_json(latents.metadata)})
            return 0
        std = latents.metadata.std
        rows_shown = [
            ("frames", f"{latents.metadata.rows:,} of {len(latents.lengths):,} episodes"),
            (
                "numbers a latent",
                f"{len(std)}, standard deviations {min(std):.2g} to {max(std):.2g}",
            ),
            ("world model", latents.metadata.world_id),
            ("latents", str(self.out / "latents.npy")),
        ]
        console.show_facts("Embedded", rows_shown)
        return 0


@dataclass(frozen=True, kw_only=True)
class Train(TrainingFlags):
    """Train a controller on latents; run again to resume."""

    latents: LatentsPath
    """Folder that `goalward embed` wrote."""
    out: Path
    """Folder to write: best.safetensors is all that is needed to act; curves.png, report.json."""
    kind: defaults.ModelKind = "gc-idm"
    """Goal-conditioned (a controller), or pairwise: the action between two frames."""

    def run(self) -> int:
        """Train and print the errors."""
        from goalward.control.train import train_controller
        from goalward.core.config import override, to_json
        from goalward.core.machine import choose_device, use_threads
        from goalward.presets import controller_config
        from goalward.world.latents import open_latents

        use_threads(self.threads)
        device = choose_device(self.device)
        found = open_latents(self.latents)
        config = controller_config(self.preset, found, kind=self.kind, seed=self.seed)
        config = override(config, self.assignments())
        title = f"train {self.kind} {found.metadata.task or ''}".strip()
        bar = console.progress(title, config.schedule.steps, unit="examples", quiet=self.as_json)
        with bar as update:
            report = train_controller(
                config,
                self.latents,
                self.out,
                device=device,
                save_seconds=self.save_seconds,
                on_progress=update,
            )
        if self.as_json:
            console.show_json({"folder": str(self.out), **to_json(report)})
        else:
            _show_training(report, self.out)
        return 0


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Judge a controller's actions, and its time to go, on episodes it was not trained on."""

    controller: Annotated[Positional[Path], arg(metavar="CONTROLLER")]
    """A controller file, or the folder of a training."""
    latents: LatentsPath
    """Folder that `goalward embed` wrote, with the controller's own world model."""
    weights: Literal["best", "last"] = "best"
    """Which of the folder's files."""
    episodes: Literal["test", "validation"] = "test"
    """Held-out episodes for results, or those by which the best weights were chosen."""
    noise: tuple[float, ...] = ()
    """Noise on both latents, in their standard deviations: errors with each of these."""
    seed: int = defaults.SEED
    """Seed of the examples and of the noise."""
    device: Device = "auto"
    as_json: AsJson = False
    """Print one JSON document instead of tables."""

    def run(self) -> int:
        """Print the errors."""
        from goalward.control.metrics import validate_controller
        from goalward.core.config import to_json
        from goalward.core.machine import choose_device

        quality = validate_controller(
            self.controller,
            self.latents,
            weights=self.weights,
            split=self.episodes,
            sigmas=self.noise,
            seed=self.seed,
            device=choose_device(self.device),
        )
        if self.as_json:
            console.show_json(to_json(quality))
            return 0
        _show_errors(quality.errors, f"Actions on {self.episodes} episodes")
        _show_time_to_go(quality.time_to_go)
        _show_noise(quality.noise)
        return 0


def _show_training(report: ControllerReport, folder: Path) -> None:
    """Print what a training achieved and where it is."""
    _show_errors(report.errors, "Actions on validation episodes")
    _show_time_to_go(report.time_to_go)
    parts = ", ".join(f"{name} {number:,}" for name, number in report.parameters.items())
    speed = f"{report.examples_per_second:,.0f} examples/s"
    rows = [
        ("parameters", parts),
        ("data", f"{report.train_rows:,} rows of {report.train_episodes:,} episodes"),
        ("steps", f"{report.steps:,}, the best {report.best_step:,}"),
        ("time", f"{report.seconds:.0f} s ({speed})"),
        ("controller", str(folder / "best.safetensors")),
        ("picture", str(folder / "curves.png")),
    ]
    console.show_facts("Trained", rows)


def _show_errors(errors: Sequence[ActionMetrics], title: str) -> None:
    header = ("steps to the goal", "mean squared error", "cosine", "R²", "examples")
    rows = [(e.horizons, *_figures(e), f"{e.count:,}") for e in errors]
    console.show_table(title, header, rows)


def _show_noise(noise: Sequence[NoiseError]) -> None:
    if noise:
        header = ("noise, standard deviations", "mean squared error", "cosine", "R²")
        rows = [(f"{n.sigma:g}", *_figures(n.error)) for n in noise]
        console.show_table("Actions with noise on both latents", header, rows)


def _figures(error: ActionMetrics) -> tuple[str, str, str]:
    return f"{error.mse:.6f}", f"{error.cosine:.4f}", f"{error.r2:.4f}"


def _show_time_to_go(quality: TimeToGoMetrics | None) -> None:
    if quality is None:
        return
    rows = [
        (f"{c.level:g}", f"{100 * c.expected:.1f}%", f"{100 * c.observed:.1f}%")
        for c in quality.coverage
    ]
    title = (
        f"Time to go: the median is {quality.median_error:.1f} steps off "
        f"(of {quality.mean_steps:.1f} on average)"
    )
    console.show_table(title, ("quantile", "expected within it", "observed"), rows)

"""The command line: parse, call, print. No logic, and nothing heavy imported before it is used."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

import tyro
import tyro.extras
from tyro.conf import FlagCreatePairsOff, Positional, UseAppendAction, arg

from goalward import __version__, console, defaults

if TYPE_CHECKING:
    from goalward.world.judge import Quality
    from goalward.world.stage import WorldReport

HINTS = {
    errno.ENOSPC: "free some space, then run the same command again: finished work is kept",
    errno.EDQUOT: "free some space, then run the same command again: finished work is kept",
    errno.EFBIG: "the file-size limit of this disk or shell is too low",
    errno.EACCES: "choose a folder that you may write to, or mend its permissions",
    errno.EPERM: "choose a folder that you may write to, or mend its permissions",
    errno.EROFS: "choose a folder that you may write to",
}
OUT_OF_MEMORY = re.compile("out of memory|can't allocate memory")
BAD_INPUT = 2  # exit code: the user can fix it
INTERRUPTED = 130

TASK_DEFAULT = "(default: the task's own)"
EPISODES_DEFAULT = f"(default: the preset's, or else {defaults.EPISODES})"
SIZE_DEFAULT = f"(default: the preset's, or else {defaults.IMAGE_SIZE})"
PRESET_DEFAULT = "(default: the preset's)"
TORCH_DEFAULT = "(default: torch's own choice)"
TaskName = Annotated[Positional[str], arg(metavar="TASK")]
EpisodesPath = Annotated[Positional[Path], arg(metavar="PATH")]
AsJson = Annotated[bool, arg(name="json")]
NumWorkers = Annotated[
    int | None, arg(metavar="INT", help_behavior_hint="(default: one for every CPU)")
]
TaskOfFile = Annotated[
    str | None, arg(metavar="TASK", help_behavior_hint="(default: what the file says)")
]


class Command(Protocol):
    """What every command offers: its fields are its flags."""

    def run(self) -> int:
        """Do it, print the outcome and return the exit code."""


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Examine this machine: what is there, what is missing, and the command that fixes it."""

    out: Path = Path("runs")
    """Folder whose disk is examined."""
    as_json: AsJson = False
    """Print one JSON document instead of a table."""

    def run(self) -> int:
        """Print the findings; exit code 1 when something is missing."""
        from goalward.doctor import examine

        findings = list(examine(self.out))
        healthy = all(finding.ok for finding in findings)
        if self.as_json:
            console.show_json({"ok": healthy, "findings": [asdict(f) for f in findings]})
        else:
            rows = [
                ("ok" if f.ok else "missing", f.name, f.found, "" if f.ok else f.fix)
                for f in findings
            ]
            console.show_table("This machine", ("", "what", "found", "fix"), rows)
        return 0 if healthy else 1


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """List the tasks: what they are, who demonstrates them, when they count as solved."""

    as_json: AsJson = False
    """Print one JSON document instead of tables."""

    def run(self) -> int:
        """Print the tasks."""
        from goalward.tasks import TASKS

        if self.as_json:
            console.show_json([task.describe() for task in TASKS.values()])
            return 0
        for task in TASKS.values():
            facts = task.describe()
            rows = [
                ("environment", facts["env_id"]),
                ("action", f"{task.action_dim} numbers in [-1, 1]"),
                ("demonstrators", f"{', '.join(task.demonstrators)} ({task.episode_steps} steps)"),
                *((f"solved: {name}", text) for name, text in facts["protocols"].items()),
            ]
            console.show_facts(f"{task.name}: {task.summary}", rows)
        return 0


@dataclass(frozen=True, kw_only=True)
class Collect:
    """Collect demonstrations into an episode file; run again to resume."""

    task: TaskName
    """A task: see `goalward tasks`."""
    out: Path
    """Folder to write: episodes.h5, config.json and manifest.json."""
    preset: Annotated[defaults.PresetName | None, arg(help_behavior_hint="(default: none)")] = None
    """Episodes and frame size that `train-world` with this preset is made for."""
    episodes: Annotated[int | None, arg(metavar="INT", help_behavior_hint=EPISODES_DEFAULT)] = None
    """Number of episodes."""
    seed: int = defaults.SEED
    """Seed of every random draw; the same seed gives the same file."""
    image_size: Annotated[int | None, arg(metavar="INT", help_behavior_hint=SIZE_DEFAULT)] = None
    """Pixels a side of the frames."""
    demonstrator: Annotated[str | None, arg(metavar="NAME", help_behavior_hint=TASK_DEFAULT)] = None
    """Who demonstrates: see `goalward tasks`."""
    steps: Annotated[int | None, arg(metavar="INT", help_behavior_hint=TASK_DEFAULT)] = None
    """Actions an episode."""
    rendering: Literal["fast", "environment"] = "fast"
    """Fast frames, or the environment's own slow ones, as in the public datasets (on Push-T these
    also show contact points, which a restored state does not have)."""
    workers: NumWorkers = None
    """Simulator processes; the result does not depend on their number."""
    as_json: AsJson = False
    """Print one JSON document and no progress."""

    def run(self) -> int:
        """Collect and print what was written."""
        from goalward.data.collect import CollectConfig, collect
        from goalward.tasks import get_task
        from goalward.tasks.spec import SceneConfig
        from goalward.workers import usable_cpus

        task = get_task(self.task).name
        episodes, size = defaults.EPISODES, defaults.IMAGE_SIZE
        if self.preset is not None:
            episodes = defaults.PRESET_EPISODES[self.preset][task]
            size = defaults.PRESET_IMAGE_SIZE[self.preset]
        size = size if self.image_size is None else self.image_size
        config = CollectConfig.for_task(
            task,
            episodes=episodes if self.episodes is None else self.episodes,
            seed=self.seed,
            demonstrator=self.demonstrator,
            episode_steps=self.steps,
            scene=SceneConfig(image_size=size, rendering=self.rendering),
        )
        workers = usable_cpus() if self.workers is None else self.workers
        bar = console.progress(
            f"collect {config.task}", config.episodes, unit="frames", quiet=self.as_json
        )
        with bar as update:
            report = collect(config, self.out, workers=workers, on_progress=update)
        if self.as_json:
            facts = asdict(report) | {"folder": str(report.folder), "file": str(report.file)}
            console.show_json(facts)
            return 0
        done = f"{report.new_episodes} new" if report.new_episodes else "complete already"
        rows = [
            ("episodes", f"{report.episodes} ({done})"),
            ("frames", f"{report.frames:,}"),
            ("time", f"{report.seconds:.1f} s, {report.frames_per_second:,.0f} frames/s"),
            ("file", str(report.file)),
        ]
        console.show_facts(f"Collected {config.task}", rows)
        return 0


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Show what an episode file holds, and write a contact sheet of its frames."""

    path: EpisodesPath
    """An episode file (.h5, .lance) or a folder with one."""
    task: TaskOfFile = None
    """The file's task."""
    sheet: Annotated[
        Path | None, arg(metavar="PNG", help_behavior_hint="(default: beside the episode file)")
    ] = None
    """Contact sheet to write."""
    as_json: AsJson = False
    """Print one JSON document instead of tables."""

    def run(self) -> int:
        """Print the summary and write the contact sheet."""
        from goalward.data.contact_sheet import save_contact_sheet
        from goalward.data.episodes import open_episodes
        from goalward.data.summary import summarise, task_name
        from goalward.evaluate.floors import solved_share
        from goalward.tasks import get_task

        with open_episodes(self.path) as episodes:
            summary = summarise(episodes)
            name = task_name(episodes, self.task)
            solved = solved_share(episodes, get_task(name)) if name else {}
            local = episodes.path.parent if episodes.path.exists() else Path()
            sheet = self.sheet or local / "contact_sheet.png"
            save_contact_sheet(episodes, sheet)
        if self.as_json:
            facts = asdict(summary) | {"solved_pairs": solved, "contact_sheet": str(sheet)}
            console.show_json(facts)
            return 0
        console.show_facts(
            summary.path,
            [
                ("task", name or "unknown; name it with --task"),
                ("episodes", f"{summary.episodes:,}"),
                (
                    "steps",
                    f"{summary.steps:,} ({summary.shortest} to {summary.longest} an episode)",
                ),
                *((f"solved at the start: {p}", f"{100 * s:.1f}%") for p, s in solved.items()),
                ("contact sheet", str(sheet)),
            ],
        )
        columns = [(c.name, str(c.shape), c.dtype) for c in summary.columns]
        console.show_table("Columns", ("name", "shape of a row", "type"), columns)
        action = summary.action
        parts = zip(action.mean, action.std, action.low, action.high, strict=True)
        rows = [(str(i), *(f"{value:.3f}" for value in part)) for i, part in enumerate(parts)]
        title = f"Actions ({action.rows:,} rows, mean second difference {action.roughness:.3f})"
        console.show_table(title, ("component", "mean", "std", "min", "max"), rows)
        return 0


@dataclass(frozen=True, kw_only=True)
class Floors:
    """Measure what policies that know nothing achieve, and what replayed demonstrations do."""

    path: EpisodesPath
    """An episode file (.h5, .lance) or a folder with one."""
    task: TaskOfFile = None
    """The file's task."""
    pairs: int = defaults.PAIRS
    """Start and goal pairs for each protocol."""
    budget: int = defaults.BUDGET
    """Steps an episode may take."""
    offset: int = defaults.GOAL_OFFSET
    """Steps between start and goal in the recording."""
    seed: int = defaults.SEED
    """Seed of the pairs and of the random policy."""
    all_episodes: bool = False
    """Draw pairs from all episodes instead of the held-out ones."""
    workers: NumWorkers = None
    """Simulator processes; the result does not depend on their number."""
    as_json: AsJson = False
    """Print one JSON document and no progress."""

    def run(self) -> int:
        """Print the floors."""
        from goalward.data.episodes import open_episodes
        from goalward.data.summary import task_name
        from goalward.evaluate.floors import (
            FloorsConfig,
            measure_floors,
            num_episodes,
            solved_share,
        )
        from goalward.tasks import get_task
        from goalward.workers import usable_cpus

        with open_episodes(self.path) as episodes:
            name = task_name(episodes, self.task)
            if name is None:
                raise ValueError(f"{self.path} does not say its task; name it with --task")
            task = get_task(name)
            solved = solved_share(episodes, task, offset=self.offset)
        config = FloorsConfig(
            pairs=self.pairs,
            budget=self.budget,
            offset=self.offset,
            seed=self.seed,
            held_out=not self.all_episodes,
        )
        workers = usable_cpus() if self.workers is None else self.workers
        total = num_episodes(task, config)
        bar = console.progress(f"floors of {name}", total, unit="episodes", quiet=self.as_json)
        with bar as update:
            floors = measure_floors(task, self.path, config, workers=workers, on_progress=update)
        if self.as_json:
            console.show_json({"solved_pairs": solved, "floors": [asdict(f) for f in floors]})
            return 0
        protocols = list(task.protocols)
        cells = {(f.policy, f.subset, f.protocol): f"{f.rate} n={f.rate.count}" for f in floors}
        keys = dict.fromkeys((f.policy, f.subset) for f in floors)
        rows = [(*key, *(cells.get((*key, p), "-") for p in protocols)) for key in keys]
        title = f"Floors of {name}: success and 95% interval, {config.budget} steps"
        console.show_table(title, ("policy", "pairs", *protocols), rows)
        console.show_line(
            "solved at the start, share of all pairs: "
            + ", ".join(f"{p} {100 * s:.1f}%" for p, s in solved.items())
        )
        return 0


@dataclass(frozen=True, kw_only=True)
class TrainWorld:
    """Train a world model (LeWM) on an episode file; run again to resume. Works under torchrun."""

    path: EpisodesPath
    """An episode file (.h5, .lance) or a folder with one."""
    out: Path
    """Folder to write: weights, curves.png, latents.png, report.json."""
    preset: defaults.PresetName = "cpu"
    """Size and length of the training."""
    task: TaskOfFile = None
    """The file's task: it decides what is probed, and how long the CPU presets train."""
    steps: Annotated[int | None, arg(metavar="INT", help_behavior_hint=PRESET_DEFAULT)] = None
    """Optimiser steps."""
    seed: int = defaults.SEED
    """Seed of initial weights, batches and projections."""
    set: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE"), UseAppendAction] = ()
    """A value in place of the preset's, such as objective.inverse_weight=0.3; may be repeated."""
    device: str = "auto"
    """cpu, cuda or mps; auto takes a CUDA GPU where there is one."""
    threads: Annotated[int | None, arg(metavar="INT", help_behavior_hint=TORCH_DEFAULT)] = None
    """CPU threads. A resumed training repeats an unbroken one to the bit with the same number."""
    save_seconds: float = defaults.SAVE_SECONDS
    """At most so much work, and 20 steps, is lost when the process is killed."""
    as_json: AsJson = False
    """Print one JSON document and no progress."""

    def run(self) -> int:
        """Train and print the quality figures."""
        from goalward.config import override, to_json
        from goalward.data.episodes import open_episodes
        from goalward.data.summary import task_name
        from goalward.devices import choose_device, use_threads
        from goalward.presets import world_config
        from goalward.world.replicas import is_first_process
        from goalward.world.stage import train_world

        use_threads(self.threads)
        device = choose_device(self.device)
        with open_episodes(self.path) as episodes:
            name = task_name(episodes, self.task)
            config = world_config(self.preset, episodes, task=name, seed=self.seed)
        chosen = () if self.steps is None else (f"schedule.steps={self.steps}",)
        config = override(config, (*chosen, *self.set))
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
    device: str = "auto"
    """cpu, cuda or mps; auto takes a CUDA GPU where there is one."""
    as_json: AsJson = False
    """Print one JSON document instead of tables."""

    def run(self) -> int:
        """Print the quality figures."""
        from goalward.config import to_json
        from goalward.devices import choose_device
        from goalward.world.stage import judge_world

        device = choose_device(self.device)
        quality = judge_world(
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


def _show_quality(quality: Quality) -> None:
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


COMMANDS: dict[str, Callable[..., Command]] = {
    "doctor": Doctor,
    "tasks": Tasks,
    "collect": Collect,
    "inspect": Inspect,
    "floors": Floors,
    "train-world": TrainWorld,
    "judge-world": JudgeWorld,
    "convert-world": ConvertWorld,
}


def parse(arguments: list[str] | None = None) -> Command:
    """Parse the command line; exits with code 2 and a message when it cannot be parsed."""
    return tyro.extras.subcommand_cli_from_dict(
        COMMANDS,
        prog="goalward",
        description=f"goalward {__version__}: world models into controllers that need no search.",
        args=arguments,
        config=(FlagCreatePairsOff,),
    )


def main(arguments: list[str] | None = None) -> int:
    """Run a command; errors that the user can fix are one line and exit code 2."""
    try:
        return parse(arguments).run()
    except (ValueError, OSError) as error:
        console.show_error(describe_error(error))
        return BAD_INPUT
    except (MemoryError, RuntimeError) as error:
        if not OUT_OF_MEMORY.search(str(error)) and not isinstance(error, MemoryError):
            raise
        console.show_error("out of memory; use smaller batches (--set schedule.batch=...)")
        return BAD_INPUT
    except KeyboardInterrupt:
        console.show_error("interrupted; the same command goes on where it stopped")
        return INTERRUPTED
    finally:
        sys.stdout.flush()


def describe_error(error: ValueError | OSError) -> str:
    """One line that says what went wrong, with the file where the system names one."""
    if isinstance(error, OSError) and error.errno is not None:
        where = f"{os.fspath(error.filename)}: " if error.filename is not None else ""
        return f"{where}{os.strerror(error.errno)}; {HINTS.get(error.errno, 'check the path')}"
    return str(error) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())

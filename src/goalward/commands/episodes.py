"""Commands about episode files: collect them, look into them, measure their floors."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from goalward import defaults
from goalward.commands.base import AsJson, EpisodesPath, NumWorkers, TaskName, TaskOfFile
from goalward.core import console

TASK_DEFAULT = "(default: the task's own)"
EPISODES_DEFAULT = f"(default: the preset's, or else {defaults.EPISODES})"
DEMONSTRATOR_DEFAULT = "(default: the preset's, or else the task's own)"
SIZE_DEFAULT = f"(default: the preset's, or else {defaults.IMAGE_SIZE})"


@dataclass(frozen=True, kw_only=True)
class Collect:
    """Collect demonstrations into an episode file; run again to resume."""

    task: TaskName
    """A task: see `goalward tasks`."""
    out: Path
    """Folder to write: episodes.h5, config.json and manifest.json."""
    preset: Annotated[defaults.PresetName | None, arg(help_behavior_hint="(default: none)")] = None
    """Episodes, demonstrator and frame size that `train-world` with this preset is made for."""
    episodes: Annotated[int | None, arg(metavar="INT", help_behavior_hint=EPISODES_DEFAULT)] = None
    """Number of episodes."""
    seed: int = defaults.SEED
    """Seed of every random draw; the same seed gives the same file."""
    image_size: Annotated[int | None, arg(metavar="INT", help_behavior_hint=SIZE_DEFAULT)] = None
    """Pixels a side of the frames."""
    demonstrator: Annotated[
        str | None, arg(metavar="NAME", help_behavior_hint=DEMONSTRATOR_DEFAULT)
    ] = None
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
        from goalward.core.machine import usable_cpus
        from goalward.data.collect import CollectConfig, collect
        from goalward.tasks import get_task
        from goalward.tasks.task import RenderConfig

        task = get_task(self.task)
        sizes = None if self.preset is None else task.preset(self.preset)
        episodes = defaults.EPISODES if sizes is None else sizes.episodes
        size = defaults.IMAGE_SIZE if sizes is None else sizes.image_size
        size = size if self.image_size is None else self.image_size
        config = CollectConfig.for_task(
            task.name,
            episodes=episodes if self.episodes is None else self.episodes,
            seed=self.seed,
            demonstrator=self.demonstrator or (sizes.demonstrator if sizes else None),
            episode_steps=self.steps,
            scene=RenderConfig(image_size=size, rendering=self.rendering),
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
        from goalward.data.episodes import open_episodes
        from goalward.data.summary import save_contact_sheet, summarise, task_name
        from goalward.data.windows import obstacles
        from goalward.evaluation.baselines import solved_share
        from goalward.tasks import find_task, get_task

        with open_episodes(self.path) as episodes:
            summary = summarise(episodes)
            name = task_name(episodes, self.task)
            if self.task is not None:
                get_task(self.task)  # refuses an unknown one; a file may be of any task
            task = find_task(name)
            solved = {} if task is None else solved_share(episodes, task)
            local = episodes.path.parent if episodes.path.exists() else Path()
            target = self.sheet or local / "contact_sheet.png"
            sheet: Path | None = target
            try:
                save_contact_sheet(episodes, target)
            except OSError:
                if self.sheet is not None:
                    raise
                sheet = None  # what others keep may be read only
            problems = obstacles(episodes)
        if self.as_json:
            facts = asdict(summary) | {"solved_pairs": solved, "problems": problems}
            facts["contact_sheet"] = None if sheet is None else str(sheet)
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
                (
                    "contact sheet",
                    str(sheet or f"none: {local} cannot be written to; give --sheet"),
                ),
                *(("train-world will refuse it", problem) for problem in problems),
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
        from goalward.core.machine import usable_cpus
        from goalward.data.episodes import open_episodes
        from goalward.data.summary import task_name
        from goalward.evaluation.baselines import (
            FloorsConfig,
            measure_floors,
            num_episodes,
            solved_share,
        )
        from goalward.tasks import get_task

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

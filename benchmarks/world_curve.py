"""How the error of a task's latents falls with the time of training: one training a length.

Every length is a training of its own, with its own warm-up and decay: what one gets for so many
minutes. All are judged on the same held-out episodes. Writes
`results/world-curve/` and the picture in docs/WORLD.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tyro

from benchmarks.setting import PICTURES, RESULTS, RUNS, bench_pipeline
from benchmarks.world import undisturbed_seconds
from goalward.core.artifacts import load_manifest
from goalward.core.config import to_json, write_json
from goalward.core.console import show_line
from goalward.core.curves import read_curves
from goalward.core.figures import (
    CYCLE,
    add_common_legend,
    add_heading,
    label_axes,
    log_scale_where_positive,
    new_figure,
    panels_size,
    save_figure,
    style_axes,
)
from goalward.core.machine import machine
from goalward.data.episodes import open_episodes
from goalward.data.splits import split_episodes
from goalward.data.summary import task_name
from goalward.defaults import PresetName
from goalward.world.checkpoint import load_world
from goalward.world.metrics import probe_targets, probe_world

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Point = dict[str, Any]
NAMES = {"rmse": "RMSE", "median": "median"}


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to measure."""

    task: str = "push-t"
    """The task."""
    preset: PresetName = "cpu-long"
    """The preset whose episodes and world model to train."""
    steps: tuple[int, ...] = (1_000, 3_200)
    """Lengths of training, beside the preset's own."""
    runs: Path = RUNS
    """Where datasets and weights go."""


def measure(arguments: Arguments) -> list[Point]:
    """Train every length, the shortest first, and judge all by the same episodes."""
    pipeline = bench_pipeline(arguments.task, arguments.preset, arguments.runs)
    lengths = sorted({*arguments.steps, pipeline.world_config().schedule.steps})
    points = []
    for steps in lengths:
        changed = replace(pipeline, world_changes=(f"schedule.steps={steps}",), curves=False)
        points.append(judged(changed.world(), pipeline.episodes()))
    return at_one_pace(points)


def judged(world: Path, dataset: Path) -> Point:
    """What the network probe reads from a world model's latents of held-out episodes."""
    manifest, loaded = load_manifest(world), load_world(world)
    history = read_curves(world)
    with open_episodes(dataset) as episodes:
        number = episodes.num_episodes
        measures = probe_targets(episodes, task_name(episodes, None))
        sides = split_episodes(number, loaded.split)
        scores = probe_world(loaded.model, episodes, measures, sides, seed=0, mlp=True).network
    return {
        "steps": int(max(row["step"] for row in history)),
        "episodes": number,
        "undisturbed_seconds": undisturbed_seconds(history),
        "network": [to_json(score) for score in scores],
        "git_revision": manifest.git_revision,
        "torch": manifest.versions["torch"],
        "machine": machine(),
    }


def at_one_pace(points: Sequence[Point]) -> list[Point]:
    """With the minutes at the longest training's pace: trainings may have had one CPU or two."""
    longest = max(points, key=lambda point: point["steps"])
    pace = longest["undisturbed_seconds"] / longest["steps"] / 60
    return [{**point, "minutes": point["steps"] * pace} for point in points]


def curve_figure(points: Sequence[Point], title: str) -> Figure:
    """A panel a measure: root mean square and median over the minutes of training."""
    measures = [score["measure"] for score in points[0]["network"]]
    figure = new_figure(*panels_size(1, len(measures)))
    add_heading(figure, title)
    panels = figure.subplots(1, len(measures), squeeze=False)[0]
    minutes = np.array([point["minutes"] for point in points])
    for column, (axes, name) in enumerate(zip(panels, measures, strict=True)):
        style_axes(axes, name)
        values = []
        for key, style in (("rmse", "-"), ("median", ":")):
            values.append(np.array([point["network"][column][key] for point in points]))
            line = {"color": CYCLE[0], "marker": "o", "markersize": 4, "label": NAMES[key]}
            axes.plot(minutes, values[-1], style, **line)
        axes.set_xscale("log")
        axes.set_xticks(minutes, [f"{minute:.3g}" for minute in minutes])
        axes.minorticks_off()
        log_scale_where_positive(axes, values)
        label_axes(axes, "minutes of training", points[0]["network"][column]["unit"])
    add_common_legend(figure, panels[0])
    return figure


if __name__ == "__main__":
    given = tyro.cli(Arguments)
    found = measure(given)
    folder = RESULTS / "world-curve" / given.preset
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"task": given.task, "preset": given.preset, "points": found}
    write_json(folder / f"{given.task}.json", facts)
    picture = PICTURES / f"world-curve-{given.preset}-{given.task}.png"
    heading = f"{given.task}, {given.preset}: error of the network probe on held-out episodes"
    save_figure(curve_figure(found, heading), picture)
    show_line(f"wrote {folder / given.task}.json and {picture}")

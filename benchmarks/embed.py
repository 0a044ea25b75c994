"""Frames a second: the stage `embed`, from file to file, beside its bare encoder, in one run.

The bare encoder is given frames that already lie in memory, and its latents are dropped. `embed()`
is timed as a whole: it loads and hashes the world model, reads the episode file, encodes, writes
the memory-mapped latents, and makes the folder complete (statistics, actions, a copy of the world
model, digests, fsync). Both normalise pixels. Sides take turns, so that other load on the machine
meets both.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import tyro
from torch import Tensor

from goalward import defaults
from goalward.core.console import show_line, show_table
from goalward.core.machine import usable_cpus, use_threads
from goalward.data.collect import CollectConfig, collect
from goalward.data.episodes import open_episodes
from goalward.presets import world_config
from goalward.world.checkpoint import load_world, save_world
from goalward.world.frozen import FrameEncoder
from goalward.world.latents import embed
from goalward.world.lewm import LeWM

WANTED = 0.8  # embed over the bare encoder
TASK = "two-room"


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Measure the speed of embedding."""

    episodes: int = 100
    """Episodes of Two-Room; they are collected first."""
    repeats: int = 5
    """Turns of each side; medians are shown."""
    threads: int | None = None
    """CPU threads of torch; its own choice where this is left out."""


def prepare(folder: Path, dataset: Path) -> Tensor:
    """Write an untrained world model of the `cpu` preset; returns the frames (N, H, W, 3)."""
    with open_episodes(dataset) as episodes:
        config = world_config("cpu", episodes, task=TASK).model
        frames = episodes.read("pixels", 0, episodes.num_rows)
    torch.manual_seed(0)
    save_world(folder, "best", LeWM(config), None)
    return torch.from_numpy(frames)


def encode_all(encoder: FrameEncoder, frames_NHWC: Tensor) -> None:
    """Encode frames that lie in memory, and drop the latents."""
    for batch in frames_NHWC.split(defaults.EMBED_BATCH):
        encoder(batch)


def seconds_of(work: Callable[[], object]) -> float:
    """How long one call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def measure(dataset: Path, folder: Path, repeats: int) -> tuple[int, float, float]:
    """Frames, and median seconds for all of them: the bare encoder's and `embed`'s."""
    world = folder / "world"
    frames_NHWC = prepare(world, dataset)
    encoder = FrameEncoder(load_world(world).model)
    # What either needs but once in a process, such as imports, is done before the first turn.
    encode_all(encoder, frames_NHWC[: defaults.EMBED_BATCH])
    embed(world, dataset, folder / "warm-up")
    bare, staged = [], []
    for turn in range(repeats):
        bare.append(seconds_of(partial(encode_all, encoder, frames_NHWC)))
        staged.append(seconds_of(partial(embed, world, dataset, folder / f"latents-{turn}")))
    return len(frames_NHWC), statistics.median(bare), statistics.median(staged)


def report(frames: int, bare: float, staged: float) -> int:
    """Print the table; exit code 1 when the ratio is below what is wanted."""
    ratio = bare / staged
    rows = [
        ("bare encoder, frames in memory", f"{frames / bare:,.0f}", "1.00x"),
        ("embed(), from file to file", f"{frames / staged:,.0f}", f"{ratio:.2f}x"),
    ]
    size, batch = defaults.IMAGE_SIZE, defaults.EMBED_BATCH
    title = f"Frames a second: {frames:,} of {size} px, batches of {batch}, encoder of preset cpu"
    show_table(title, ("embedding", "frames/s", "ratio"), rows)
    verdict = "ok" if ratio >= WANTED else "below"
    show_line(f"Ratio: {ratio:.2f}x, wanted {WANTED:.1f}x: {verdict}.")
    show_line(
        "Both normalise pixels. embed() alone loads and hashes the world model, reads the episode "
        "file, writes the latents and completes the folder; imports are in neither."
    )
    return 0 if ratio >= WANTED else 1


def main(arguments: Arguments) -> int:
    """Collect, measure and report."""
    use_threads(arguments.threads)
    config = CollectConfig.for_task(TASK, episodes=arguments.episodes)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        collect(config, folder / "episodes", workers=usable_cpus())
        return report(*measure(folder / "episodes", folder, arguments.repeats))


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Arguments)))

"""Embedding speed: `goalward.embed`, from file to file, and its bare encoder.

The bare encoder gets frames that already lie in memory, and its latents are dropped. `embed` is
timed as a whole: it loads and hashes the world model, reads the episode file, encodes, writes the
latents, and completes the folder. Both normalise pixels.
"""

from __future__ import annotations

import sys
import tempfile
from itertools import count
from pathlib import Path

import torch
import tyro
from torch import Tensor

import goalward as gw
from benchmarks.setting import rates_in_turns, show_rates
from goalward import defaults
from goalward.core.arrays import Array
from goalward.core.machine import use_threads
from goalward.presets import world_config
from goalward.world.checkpoint import load_world, save_world
from goalward.world.frozen import FrameEncoder
from goalward.world.lewm import LeWM

WANTED = 0.8  # embed over the bare encoder
TASK = "two-room"
BARE, STAGE = "bare encoder, frames in memory", "embed, from file to file"


def untrained_world(folder: Path, episodes: gw.Episodes) -> gw.World:
    """A world model of the preset `cpu` with initial weights."""
    torch.manual_seed(0)
    save_world(folder, "best", LeWM(world_config("cpu", episodes, task=TASK).model), None)
    return load_world(folder)


def encode_all(encoder: FrameEncoder, frames_NHWC: Tensor) -> None:
    """Encode frames that lie in memory, and drop the latents."""
    for batch in frames_NHWC.split(defaults.EMBED_BATCH):
        encoder(batch)


def measure(episodes: gw.Episodes, folder: Path, repeats: int) -> dict[str, Array]:
    """Frames per second of both sides in every turn."""
    world = untrained_world(folder / "world", episodes)
    encoder = FrameEncoder(world.model)
    frames_NHWC = torch.from_numpy(episodes.read("pixels", 0, episodes.num_rows))
    numbers = count()

    def stage() -> gw.Latents:
        target = folder / f"latents-{next(numbers)}"
        return gw.embed(folder / "world", episodes, target, device="cpu")

    works = {BARE: lambda: encode_all(encoder, frames_NHWC), STAGE: stage}
    calls = rates_in_turns(works, repeats)
    return {side: len(frames_NHWC) * found for side, found in calls.items()}


def main(episodes: int = 100, repeats: int = 5, threads: int | None = None) -> int:
    """Measure embedding speed; exit code 1 if the ratio is below what is wanted.

    Args:
        episodes: Episodes of Two-Room, which are collected first.
        repeats: Turns of each side.
        threads: CPU threads of torch (default: torch's choice).
    """
    use_threads(threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with gw.collect(TASK, folder / "episodes", num_episodes=episodes) as recorded:
            rates = measure(recorded, folder, repeats)
    title = f"Frames per second: {defaults.IMAGE_SIZE} px, batches of {defaults.EMBED_BATCH}"
    enough = show_rates(title, {BARE: rates[BARE]}, {STAGE: rates[STAGE]}, wanted=WANTED)
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(tyro.cli(main))

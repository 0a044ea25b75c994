"""Reading speed: random windows by goalward, in memory and streaming, and by stable-worldmodel."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import tyro

import goalward as gw
from benchmarks.setting import Work, rates_in_turns, show_rates

FRAMES, STRIDE, BATCH = 4, 5, 64  # a window of LeWM
COLUMNS = ("pixels", "action", "state")
UPSTREAM = "stable-worldmodel, one by one"
STREAMING, MEMORY = "goalward, streaming", "goalward, in memory"


def our_batches(episodes: gw.Episodes) -> Work:
    """Reads a random batch of windows at every call."""
    starts, rng = episodes.window_starts(FRAMES * STRIDE), np.random.default_rng(0)
    return lambda: episodes.windows(
        rng.choice(starts, BATCH), FRAMES, columns=COLUMNS, stride=STRIDE
    )


def their_batches(file: Path) -> Work:
    """The same with stable-worldmodel, whose dataset gives one window at a time."""
    from stable_worldmodel.data import load_dataset

    windows = load_dataset(
        str(file), num_steps=FRAMES, frameskip=STRIDE, keys_to_load=list(COLUMNS)
    )
    rng = np.random.default_rng(0)
    return lambda: [windows[int(number)] for number in rng.choice(len(windows), BATCH)]


def main(episodes: int = 200, repeats: int = 3, seconds: float = 2.0) -> int:
    """Measure reading speed.

    Args:
        episodes: Episodes of Two-Room, which are collected first.
        repeats: Turns of each reader.
        seconds: Length of a turn.
    """
    warnings.simplefilter("ignore")  # stable-worldmodel's own, about what nothing here uses
    with tempfile.TemporaryDirectory() as folder:
        os.environ["STABLEWM_HOME"] = folder
        recorded = gw.collect("two-room", Path(folder, "episodes"), num_episodes=episodes)
        with recorded:
            works = {
                UPSTREAM: their_batches(Path(recorded.path)),
                STREAMING: our_batches(recorded),
                MEMORY: our_batches(recorded.in_memory(COLUMNS)),
            }
            calls = rates_in_turns(works, repeats, seconds)
    rates = {side: BATCH * found for side, found in calls.items()}
    title = f"Windows per second: {FRAMES} frames of 64 px, stride {STRIDE}, batches of {BATCH}"
    show_rates(
        title,
        {UPSTREAM: rates[UPSTREAM]},
        {STREAMING: rates[STREAMING], MEMORY: rates[MEMORY]},
    )
    return 0


if __name__ == "__main__":
    sys.exit(tyro.cli(main))

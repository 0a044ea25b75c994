"""Random windows a second: goalward in memory and streaming, beside stable-worldmodel's reader."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from goalward.core.console import show_table
from goalward.core.machine import usable_cpus
from goalward.data.collect import CollectConfig, collect
from goalward.data.episodes import Episodes, open_episodes

EPISODES = 200  # of Two-Room: 20,200 frames of 64 pixels
FRAMES, STRIDE, BATCH = 4, 5, 64  # a window of LeWM
COLUMNS = ("pixels", "action", "state")
SECONDS = 4.0


def windows_per_second(read: Callable[[np.ndarray], object], starts: np.ndarray) -> float:
    """Call `read` with random batches of starts for a few seconds."""
    rng, count = np.random.default_rng(0), 0
    read(rng.choice(starts, BATCH))
    begin = time.perf_counter()
    while (now := time.perf_counter()) - begin < SECONDS:
        read(rng.choice(starts, BATCH))
        count += BATCH
    return count / (now - begin)


def ours(episodes: Episodes) -> Callable[[np.ndarray], object]:
    """Read a batch with goalward."""
    return lambda starts: episodes.windows(starts, FRAMES, columns=COLUMNS, stride=STRIDE)


def main(file: Path) -> None:
    """Measure the three readers on one file."""
    warnings.simplefilter("ignore")
    from stable_worldmodel.data import load_dataset

    with open_episodes(file) as episodes:
        starts = episodes.window_starts(FRAMES * STRIDE)
        streaming = windows_per_second(ours(episodes), starts)
        memory = windows_per_second(ours(episodes.in_memory(COLUMNS)), starts)
    theirs = load_dataset(str(file), num_steps=FRAMES, frameskip=STRIDE, keys_to_load=list(COLUMNS))
    upstream = windows_per_second(
        lambda chosen: [theirs[int(i)] for i in chosen], np.arange(len(theirs))
    )
    rows = [
        ("stable-worldmodel, one by one", f"{upstream:,.0f}", "1.0x"),
        ("goalward, streaming", f"{streaming:,.0f}", f"{streaming / upstream:.1f}x"),
        ("goalward, in memory", f"{memory:,.0f}", f"{memory / upstream:.1f}x"),
    ]
    title = f"Windows a second: {FRAMES} frames of 64 px, stride {STRIDE}, batches of {BATCH}"
    show_table(title, ("reader", "windows/s", "ratio"), rows)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["STABLEWM_HOME"] = folder
        config = CollectConfig.for_task("two-room", episodes=EPISODES)
        main(collect(config, Path(folder, "run"), workers=usable_cpus()).file)

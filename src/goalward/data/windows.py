"""Training windows: frames `frameskip` steps apart and the action blocks between them.

Every batch is a function of the seed and its step, so that a resumed training draws what an
uninterrupted one would have drawn, and several replicas can each take their share of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from goalward.core.config import PositiveFloat, config
from goalward.core.random import generator
from goalward.data.episodes import Episodes, Index

T = TypeVar("T")

MIN_STD = 1e-6  # an action number that never changes is left unscaled


@config
class ActionScaler:
    """Mean and standard deviation of every number of a raw action, over the training data."""

    mean: tuple[float, ...]
    std: tuple[PositiveFloat, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not self.mean:
            raise ValueError(
                f"mean and std must have the same length, got {len(self.mean)}, {len(self.std)}"
            )

    def normalise(self, actions: Tensor) -> Tensor:
        """Raw actions (..., A) to z-scores."""
        assert actions.shape[-1] == len(self.mean), "a last axis of 1 would be broadcast"
        return (actions - actions.new_tensor(self.mean)) / actions.new_tensor(self.std)

    def restore(self, z: Tensor) -> Tensor:
        """Z-scores (..., A) to raw actions."""
        assert z.shape[-1] == len(self.mean), "a last axis of 1 would be broadcast"
        return z * z.new_tensor(self.std) + z.new_tensor(self.mean)


def sizes(episodes: Episodes) -> tuple[int, int]:
    """The numbers of an action and the pixels a side of a frame, if world models can take them."""
    for name in ("pixels", "action"):
        if name not in episodes.columns:
            raise ValueError(f"{episodes.path}: has no column '{name}', which world models need")
    action, pixels = episodes.columns["action"].shape, episodes.columns["pixels"].shape
    if len(action) != 1 or not action[0]:
        raise ValueError(f"{episodes.path}: an action has shape {action}, expected (numbers,)")
    if len(pixels) != 3 or pixels[0] != pixels[1] or pixels[2] != 3:
        raise ValueError(f"{episodes.path}: a frame has shape {pixels}, expected (side, side, 3)")
    return action[0], pixels[0]


class Windows:
    """Windows of the chosen episodes, read by their numbers.

    Args:
        episodes: Read as they are; pass `episodes.in_memory(...)` for speed.
        chosen: Episode numbers.
        frames: Frames a window.
        frameskip: Environment steps between them.
        scale: How actions are z-scored.
    """

    def __init__(
        self, episodes: Episodes, chosen: Index, *, frames: int, frameskip: int, scale: ActionScaler
    ) -> None:
        self.frames = frames
        self.frameskip = frameskip
        self._episodes = episodes
        actions = (episodes.read("action") - np.array(scale.mean)) / np.array(scale.std)
        actions[episodes.offsets + episodes.lengths - 1] = 0.0  # has no action, and none is used
        self._actions = actions.astype(np.float32)
        self._starts = episodes.window_starts((frames - 1) * frameskip + 1, chosen)
        if not len(self._starts):
            raise ValueError(
                f"{episodes.path}: none of the {len(chosen)} chosen episodes has the "
                f"{(frames - 1) * frameskip + 1} rows of a window; collect longer episodes"
            )

    def __len__(self) -> int:
        """The number of windows."""
        return len(self._starts)

    def read(self, numbers: Index) -> tuple[Tensor, Tensor]:
        """uint8 frames (B, T, H, W, 3) and z-scored action blocks (B, T - 1, A)."""
        starts = self._starts[numbers]
        pixels = self._episodes.windows(
            starts, self.frames, columns=["pixels"], stride=self.frameskip
        )["pixels"]
        steps = (self.frames - 1) * self.frameskip
        actions = self._actions[starts[:, None] + np.arange(steps)]
        blocks = actions.reshape(len(starts), self.frames - 1, -1)
        return torch.from_numpy(pixels), torch.from_numpy(blocks)


def action_scale(episodes: Episodes, chosen: Index) -> ActionScaler:
    """Mean and standard deviation of the actions of the chosen episodes."""
    rows = episodes.window_starts(1, chosen)
    actions = episodes.read("action")[rows]
    known = actions[np.isfinite(actions).all(axis=1)].astype(np.float64)
    if not len(known):
        raise ValueError(f"{episodes.path}: its chosen episodes hold no actions")
    std = known.std(axis=0)
    return ActionScaler(
        mean=tuple(map(float, known.mean(axis=0))),
        std=tuple(map(float, np.where(std > MIN_STD, std, 1.0))),
    )


def batch_numbers(num_windows: int, batch: int, *, seed: int, step: int) -> Index:
    """The windows of a step's batch: every epoch goes through them once, in a new order."""
    epoch, place = divmod(step, num_windows // batch)
    return _epoch_order(num_windows, seed, epoch)[place * batch : (place + 1) * batch]


def prefetched(read: Callable[[int], T], steps: range) -> Iterator[T]:
    """`read(step)` for all steps in order, each read while the one before it is in use."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        pending = deque(pool.submit(read, step) for step in steps[:1])
        for step in steps:
            if step + 1 in steps:
                pending.append(pool.submit(read, step + 1))
            yield pending.popleft().result()


def require_finite_actions(episodes: Episodes) -> None:
    """Refuse a file with a NaN or an infinity in an action, but for the last of an episode."""
    actions = episodes.read("action")
    actions = actions.reshape(len(actions), -1)
    bad = np.flatnonzero(~np.isfinite(actions).all(axis=1))
    last = episodes.offsets + episodes.lengths - 1  # has no action, by the format
    inner = np.setdiff1d(bad, last)
    if inner.size:
        episode = int(np.searchsorted(episodes.offsets, inner[0], side="right")) - 1
        raise ValueError(
            f"{episodes.path}: the action of row {inner[0]} (step "
            f"{inner[0] - episodes.offsets[episode]} of episode {episode}) is not finite; "
            "repair or drop that episode"
        )


@lru_cache(maxsize=1)
def _epoch_order(num_windows: int, seed: int, epoch: int) -> Index:
    return generator("world-windows", seed, epoch).permutation(num_windows)

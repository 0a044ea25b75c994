"""The one split of episodes into training and held-out episodes.

The split depends on nothing but the seed and an episode's place in the file. Episodes appended
later leave it as it was, so that nobody trains on what used to be held out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from goalward.core.config import AtLeastTwo, NonNegative, config

NumEpisodes = Annotated[int, Field(ge=1, le=10**7)]  # more is a mistake


@config
class SplitConfig:
    """How episodes are held out from training."""

    seed: NonNegative = 0
    held_out_every: AtLeastTwo = 10  # one of every so many episodes


@dataclass(frozen=True)
class Split:
    """Sorted episode indices, int64; the two parts are disjoint and cover all episodes.

    Held-out episodes serve in turn as `validation`, by which weights and settings are chosen, and
    as `test`, from which results are reported: no result comes from an episode that a choice saw.
    """

    train: npt.NDArray[np.int64]
    held_out: npt.NDArray[np.int64]

    @property
    def validation(self) -> npt.NDArray[np.int64]:
        """Every second held-out episode, from the first on; they grow with the file."""
        return self.held_out[0::2]

    @property
    def test(self) -> npt.NDArray[np.int64]:
        """The other held-out episodes."""
        return self.held_out[1::2]


_DEFAULT = SplitConfig()


def split_episodes(num_episodes: int, config: SplitConfig = _DEFAULT) -> Split:
    """Hold out one episode of each consecutive block of `config.held_out_every` episodes.

    Each block's episode is drawn from (seed, block) alone. An incomplete last block follows the
    same draw, and so holds out nothing until the drawn episode has been collected. The first block
    draws among its first two episodes: so two episodes are enough for a split, and no episode ever
    changes sides as a file grows from two episodes on.
    """
    if num_episodes < 2:
        raise ValueError(f"a split needs at least 2 episodes, not {num_episodes}; collect more")
    blocks = range(-(-num_episodes // config.held_out_every))
    drawn = np.array([_held_out_of(block, config) for block in blocks], dtype=np.int64)
    held_out = drawn[drawn < num_episodes]
    train = np.setdiff1d(np.arange(num_episodes, dtype=np.int64), held_out)
    return Split(train=train, held_out=held_out)


def _held_out_of(block: int, config: SplitConfig) -> int:
    """The episode that a block holds out.

    The words of a seed sequence, unlike a generator's draws, never change between NumPy releases.
    """
    choices = config.held_out_every if block else 2
    word = np.random.SeedSequence((config.seed, block)).generate_state(1, np.uint64)[0]
    return block * config.held_out_every + int(word) % choices

"""Random generators: every draw of the package comes from one of these."""

from __future__ import annotations

import zlib

import numpy as np


def generator(purpose: str, seed: int, *index: int) -> np.random.Generator:
    """The generator of one purpose, such as the demonstrations of episode `index`.

    Different purposes, seeds and indices give independent streams: episode 3 of a collection and
    pair 3 of an evaluation share none of their draws.
    """
    word = zlib.crc32(purpose.encode())
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(word, *index)))


def torch_seed(purpose: str, seed: int, *index: int) -> int:
    """A seed for one of torch's generators, drawn from the generator of this purpose."""
    return int(generator(purpose, seed, *index).integers(2**63))

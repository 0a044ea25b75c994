"""Random generators: every draw of the package comes from one of these."""

from __future__ import annotations

import zlib

import numpy as np

from goalward.core.checks import format_value, whole_number


def generator(purpose: str, seed: int, *index: int) -> np.random.Generator:
    """The generator of one purpose, such as the demonstrations of episode `index`.

    Different purposes, seeds and indices give independent streams: episode 3 of a collection and
    pair 3 of an evaluation share none of their draws, whatever their seeds.

    Raises:
        ValueError: the seed or an index is no whole number of at least 0.
    """
    if not isinstance(purpose, str):
        raise ValueError(f"purpose must be a text, got {format_value(purpose)}")
    seed = whole_number(seed, "seed", least=0)
    key = [whole_number(part, "index", least=0, most=2**64 - 1) for part in index]
    word = zlib.crc32(purpose.encode())
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(word, *key)))

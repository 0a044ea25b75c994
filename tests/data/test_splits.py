"""The split of episodes into training and held-out episodes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goalward.data.splits import SplitConfig, split_episodes

configs = st.builds(SplitConfig, seed=st.integers(0, 2**40), held_out_every=st.integers(2, 15))


@given(st.integers(2, 60), configs)
def test_both_parts_are_sorted_not_empty_and_hold_each_episode_once(
    n: int, config: SplitConfig
) -> None:
    split = split_episodes(n, config)
    assert split.train.dtype == split.held_out.dtype == np.int64
    assert (np.diff(split.train) > 0).all()
    assert (np.diff(split.held_out) > 0).all()
    assert sorted([*split.train.tolist(), *split.held_out.tolist()]) == list(range(n))
    assert len(split.train) >= 1 and len(split.held_out) >= 1


@given(st.integers(2, 60), st.integers(0, 60), configs)
def test_appending_episodes_never_moves_one_to_the_other_side(
    n: int, more: int, config: SplitConfig
) -> None:
    before, after = split_episodes(n, config), split_episodes(n + more, config)
    assert set(before.train.tolist()) <= set(after.train.tolist())
    assert set(before.held_out.tolist()) <= set(after.held_out.tolist())


@given(st.integers(1, 8), configs)
def test_every_full_block_holds_out_exactly_one_episode(blocks: int, config: SplitConfig) -> None:
    held_out = split_episodes(blocks * config.held_out_every, config).held_out
    assert (held_out // config.held_out_every).tolist() == list(range(blocks))


def test_the_place_in_a_block_is_drawn_and_not_fixed() -> None:
    places = split_episodes(10_000).held_out[1:] % 10
    counts = np.bincount(places, minlength=10)
    assert counts.min() > 60  # 100 expected at each of the 10 places
    assert counts.max() < 140


def test_another_seed_holds_out_other_episodes() -> None:
    one, other = (split_episodes(500, SplitConfig(seed=seed)).held_out for seed in (0, 1))
    assert not np.array_equal(one, other)


def test_the_split_is_the_same_on_every_machine() -> None:
    assert split_episodes(60).held_out.tolist() == [0, 16, 23, 39, 46, 57]


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_episodes_are_refused(n: int) -> None:
    with pytest.raises(ValueError, match=f"at least 2 episodes, not {n}"):
        split_episodes(n)

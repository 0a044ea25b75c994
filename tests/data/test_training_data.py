"""What trainings read: windows and their order, the scale of actions, the split, a file's id."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from world_helpers import write_dots

from goalward.core.artifacts import load_manifest
from goalward.data.collect import CollectConfig, collect
from goalward.data.episodes import episodes_id, open_episodes
from goalward.data.splits import split_episodes
from goalward.data.windows import ActionScaler, Windows, action_scale, batch_numbers, prefetched

SCALE = ActionScaler(mean=(0.5, -1.0), std=(2.0, 0.25))


def test_windows_hold_the_actions_between_their_frames(dots: Path) -> None:
    with open_episodes(dots) as episodes:
        chosen = np.array([1, 3])
        scale = action_scale(episodes, chosen)
        windows = Windows(episodes, chosen, frames=4, frameskip=2, scale=scale)
        assert len(windows) == 2 * (32 - 6)
        frames, blocks = windows.read(np.array([0, 30]))
        whole = episodes.episode(3)
        start = 30 - 26
        assert np.array_equal(frames[1].numpy(), whole["pixels"][start : start + 7 : 2])
        raw = scale.restore(blocks[1].reshape(-1, 2)).numpy()
        np.testing.assert_allclose(raw, whole["action"][start : start + 6], atol=1e-6)


def test_every_epoch_takes_each_window_once_in_a_new_order() -> None:
    epochs = [
        np.concatenate([batch_numbers(12, 4, seed=1, step=3 * epoch + k) for k in range(3)])
        for epoch in range(2)
    ]
    assert all(sorted(order) == list(range(12)) for order in epochs)
    assert not np.array_equal(epochs[0], epochs[1])
    assert list(prefetched(lambda step: step * step, range(3, 7))) == [9, 16, 25, 36]
    assert list(prefetched(lambda step: step, range(3, 3))) == []


def test_actions_are_scaled_and_restored() -> None:
    actions = torch.tensor([[2.5, -1.0], [0.5, -0.5]])
    z = SCALE.normalise(actions)
    assert torch.equal(z, torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    assert torch.equal(SCALE.restore(z), actions)
    double = SCALE.normalise(actions.double().expand(3, 2, 2))
    assert double.dtype == torch.float64 and double.shape == (3, 2, 2)


@pytest.mark.parametrize(
    ("mean", "std"), [((0.0,), (1.0, 1.0)), ((), ()), ((math.nan,), (1.0,)), ((0.0,), (0.0,))]
)
def test_a_scale_that_cannot_be_undone_is_refused(
    mean: tuple[float, ...], std: tuple[float, ...]
) -> None:
    with pytest.raises(ValueError, match=r"mean|std"):
        ActionScaler(mean=mean, std=std)


def test_held_out_episodes_serve_as_validation_or_as_test_never_as_both() -> None:
    for number in (2, 40, 41, 200):
        split = split_episodes(number)
        parts = [split.train, split.validation, split.test]
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(number))
    longer = split_episodes(60)
    assert np.array_equal(split_episodes(40).test, longer.test[longer.test < 40])


def test_a_file_beside_a_stages_own_has_another_id(tmp_path: Path) -> None:
    stage = tmp_path / "stage"
    collect(CollectConfig.for_task("two-room", episodes=2, episode_steps=3), stage, workers=1)
    shutil.copy(write_dots(tmp_path / "dots"), stage / "other.h5")
    found = []
    for name in ("episodes.h5", "other.h5"):
        with open_episodes(stage / name) as episodes:
            found.append(episodes_id(episodes))
    assert found[0] == load_manifest(stage).id != found[1]

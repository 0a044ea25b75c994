"""Files of others: the public datasets, and what stable-worldmodel reads and writes."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
import torch

from episode_helpers import LENGTHS, all_rows, make_episode
from goalward.core.arrays import Array
from goalward.data import foreign
from goalward.data.episodes import Episodes, open_episodes


def write_public(path: Path, content: dict[str, Array], chunk: int) -> None:
    """A file as the public datasets have it: another spelling, another codec, text columns."""
    pixels = content["pixels"]
    with h5py.File(path, "w") as file:
        codec = hdf5plugin.Blosc(cname="zstd")
        file.create_dataset("pixels", data=pixels, chunks=(chunk, 8, 8, 3), **codec)
        file.create_dataset("action", data=content["action"], chunks=(1, 2))
        file.create_dataset("ep_len", data=np.array(LENGTHS, np.int64))
        file.create_dataset("ep_idx", data=np.repeat(np.arange(4), LENGTHS))
        file.create_dataset("text", data=["push the block"] * len(pixels))
        file.create_dataset("name", data=np.array([b"abc"] * len(pixels)))
        file.create_dataset("fps", data=10)
        file.create_group("meta")


@pytest.mark.parametrize("chunk", [1, 3, 16, 44])
def test_the_layout_of_the_public_datasets_is_read(
    tmp_path: Path, content: dict[str, Array], chunk: int
) -> None:
    write_public(tmp_path / "public.h5", content, chunk)
    with open_episodes(tmp_path / "public.h5") as episodes:
        assert sorted(episodes.columns) == ["action", "episode_idx", "pixels"]
        assert episodes.offsets.tolist() == [0, 7, 19, 24]
        assert episodes.rows("episode_idx", [0, 7, 43]).tolist() == [0, 1, 3]
        got = episodes.windows([30, 7, 7, 24], 4, columns=["pixels", "action"], stride=3)
        for name, windows in got.items():
            for window, s in zip(windows, (30, 7, 7, 24), strict=True):
                np.testing.assert_array_equal(window, content[name][s : s + 10 : 3])
        np.testing.assert_array_equal(episodes.read("pixels", 2, 41), content["pixels"][2:41])


# stable-worldmodel


@pytest.fixture
def worldmodel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("STABLEWM_HOME", str(tmp_path / "stable-worldmodel"))
    return pytest.importorskip("stable_worldmodel.data")


def test_stable_worldmodel_reads_our_files(
    worldmodel: Any, merged: Path, content: dict[str, Array]
) -> None:
    dataset = worldmodel.load_dataset(str(merged), frameskip=2, num_steps=3)
    with open_episodes(merged) as episodes:
        starts = episodes.window_starts(span=6)
        assert len(dataset) == len(starts)
        for k in (0, 9, len(starts) - 1):
            item, s = dataset[k], starts[k]
            ours = episodes.windows([s], 3, columns=["pixels", "state"], stride=2)
            pixels = item["pixels"].numpy().transpose(0, 2, 3, 1)
            np.testing.assert_array_equal(pixels, ours["pixels"][0])
            np.testing.assert_array_equal(item["state"].numpy(), ours["state"][0])
            actions = content["action"][s : s + 6].reshape(3, 4)
            np.testing.assert_array_equal(item["action"].numpy(), actions)


@pytest.mark.parametrize("order", ["theirs first", "ours first"])
def test_a_file_may_be_open_for_stable_worldmodel_and_for_us(
    worldmodel: Any, merged: Path, order: str
) -> None:
    dataset = worldmodel.load_dataset(str(merged))
    with open_episodes(merged) as episodes:
        if order == "theirs first":
            theirs, ours = dataset[3]["state"].numpy(), episodes.read("state", 3, 4)
        else:
            ours, theirs = episodes.read("state", 3, 4), dataset[3]["state"].numpy()
        np.testing.assert_array_equal(ours, theirs)


# Its reader wraps immutable bytes (and filters the warning, but pytest resets the filters), and
# decodes JPEG with a function that torchvision has since deprecated.
@pytest.mark.filterwarnings("ignore:The given buffer is not writable:UserWarning")
@pytest.mark.filterwarnings("ignore:The image decoding and encoding:DeprecationWarning")
def test_lance_folders_are_read(worldmodel: Any, tmp_path: Path) -> None:
    flat = [{**make_episode(k, n), "pixels": smooth(n)} for k, n in enumerate((5, 9))]
    lance = worldmodel.get_format("lance")
    with lance.open_writer(tmp_path / "demo.lance") as writer:
        writer.write_episodes({k: list(v) for k, v in episode.items()} for episode in flat)
    expected = all_rows(flat)
    with open_episodes(tmp_path / "demo.lance") as episodes:
        check_foreign(episodes, expected)
        with pickle.loads(pickle.dumps(episodes)) as copy:
            check_foreign(copy, expected)
    with open_episodes(tmp_path) as again:  # the only dataset of a folder
        check_foreign(again.in_memory(), expected)


def smooth(rows: int) -> Array:
    """Frames that JPEG keeps nearly as they are: (rows, 16, 16, 3)."""
    ramp = np.linspace(0, 200, 16)[None, :, None, None] + 5 * np.arange(rows)[:, None, None, None]
    return np.broadcast_to(ramp, (rows, 16, 16, 3)).astype(np.uint8)


def check_foreign(episodes: Episodes, expected: dict[str, Array]) -> None:
    assert episodes.lengths.tolist() == [5, 9]
    assert episodes.columns["pixels"].shape == (16, 16, 3)
    assert episodes.columns["pixels"].dtype == np.uint8
    index = [13, 0, 5, 5]
    difference = episodes.rows("pixels", index).astype(int) - expected["pixels"][index]
    assert np.abs(difference).max() <= 4  # JPEG at quality 95
    got = episodes.windows([5, 8], 3, columns=["action", "state"], stride=2)
    assert got["action"].shape == (2, 3, 2)
    np.testing.assert_array_equal(got["action"][0], expected["action"][5:10:2])
    np.testing.assert_allclose(got["state"][1], expected["state"][8:13:2], rtol=1e-6)
    assert np.flatnonzero(~episodes.has_action()).tolist() == [4, 13]
    assert episodes.read("episode_idx", 4, 6).tolist() == [0, 1]
    assert episodes.read("step_idx", 4, 6).tolist() == [4, 0]


def test_a_broken_lance_folder_is_refused(worldmodel: Any, tmp_path: Path) -> None:
    (tmp_path / "demo.lance").mkdir()
    with pytest.raises(ValueError, match=r"cannot read .*demo\.lance") as caught:
        open_episodes(tmp_path / "demo.lance")
    assert "\n" not in str(caught.value)


class _LeRobotLike:
    """Float images from 0 to 1, `ep_idx` and no batched access, as the LeRobot adapter has them."""

    lengths = (3, 4)
    pixels = np.random.default_rng(0).integers(0, 256, (7, 3, 6, 5), dtype=np.uint8)
    action = np.arange(14, dtype=np.float32).reshape(7, 2)

    def __getitem__(self, k: int) -> dict[str, Any]:
        image = self.pixels[k : k + 1].astype(np.float32) / 255
        item: dict[str, Array] = {
            "pixels": image,
            "action": self.action[k : k + 1],
            "ep_idx": np.zeros(1, int),
        }
        return {**{name: torch.from_numpy(one) for name, one in item.items()}, "task": "push"}

    def get_col_data(self, name: str) -> Array:
        assert name == "action"
        return self.action


@pytest.mark.parametrize("name", ["lerobot://lerobot/pusht", Path("lerobot://lerobot/pusht")])
def test_lerobot_images_become_bytes(name: str | Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def load(name: str, **options: Any) -> Any:
        asked.append(name)
        return _LeRobotLike()

    monkeypatch.setattr(foreign, "_load", load)
    with open_episodes(name) as episodes:
        assert sorted(episodes.columns) == ["action", "episode_idx", "pixels", "step_idx"]
        got = episodes.read("pixels", 0, 7)
        np.testing.assert_array_equal(got, _LeRobotLike.pixels.transpose(0, 2, 3, 1))
        np.testing.assert_array_equal(episodes.rows("action", [6, 1]), [[12, 13], [2, 3]])
    assert set(asked) == {"lerobot://lerobot/pusht"}


def test_without_lerobot_the_package_to_install_is_named(worldmodel: Any) -> None:
    try:
        import lerobot  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        with pytest.raises(ValueError, match=r"package lerobot.* pip install 'stable-worldmodel"):
            open_episodes("lerobot://lerobot/pusht")


def test_without_stable_worldmodel_the_extra_to_install_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "demo.lance").mkdir()
    monkeypatch.setitem(sys.modules, "stable_worldmodel.data", None)
    with pytest.raises(ValueError, match=r"pip install 'goalward\[sim\]'"):
        open_episodes(tmp_path / "demo.lance")

"""Reading Lance folders and LeRobot datasets through stable-worldmodel's own readers."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from goalward.core.arrays import Array
from goalward.core.checks import one_line
from goalward.data.episodes import Column, Episodes, Index

_IMAGES_AT_ONCE = 512  # decoded images fetched in one call, so that memory stays bounded


class ForeignEpisodes(Episodes):
    """A dataset that stable-worldmodel reads; each process opens it for itself.

    Images come as (N, H, W, 3) uint8 whatever the dataset stores. `episode_idx` and `step_idx` are
    always there, made from the episode lengths; text columns are left out.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tables: Any = _load(name)
        if len(self._tables.lengths) == 0:
            raise ValueError(f"{name} holds no episodes")
        sample = self._tables[0]  # one row, as tensors
        found = {key: value for key, value in sample.items() if hasattr(value, "ndim")}
        # The readers give images as (1, 3, H, W).
        self._image_names = [k for k, v in found.items() if v.ndim == 4 and v.shape[1] == 3]
        self._images: Any = None
        columns = {
            key: self._column(key, value.numpy()) for key, value in found.items() if key != "ep_idx"
        }
        int64 = np.dtype(np.int64)
        columns |= {key: Column(key, (), int64) for key in ("episode_idx", "step_idx")}
        lengths = np.asarray(self._tables.lengths, dtype=np.int64)
        super().__init__(Path(name), lengths, dict(sorted(columns.items())), {})

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tables": None, "_images": None}

    def close(self) -> None:
        """Let go of the dataset; a later read opens it again."""
        self._tables = self._images = None

    def _column(self, name: str, row: Array) -> Column:
        if name in self._image_names:
            return Column(name, (*row.shape[2:], 3), np.dtype(np.uint8))
        return Column(name, row.shape[1:], row.dtype)

    def _rows(self, column: str, index: Index) -> Array:
        if column in self._image_names:
            return self._image_rows(column, index)
        if column in ("episode_idx", "step_idx"):
            episode = np.searchsorted(self.offsets, index, side="right") - 1
            return episode if column == "episode_idx" else index - self.offsets[episode]
        if self._tables is None:
            self._tables = _load(self._name)
        # The reader keeps a column it has read once, in one dimension more or less than a sample.
        kind = self.columns[column]
        values = np.asarray(self._tables.get_col_data(column))[index]
        return values.reshape(len(index), *kind.shape).astype(kind.dtype, copy=False)

    def _image_rows(self, column: str, index: Index) -> Array:
        if self._images is None:
            self._images = _load(self._name, keys_to_load=self._image_names)
        out = np.empty((len(index), *self.columns[column].shape), dtype=np.uint8)
        for start in range(0, len(index), _IMAGES_AT_ONCE):
            some = index[start : start + _IMAGES_AT_ONCE].tolist()
            for k, item in enumerate(_items(self._images, some)):
                out[start + k] = _as_bytes(item[column].numpy()[0].transpose(1, 2, 0))
        return out


def _load(name: str, **options: Any) -> Any:
    """Open a dataset in windows of one row, whose item k is therefore row k of all episodes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # third-party deprecations nobody here can act on
            from stable_worldmodel.data import load_dataset
    except ImportError as error:
        raise ValueError(
            f"reading {name} needs stable-worldmodel ({error}); run: pip install 'goalward[sim]'"
        ) from error
    try:
        return load_dataset(name, **options)
    except ImportError as error:
        raise ValueError(
            f"reading {name} needs the package lerobot, on Python 3.12 or newer; "
            "run: pip install 'stable-worldmodel[format]'"
        ) from error
    except (KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        reason = one_line(str(error))
        raise ValueError(f"stable-worldmodel cannot read {name}: {reason}") from error


def _items(dataset: Any, index: list[int]) -> list[dict[str, Any]]:
    """Items of a dataset, in one call where its reader can."""
    if hasattr(dataset, "__getitems__"):
        batch: list[dict[str, Any]] = dataset.__getitems__(index)
        return batch
    return [dataset[k] for k in index]


def _as_bytes(image: Array) -> Array:
    """An image as uint8: LeRobot's are floats from 0 to 1, which are multiples of 1/255."""
    if image.dtype == np.uint8:
        return image
    scaled: Array = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    return scaled

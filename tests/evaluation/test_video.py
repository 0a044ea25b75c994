"""Pictures of episodes: what happened when, and whether it was a success."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.ImageColor import getrgb

from goalward.bundle import bundled_pairs
from goalward.core.arrays import Array
from goalward.core.figures import GREEN, VERMILION
from goalward.evaluation.specs import resolve_controllers
from goalward.evaluation.video import (
    Strip,
    require_pairs,
    save_comparison,
    save_filmstrip,
    save_gif,
)
from goalward.tasks import get_task
from picture_helpers import pixels


def frames(number: int) -> Array:
    """Frame t is grey, and brighter than the one before."""
    values = 20 + 5 * np.arange(number, dtype=np.uint8)
    return np.broadcast_to(values[:, None, None, None], (number, 32, 32, 3)).copy()


def strip(number: int, success: bool | None, label: str = "cem") -> Strip:
    return Strip(label=label, frames=frames(number), success=success)


START, GOAL = frames(2)
DEMONSTRATION, SOLVED, FAILED = strip(6, None, "demonstration"), strip(8, True), strip(21, False)


def has(image: Array, colour: str) -> bool:
    return bool((image == getrgb(colour)).all(axis=-1).any())


def greys(image: Array) -> set[int]:
    """The values of the frames that are shown: large areas of one grey."""
    grey = image[(image == image[..., :1]).all(axis=-1)][:, 0]
    return set(np.flatnonzero(np.bincount(grey)[:150] >= 2000).tolist())


def sheet(path: Path, *strips: Strip, columns: int = 10) -> Array:
    save_filmstrip(path, START, GOAL, strips, title="Push-T", columns=columns)
    return pixels(path)


def pages(path: Path) -> list[tuple[Array, int]]:
    """A GIF's pages and the milliseconds that each stays."""
    with Image.open(path) as image:
        assert image.format == "GIF" and image.info["loop"] == 0
        found = []
        for page in range(getattr(image, "n_frames", 1)):
            image.seek(page)
            found.append((np.asarray(image.convert("RGB")), int(image.info["duration"])))
        return found


@pytest.mark.parametrize(
    ("success", "green", "red"), [(True, True, False), (False, False, True), (None, False, False)]
)
def test_the_filmstrip_shows_success_by_its_border(
    tmp_path: Path, success: bool | None, green: bool, red: bool
) -> None:
    image = sheet(tmp_path / "a.png", strip(8, success))
    assert (has(image, GREEN), has(image, VERMILION)) == (green, red)


def test_controllers_share_a_time_axis_and_a_demonstration_has_its_own(tmp_path: Path) -> None:
    steps = [0, 5, 10, 15, 20]  # of the longest; the solved one stays at its step 7
    both = sheet(tmp_path / "a.png", SOLVED, FAILED, columns=5)
    assert greys(both) == {20 + 5 * t for t in (*steps, 7, 1)}  # 1: the goal
    own = sheet(tmp_path / "b.png", DEMONSTRATION, FAILED, columns=2)
    assert greys(own) == {20 + 5 * t for t in (0, 5, 20, 1)}
    few = sheet(tmp_path / "c.png", strip(3, None))  # fewer frames than columns: each once
    assert greys(few) == {20, 25, 30}


def test_the_gif_has_a_page_for_every_step_and_shows_how_each_strip_ended(tmp_path: Path) -> None:
    save_gif(tmp_path / "a.gif", np.full_like(GOAL, 255), [SOLVED, FAILED])
    found = pages(tmp_path / "a.gif")
    assert [stays for _, stays in found] == [100] * 20 + [1000]

    def near(page: Array, colour: str) -> bool:  # a page has 256 colours of its own
        return bool((np.abs(page.astype(int) - getrgb(colour)).sum(axis=-1) < 20).any())

    assert [near(page, GREEN) for page, _ in found] == [False] * 7 + [True] * 14
    assert [near(page, VERMILION) for page, _ in found] == [False] * 20 + [True]


@pytest.mark.parametrize("kind", ["png", "gif"])
def test_the_same_input_gives_the_same_bytes(tmp_path: Path, kind: str) -> None:
    written = []
    for name in ("a", "b"):
        path = tmp_path / f"{name}.{kind}"
        if kind == "png":
            sheet(path, DEMONSTRATION, SOLVED, FAILED)
        else:
            save_gif(path, GOAL, [DEMONSTRATION, SOLVED, FAILED])
        written.append(path.read_bytes())
    assert written[0] == written[1]


def test_a_pair_is_drawn_with_its_demonstration_and_every_controller_once(tmp_path: Path) -> None:
    pairs = bundled_pairs("two-room", 2)
    specs, _ = resolve_controllers(get_task("two-room"), ["zero", "random"], seeds=[0, 1])
    paths = save_comparison(tmp_path, pairs, specs, numbers=[1], budget=4)
    assert [path.suffix for path in paths] == [".png", ".gif"]
    assert len(pages(paths[1])) == 26  # the demonstration has 25 steps
    before = [path.stat().st_mtime_ns for path in paths]
    assert save_comparison(tmp_path, pairs, specs, numbers=[1], budget=4) == paths
    assert [path.stat().st_mtime_ns for path in paths] == before
    with pytest.raises(ValueError, match="no pair 2, only 0 to 1"):
        require_pairs([2], len(pairs))

"""Attempts as pictures: who got where, when, and whether that was the goal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from PIL.ImageColor import getrgb

from goalward.core.arrays import Array
from goalward.core.figures import GREEN, VERMILION
from goalward.evaluation import video as filmstrip
from goalward.evaluation.video import Strip, save_filmstrip, save_gif
from picture_helpers import pixels

SIDE = 32  # shown at 96: three times
ROW = 96 + 2 * 12 + 8  # a frame, its caption, a gap


def frames(number: int, side: int = SIDE) -> Array:
    """Frame t is grey, and brighter than the one before."""
    values = 20 + 2 * np.arange(number, dtype=np.uint8)
    return np.broadcast_to(values[:, None, None, None], (number, side, side, 3)).copy()


def strip(number: int, success: bool | None, label: str = "CEM") -> Strip:
    return Strip(label=label, frames=frames(number), success=success)


START, GOAL = frames(2)
DEMONSTRATION, SOLVED, FAILED = strip(6, None, "demonstration"), strip(8, True), strip(21, False)


def sheet(path: Path, *strips: Strip, columns: int = 10, title: str = "Push-T") -> Array:
    save_filmstrip(path, START, GOAL, strips, title=title, columns=columns)
    return pixels(path)


def has(image: Array, colour: str) -> bool:
    return bool((image == getrgb(colour)).all(axis=-1).any())


def runs(image: Array, colour: str) -> int:
    """How many borders of the colour stand side by side, from their longest unbroken lines."""
    same = (image == getrgb(colour)).all(axis=-1)
    sides = [x for x in np.flatnonzero(same.sum(axis=0) >= 96) if longest(same[:, x]) >= 96]
    return len(sides) // 6  # three pixels at the left and three at the right


def longest(line: Array) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(int), [0]])))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def greys(image: Array) -> set[int]:
    """The values of the frames that are shown as they are: large areas of one grey."""
    grey = image[(image == image[..., :1]).all(axis=-1)][:, 0]
    return set(np.flatnonzero(np.bincount(grey)[:150] >= 96 * 96).tolist())


def pages(path: Path) -> list[tuple[Array, int]]:
    """A GIF's pages and the milliseconds that each stays."""
    with Image.open(path) as image:
        assert image.format == "GIF"
        found = []
        for page in range(getattr(image, "n_frames", 1)):
            image.seek(page)
            found.append((np.asarray(image.convert("RGB")), int(image.info["duration"])))
        return found


def test_the_filmstrip_has_a_row_for_every_strip_and_room_for_start_and_goal(
    tmp_path: Path,
) -> None:
    three = sheet(tmp_path / "a.png", DEMONSTRATION, SOLVED, FAILED)
    two = sheet(tmp_path / "b.png", SOLVED, FAILED)
    one = sheet(tmp_path / "c.png", SOLVED)
    assert three.shape[0] - two.shape[0] == ROW
    assert two.shape[0] == one.shape[0]
    assert tuple(three[0, 0]) == (255, 255, 255)


def test_every_column_adds_a_frame_and_a_gap(tmp_path: Path) -> None:
    widths = [sheet(tmp_path / "a.png", FAILED, columns=n).shape[1] for n in (5, 6, 9)]
    assert np.diff(widths).tolist() == [96 + 8, 3 * (96 + 8)]


def test_a_long_title_widens_the_sheet_instead_of_being_cut(tmp_path: Path) -> None:
    image = sheet(tmp_path / "a.png", SOLVED, columns=2, title="a long title " * 12)
    assert image.shape[1] > sheet(tmp_path / "b.png", SOLVED, columns=2).shape[1]
    assert (image[:, -8:] == 255).all()


def test_large_frames_keep_their_size_and_small_ones_grow_by_a_whole_factor(
    tmp_path: Path,
) -> None:
    for side, shown in ((32, 96), (33, 99), (64, 128), (120, 120)):
        image = Image.fromarray(frames(1, side)[0])
        path = tmp_path / "a.png"
        only = Strip(label="CEM", frames=frames(2, side), success=None)
        save_filmstrip(path, np.asarray(image), np.asarray(image), [only], title="", columns=2)
        line = pixels(path)[:, 2 * (shown // 12)]  # through start and goal
        assert longest((line == 20).all(axis=-1)) == shown


def test_start_and_goal_stand_at_the_left_one_above_the_other(tmp_path: Path) -> None:
    start, goal = np.full_like(START, 90), np.full_like(GOAL, 130)
    path = tmp_path / "a.png"
    save_filmstrip(path, start, goal, [DEMONSTRATION, SOLVED, FAILED], title="")
    left = pixels(path)[:, 16 : 16 + 96]
    first, second = (int(np.flatnonzero((left == v).all(axis=(1, 2)))[0]) for v in (90, 130))
    assert second - first == 2 * ROW


@pytest.mark.parametrize(
    ("success", "colour", "other"), [(True, GREEN, VERMILION), (False, VERMILION, GREEN)]
)
def test_a_verdict_has_a_border_of_its_colour(
    tmp_path: Path, success: bool, colour: str, other: str
) -> None:
    image = sheet(tmp_path / "a.png", strip(8, success))
    assert runs(image, colour) == 1
    assert not has(image, other)


def test_a_demonstration_is_not_judged(tmp_path: Path) -> None:
    image = sheet(tmp_path / "a.png", DEMONSTRATION)
    assert not has(image, GREEN) and not has(image, VERMILION)


def test_a_verdict_shows_without_its_colour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filmstrip, "COLOURS", dict.fromkeys((None, True, False), "#333333"))
    monkeypatch.setattr(filmstrip, "SHADE", 0.0)
    solved = sheet(tmp_path / "a.png", strip(8, True))
    failed = sheet(tmp_path / "b.png", strip(8, False))
    caption = slice(45 + 96 + 3, 45 + ROW)  # below the first row, where all but the mark is equal
    width = min(solved.shape[1], failed.shape[1])
    assert (solved[caption, :width] != failed[caption, :width]).any()
    assert strip(8, True).outcome == "solved in 7 steps"
    assert strip(2, False).outcome == "failed after 1 step"
    assert strip(8, None).outcome == "7 steps"


def test_judged_strips_share_the_longest_ones_time_axis(tmp_path: Path) -> None:
    image = sheet(tmp_path / "a.png", SOLVED, FAILED, columns=5)  # steps 0, 5, 10, 15, 20
    solved, failed = image[: -ROW - 8], image[-ROW - 8 :]
    assert runs(solved, GREEN) == 3  # solved in 7 steps
    assert runs(failed, VERMILION) == 1
    assert greys(solved[:, 16 + 96 + 8 :]) == {20, 30}
    assert greys(failed[:, 16 + 96 + 8 :]) == {20, 30, 40, 50, 60}


def test_the_last_frame_is_shaded_from_success_on_and_not_after_failure(tmp_path: Path) -> None:
    for success, shaded in ((True, True), (False, False)):
        image = sheet(tmp_path / "a.png", strip(3, success), strip(5, False, "longer"), columns=5)
        first = image[: -ROW - 8]
        assert greys(first[:, 16 + 96 + 8 :]) == ({20, 22} if shaded else {20, 22, 24})


def test_a_demonstration_has_its_own_time_axis(tmp_path: Path) -> None:
    image = sheet(tmp_path / "a.png", DEMONSTRATION, FAILED, columns=6)
    assert greys(image[: -ROW - 8, 16 + 96 + 8 :]) == {20, 22, 24, 26, 28, 30}


def test_fewer_frames_than_columns_show_each_once(tmp_path: Path) -> None:
    few = sheet(tmp_path / "a.png", strip(3, None), columns=10)
    assert greys(few[:, 16 + 96 + 8 :]) == {20, 22, 24}
    assert few.shape == sheet(tmp_path / "b.png", strip(3, None), columns=3).shape
    assert runs(sheet(tmp_path / "c.png", strip(1, True)), GREEN) == 1  # begins at the goal


def test_the_gif_has_a_page_for_every_step_of_the_longest_strip_and_loops(tmp_path: Path) -> None:
    path = tmp_path / "a.gif"
    save_gif(path, GOAL, [DEMONSTRATION, SOLVED, FAILED], frames_per_second=20)
    assert [stays for _, stays in pages(path)] == [50] * 20 + [1000]
    with Image.open(path) as image:
        assert image.info["loop"] == 0


def test_a_gif_of_frames_that_do_not_change_keeps_its_pages(tmp_path: Path) -> None:
    still = Strip(label="random", frames=np.repeat(frames(1), 12, axis=0), success=False)
    save_gif(tmp_path / "a.gif", GOAL, [still])
    assert [stays for _, stays in pages(tmp_path / "a.gif")] == [100] * 11 + [1000]


def test_a_gif_of_a_single_frame_is_written_too(tmp_path: Path) -> None:
    save_gif(tmp_path / "a.gif", GOAL, [strip(1, True)])
    ((page, stays),) = pages(tmp_path / "a.gif")
    assert stays == 1000 and has(page, GREEN)


def test_a_strip_of_the_gif_gets_its_border_when_it_ends_and_holds_its_last_frame(
    tmp_path: Path,
) -> None:
    save_gif(tmp_path / "a.gif", np.full_like(GOAL, 255), [SOLVED, FAILED])
    shown = [page for page, _ in pages(tmp_path / "a.gif")]
    assert [runs(page, GREEN) for page in shown] == [0] * 7 + [1] * 14
    assert [runs(page, VERMILION) for page in shown] == [0] * 20 + [1]
    assert [greys(page) for page in shown] == [
        {20 + 2 * min(t, 7), 20 + 2 * t} for t in range(len(shown))
    ]


def test_a_gif_of_many_colours_stays_close_to_them(tmp_path: Path) -> None:
    across, down = np.meshgrid(np.arange(SIDE) * 8, np.arange(SIDE) * 8)
    frame = np.stack([across, down, (across + down) // 2], axis=-1).astype(np.uint8)
    save_gif(tmp_path / "a.gif", frame, [Strip(label="", frames=frame[None], success=None)])
    ((page, _),) = pages(tmp_path / "a.gif")
    panel = page[29 : 29 + 96 : 3, 16 : 16 + 96 : 3].astype(int)  # below the label
    assert np.abs(panel - frame).mean() < 6


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


def broken(value: Array) -> list[Strip]:
    return [SOLVED, Strip(label="GC-IDM", frames=value, success=False)]


WRONG: dict[str, tuple[list[Strip], str]] = {
    "no strips": ([], "strips: there are none"),
    "no frames": (broken(frames(0)), "frames of 'GC-IDM'"),
    "floats": (broken(frames(2).astype(np.float32)), "frames of 'GC-IDM': float32"),
    "one frame": (broken(frames(1)[0]), "frames of 'GC-IDM'"),
    "four channels": (broken(np.zeros((2, SIDE, SIDE, 4), np.uint8)), "frames of 'GC-IDM'"),
    "oblong": (broken(np.zeros((2, SIDE, 9, 3), np.uint8)), "frames of 'GC-IDM'"),
    "another size": (broken(frames(2, 16)), "frames of 'GC-IDM': 16 pixels a side"),
}


def png(path: Path, strips: list[Strip]) -> None:
    save_filmstrip(path, START, GOAL, strips, title="")


def gif(path: Path, strips: list[Strip]) -> None:
    save_gif(path, GOAL, strips)


@pytest.mark.parametrize("save", [png, gif])
@pytest.mark.parametrize(("strips", "message"), WRONG.values(), ids=WRONG.keys())
def test_strips_that_cannot_be_drawn_are_refused_by_name(
    tmp_path: Path, save: Callable[[Path, list[Strip]], None], strips: list[Strip], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        save(tmp_path / "a", strips)
    assert "\n" not in str(refusal.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["start", "goal"])
@pytest.mark.parametrize(
    "frame",
    [START.astype(np.float64), START[None], START[..., :1], START[:0], frames(1, 16)[0]],
    ids=["floats", "a stack", "one channel", "empty", "another size"],
)
def test_a_start_or_goal_that_cannot_be_drawn_is_refused_by_name(
    tmp_path: Path, name: str, frame: Array
) -> None:
    given: dict[str, Any] = {"start": START, "goal": GOAL, name: frame}
    with pytest.raises(ValueError, match=name):
        save_filmstrip(tmp_path / "a.png", strips=[SOLVED], title="", **given)
    assert not list(tmp_path.iterdir())


def test_a_single_column_and_an_impossible_speed_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="columns: 1"):
        sheet(tmp_path / "a.png", SOLVED, columns=1)
    for speed in (0, 51):
        with pytest.raises(ValueError, match=f"frames_per_second: {speed}"):
            save_gif(tmp_path / "a.gif", GOAL, [SOLVED], frames_per_second=speed)


@pytest.mark.parametrize("save", [png, gif])
def test_a_missing_folder_is_an_error_that_leaves_nothing(
    tmp_path: Path, save: Callable[[Path, list[Strip]], None]
) -> None:
    with pytest.raises(OSError):
        save(tmp_path / "missing" / "a", [SOLVED])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("save", [png, gif])
def test_a_picture_that_fails_half_way_leaves_the_old_one(
    tmp_path: Path, save: Callable[[Path, list[Strip]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_half(image: Image.Image, path: Path, **options: Any) -> None:
        path.write_bytes(b"half")
        raise OSError("No space left on device")

    path = tmp_path / "a"
    save(path, [SOLVED])
    before = path.read_bytes()
    monkeypatch.setattr(Image.Image, "save", write_half)
    with pytest.raises(OSError, match="No space"):
        save(path, [FAILED])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]

"""The picture of a controller's training shows what there is and breaks on nothing missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goalward.control import metrics as figures
from goalward.control.metrics import ActionMetrics, Coverage, TimeToGoMetrics, save_curves
from picture_helpers import pixels, titles

State = dict[str, float]
LOSSES = ("network", "time_to_go")


def history(*losses: str, rows: int = 100) -> list[State]:
    """Losses at every row, validation errors at every tenth row of their own."""
    made: list[State] = []
    for k in range(1, rows + 1):
        time = {"step": 50.0 * k, "seconds": 9.0 * k}
        made.append({**time, "lr": 1e-3, **dict.fromkeys(losses, 2.0 / k)})
        if k % 10 == 0:
            made.append({**time, **{f"validation/{name}": 3.0 / k for name in losses}})
    return made


def errors(**r2: float) -> list[ActionMetrics]:
    """Errors with these R², by horizons such as `h2_5`."""
    names = [name.removeprefix("h").replace("_", "-") for name in r2]
    return [
        ActionMetrics(horizons=name, count=1000, mse=0.1, cosine=0.9, r2=value)
        for name, value in zip(names, r2.values(), strict=True)
    ]


BUCKETS = errors(all=0.75, h1=0.95, h2_5=0.8, h6_10=0.6)
QUALITY = TimeToGoMetrics(
    loss=2.0,
    median_error=3.0,
    mean_steps=25.0,
    coverage=(
        Coverage(level=0.1, expected=0.15, observed=0.17),
        Coverage(level=0.9, expected=0.92, observed=0.85),
    ),
)


@pytest.fixture(name="drawn")
def drawn_fixture(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that would have been saved."""
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "save_figure", lambda figure, path: drawn.append(figure))
    return drawn


def test_the_picture_is_a_png_of_plausible_size(tmp_path: Path) -> None:
    save_curves(tmp_path / "curves.png", history(*LOSSES), BUCKETS, QUALITY, "a run")
    picture = pixels(tmp_path / "curves.png")
    height, width, _ = picture.shape
    assert 600 < height < 2000 and 900 < width < 2500
    assert 0.01 < (picture < 250).any(axis=-1).mean() < 0.5
    assert [path.name for path in tmp_path.iterdir()] == ["curves.png"]


def test_there_is_a_panel_for_each_thing_to_show(drawn: list[Any]) -> None:
    save_curves(Path("unused"), history(*LOSSES), BUCKETS, QUALITY, "a run")
    assert titles(drawn[0]) == [
        "action error (MSE)",
        "explained variance of actions (R²)",
        "time to go: cross-entropy (nats)",
        "time to go: calibration",
    ]
    assert drawn[0].get_suptitle() == "a run\n5,000 steps in 15 min"
    for axes in drawn[0].axes[::2]:
        raw, *labelled = axes.lines
        assert len(raw.get_xdata()) == 100
        assert [line.get_label() for line in labelled] == ["training", "validation"]


def test_bars_show_r2_by_horizon_and_a_line_shows_it_overall(drawn: list[Any]) -> None:
    save_curves(Path("unused"), history("network"), BUCKETS, None, "a run")
    axes = drawn[0].axes[1]
    drawn[0].canvas.draw()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2-5", "6-10"]
    assert [bar.get_height() for bar in axes.patches] == [0.95, 0.8, 0.6]
    assert axes.lines[0].get_label() == "all: 0.750"
    assert list(axes.lines[0].get_ydata()) == [0.75, 0.75]


def test_a_negative_r2_is_within_its_panel_and_no_tick_exceeds_one(drawn: list[Any]) -> None:
    save_curves(Path("unused"), history("network"), errors(all=-1, h1=0.5, h2_5=-4), None, "a run")
    axes = drawn[0].axes[1]
    low, high = axes.get_ylim()
    assert low < -4 and high > 1
    assert -4 <= min(axes.get_yticks()) < max(axes.get_yticks()) <= 1


def test_calibration_is_observed_over_expected_coverage(drawn: list[Any]) -> None:
    save_curves(Path("unused"), history(*LOSSES), BUCKETS, QUALITY, "a run")
    diagonal, points = drawn[0].axes[3].lines
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    np.testing.assert_array_equal(points.get_xdata(), [0.15, 0.92])
    np.testing.assert_array_equal(points.get_ydata(), [0.17, 0.85])
    assert points.get_label() == "observed, largest gap 0.070"


@pytest.mark.parametrize("rows", [history("network"), [{"step": 1, "validation/network": 0.5}]])
def test_a_single_error_and_no_time_to_go_leave_one_panel(
    rows: list[State], tmp_path: Path, drawn: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    save_curves(tmp_path / "curves.png", rows, BUCKETS[:1], None, "a run")
    assert titles(drawn[0]) == ["action error (MSE)"]
    monkeypatch.undo()
    save_curves(tmp_path / "curves.png", rows, BUCKETS[:1], None, "a run")
    assert pixels(tmp_path / "curves.png").std() > 1


@pytest.mark.parametrize("rows", [[], [{"step": 1, "seconds": 2.0, "lr": 0.1}]])
def test_a_history_without_errors_is_refused(rows: list[State], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no curve to draw"):
        save_curves(tmp_path / "curves.png", rows, BUCKETS, QUALITY, "a run")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        save_curves(tmp_path / "missing" / "curves.png", history("network"), [], None, "a run")
    assert list(tmp_path.iterdir()) == []

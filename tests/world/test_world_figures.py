"""The pictures of a training run show what they should and break on nothing that is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goalward.core import figures as drawing
from goalward.core.arrays import Array
from goalward.core.figures import smooth
from goalward.world import figures
from goalward.world.figures import latent_map, map_method, save_curves, save_latent_path
from picture_helpers import pixels, titles

State = dict[str, float]


def episode(number: int = 24, seed: int = 0) -> tuple[Array, Array]:
    """Latents (N, 8) along a path, and frames (N, 16, 16, 3)."""
    rng = np.random.default_rng(seed)
    latents = np.cumsum(rng.normal(size=(number, 8)), axis=0)
    return latents, rng.integers(0, 256, (number, 16, 16, 3), dtype=np.uint8)


def test_there_is_a_panel_for_each_term_with_something_to_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(drawing, "save_figure", lambda figure, path: drawn.append(figure))
    rows = [{"step": k, "lr": 1e-4, "loss": 2 / k, "reconstruction": 0} for k in range(1, 9)]
    rows += [{"step": k, "held_out_loss": 2.5 / k, "probe/block": 8.0 / k} for k in (1, 8)]
    save_curves(Path("unused"), rows, "a run")
    (figure,) = drawn
    assert titles(figure) == ["loss", "probe RMSE relative to the first", "learning rate"]
    loss, probe, _ = figure.axes
    assert [line.get_label() for line in loss.lines[1:]] == ["training", "held out"]
    np.testing.assert_allclose(probe.lines[0].get_ydata(), [1.0, 1 / 8])


def test_smoothing_keeps_a_constant_and_quietens_noise() -> None:
    np.testing.assert_allclose(smooth(np.full(500, 3.0)), 3.0)
    noise = np.random.default_rng(0).normal(size=4000)
    assert smooth(noise).std() < noise.std() / 5


@pytest.mark.parametrize(
    "rows",
    [
        [{"step": 1, "loss": 0.5}],
        [{"step": 1, "held_out_loss": 0.5}, {"step": 2}],
        [{"step": 1, "loss": float("nan")}, {"step": 2, "loss": 1.0}, {"step": 3, "lr": 0.1}],
        [{"step": k, "loss": -1.0, "seconds": 3.0} for k in range(3)],
        [{"step": k, "probe/block": float(k)} for k in range(3)],
        [{"step": k, **{f"term_{i}": 1.0 + k for i in range(8)}} for k in range(3)],
    ],
    ids=["one point", "held out alone", "nan", "negative", "probe from zero", "many terms"],
)
def test_missing_and_odd_values_break_nothing(rows: list[State], tmp_path: Path) -> None:
    save_curves(tmp_path / "curves.png", rows, "a run")
    assert pixels(tmp_path / "curves.png").std() > 1


def test_a_latent_path_is_a_png_that_shows_its_frames_and_colours(tmp_path: Path) -> None:
    latents, frames = episode()
    frames[:] = (255, 0, 255)
    save_latent_path(tmp_path / "path.png", {0: latents, 900: 2 * latents}, frames, "an episode")
    picture = pixels(tmp_path / "path.png")
    height, width, _ = picture.shape
    assert 500 < height < 1500 and 1000 < width < 2500
    assert (picture == (255, 0, 255)).all(axis=-1).mean() > 0.05
    for end in ((68, 1, 84), (253, 231, 37)):  # viridis begins and ends so
        assert (np.abs(picture.astype(int) - end).max(axis=-1) <= 2).sum() > 100


def distances(points: Array) -> Array:
    apart: Array = np.linalg.norm(points[:, None] - points[None], axis=-1)
    np.fill_diagonal(apart, np.inf)
    return apart


def test_a_map_keeps_clusters_apart_and_neighbours_together() -> None:
    points = np.random.default_rng(0).normal(size=(120, 20))
    points[60:, 0] += 12
    places = latent_map(points)
    assert places.shape == (120, 2)
    nearest = distances(places).argmin(axis=1)
    assert ((nearest < 60) == (np.arange(120) < 60)).all()


@pytest.mark.parametrize("points", [np.ones((20, 5)), np.arange(4.0)[:, None], np.eye(5)])
def test_a_map_of_few_equal_or_flat_points_is_finite(points: Array) -> None:
    places = latent_map(points)
    assert places.shape == (len(points), 2) and np.isfinite(places).all()


def test_without_scikit_learn_a_map_shows_the_principal_axes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    line = np.linspace(0, 3, 10)[:, None] * np.ones(9)  # of length 9
    places = latent_map(line)
    np.testing.assert_allclose(np.ptp(places, axis=0), [9, 0], atol=1e-9)
    assert "principal axes" in map_method() and "scikit-learn" in map_method()

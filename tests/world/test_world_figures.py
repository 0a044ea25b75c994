"""The pictures of a training run show what they should and break on nothing that is missing."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from goalward.control import metrics as controller_figures
from goalward.core import figures as drawing
from goalward.core.arrays import Array
from goalward.core.figures import smooth
from goalward.world import figures
from goalward.world.figures import latent_map, map_method, save_curves, save_latent_path
from picture_helpers import pixels, titles

State = dict[str, float]


def history(rows: int = 200) -> list[State]:
    """Losses at every row, held-out losses and probes at every tenth row of their own."""
    made: list[State] = []
    for k in range(1, rows + 1):
        time = {"step": 50.0 * k, "seconds": 20.0 * k, "data_seconds": 1.0 * k}
        made.append({**time, "lr": 1e-4, "loss": 2 / k, "regulariser": 3 / k, "reconstruction": 0})
        if k % 10 == 0:
            made.append({**time, "held_out_loss": 2.5 / k, "probe/block": 9 / k, "probe/agent": 1})
    return made


def episode(number: int = 24, seed: int = 0) -> tuple[Array, Array]:
    """Latents (N, 8) along a path, and frames (N, 16, 16, 3)."""
    rng = np.random.default_rng(seed)
    latents = np.cumsum(rng.normal(size=(number, 8)), axis=0)
    return latents, rng.integers(0, 256, (number, 16, 16, 3), dtype=np.uint8)


@pytest.fixture(name="drawn")
def drawn_fixture(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that would have been saved, with the first two latents instead of t-SNE."""
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "latent_map", lambda latents: latents[:, :2])
    monkeypatch.setattr(drawing, "save_figure", lambda figure, path: drawn.append(figure))
    return drawn


def test_curves_are_a_png_of_plausible_size(tmp_path: Path) -> None:
    save_curves(tmp_path / "curves.png", history(), "a run")
    picture = pixels(tmp_path / "curves.png")
    height, width, _ = picture.shape
    assert 600 < height < 2000 and 900 < width < 2500
    assert 0.01 < (picture < 250).any(axis=-1).mean() < 0.5
    assert [path.name for path in tmp_path.iterdir()] == ["curves.png"]


def test_there_is_a_panel_for_each_term_with_something_to_show(drawn: list[Any]) -> None:
    save_curves(Path("unused"), history(), "a run")
    probes = "probe RMSE relative to the first"
    assert titles(drawn[0]) == ["loss", "regulariser", probes, "learning rate"]
    assert drawn[0].get_suptitle() == "a run\n10,000 steps in 1 h 07 min"
    loss, regulariser, probe, _ = drawn[0].axes
    assert [line.get_label() for line in loss.lines[1:]] == ["training", "held out"]
    assert len(regulariser.lines) == 2
    assert [line.get_label() for line in probe.lines] == ["block: 0.9 → 0.045", "agent: 1 → 1"]


def test_probe_errors_start_at_one(drawn: list[Any]) -> None:
    rows = [{"step": 0, "probe/block": 8.0}, {"step": 1, "probe/block": 2.0}]
    save_curves(Path("unused"), rows, "a run")
    np.testing.assert_allclose(drawn[0].axes[0].lines[0].get_ydata(), [1.0, 0.25])


def test_the_scale_is_logarithmic_only_where_all_values_are_positive(drawn: list[Any]) -> None:
    rows = [{"step": k, "loss": 1.0 + k, "balance": k - 3.0} for k in range(6)]
    save_curves(Path("unused"), rows, "a run")
    assert [axes.get_yscale() for axes in drawn[0].axes] == ["log", "linear"]


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


def test_at_most_five_snapshots_are_shown_the_first_and_last_among_them(drawn: list[Any]) -> None:
    latents, frames = episode(12)
    save_latent_path(Path("unused"), dict.fromkeys(range(8000, -1, -1000), latents), frames, "e")
    shown = [title for title in titles(drawn[0]) if title]
    steps = ["step 0", "step 2,000", "step 4,000", "step 6,000", "step 8,000"]
    assert shown == [*steps, "distribution, step 8,000"]


def test_an_episode_shorter_than_the_strip_shows_each_frame_once(drawn: list[Any]) -> None:
    latents, frames = episode(5)
    save_latent_path(Path("unused"), {1: latents}, frames, "an episode")
    strip = [axes.get_title() for axes in drawn[0].axes[2:]]
    assert strip == [f"frame {k}" for k in range(5)]


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


@pytest.mark.parametrize("module", [drawing, figures, controller_figures], ids=lambda m: m.__name__)
def test_matplotlib_is_imported_only_to_draw_and_pyplot_never(module: ModuleType) -> None:
    tree = ast.parse(Path(str(module.__file__)).read_text())
    at_once = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not any("matplotlib" in ast.unparse(node) for node in at_once)
    every = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert any("matplotlib" in ast.unparse(node) for node in every)
    assert not any("pyplot" in ast.unparse(node) for node in every)

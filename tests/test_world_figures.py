"""The pictures of a training run show what they should and break on nothing that is missing."""

from __future__ import annotations

import ast
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from goalward.control import metrics as controller_figures
from goalward.core import figures as drawing
from goalward.core.arrays import Array
from goalward.core.figures import add_legend, new_figure, smooth
from goalward.world import figures
from goalward.world.figures import save_curves, save_latent_path
from picture_helpers import pixels, titles

State = dict[str, float]


def history(rows: int = 200) -> list[State]:
    """Losses at every row, held-out losses and probes at every tenth row of their own."""
    made: list[State] = []
    for k in range(1, rows + 1):
        time = {"step": 50.0 * k, "seconds": 20.0 * k, "data_seconds": 1.0 * k}
        made.append({**time, "lr": 1e-4, "loss": 2.0 / k, "regulariser": 3.0 / k, "inverse": 0.0})
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
    monkeypatch.setattr(figures, "tsne", lambda latents: latents[:, :2])
    monkeypatch.setattr(figures, "save_figure", lambda figure, path: drawn.append(figure))
    return drawn


def test_curves_are_a_png_of_plausible_size(tmp_path: Path) -> None:
    save_curves(tmp_path / "curves.png", history(), "a run")
    picture = pixels(tmp_path / "curves.png")
    height, width, _ = picture.shape
    assert 600 < height < 2000 and 900 < width < 2500
    assert 0.01 < (picture < 250).any(axis=-1).mean() < 0.5
    assert [path.name for path in tmp_path.iterdir()] == ["curves.png"]


def test_the_same_history_gives_the_same_file(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        save_curves(tmp_path / name, [{"step": 1, "loss": 1.0}], "a run")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


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


@pytest.mark.parametrize("rows", [[], [{"step": 1, "seconds": 2.0, "lr": 0.1}]])
def test_a_history_without_curves_is_refused(rows: list[State], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no curve to draw"):
        save_curves(tmp_path / "curves.png", rows, "a run")


def test_a_failure_leaves_the_old_picture_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "curves.png"
    path.write_bytes(b"old")

    def full(_: Path) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("goalward.core.files.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        save_curves(path, [{"step": 1, "loss": 1.0}], "a run")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["curves.png"]


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
    save_latent_path(Path("unused"), dict.fromkeys(range(0, 9000, 1000), latents), frames, "e")
    shown = [title for title in titles(drawn[0]) if title]
    steps = ["step 0", "step 2,000", "step 4,000", "step 6,000", "step 8,000"]
    assert shown == [*steps, "distribution, step 8,000"]


def test_snapshots_are_shown_in_the_order_of_their_steps(drawn: list[Any]) -> None:
    latents, frames = episode(12)
    save_latent_path(Path("unused"), {500: latents, 20: latents}, frames, "an episode")
    assert titles(drawn[0])[:3] == ["step 20", "step 500", "distribution, step 500"]


def test_an_episode_shorter_than_the_strip_shows_each_frame_once(drawn: list[Any]) -> None:
    latents, frames = episode(5)
    save_latent_path(Path("unused"), {1: latents}, frames, "an episode")
    strip = [axes.get_title() for axes in drawn[0].axes[2:]]
    assert strip == [f"frame {k}" for k in range(5)]


def test_what_does_not_fit_together_is_refused(tmp_path: Path) -> None:
    latents, frames = episode()
    path = tmp_path / "path.png"
    with pytest.raises(ValueError, match="no snapshot to draw"):
        save_latent_path(path, {}, frames, "an episode")
    with pytest.raises(ValueError, match="step 7 has 23 latents for 24 frames"):
        save_latent_path(path, {7: latents[:-1]}, frames, "an episode")
    with pytest.raises(ValueError, match="frames must be uint8"):
        save_latent_path(path, {7: latents}, frames / 255, "an episode")
    with pytest.raises(ValueError, match="NaN or infinity"):
        save_latent_path(path, {7: np.full_like(latents, np.nan)}, frames, "an episode")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", [drawing, figures, controller_figures], ids=lambda m: m.__name__)
def test_matplotlib_is_imported_only_to_draw_and_pyplot_never(module: ModuleType) -> None:
    tree = ast.parse(Path(str(module.__file__)).read_text())
    at_once = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not any("matplotlib" in ast.unparse(node) for node in at_once)
    every = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert any("matplotlib" in ast.unparse(node) for node in every)
    assert not any("pyplot" in ast.unparse(node) for node in every)


def test_a_slow_machine_is_no_reason_for_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = new_figure(4, 3)
    axes = figure.add_subplot()
    axes.plot(range(100), label="a line")
    add_legend(axes)
    clock = count(0, 10)
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    figure.canvas.draw()  # warnings are errors here
    assert next(clock) > 0  # matplotlib did look at it

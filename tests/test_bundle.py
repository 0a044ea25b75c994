"""What comes with the package: half the size, the same actions, evaluated without any dataset."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from goalward import bundle
from goalward.control.checkpoint import in_half_precision, load_trained_idm, save_trained_idm
from goalward.evaluation.pairs import PairsConfig, draw_pairs, save_pairs
from goalward.evaluation.run import evaluate, prepare_pairs
from goalward.evaluation.specs import resolve_controllers
from goalward.tasks import get_task

CONFIG = PairsConfig(task="two-room", count=3, goal_offset=10, split="all")


@pytest.fixture(name="bundled")
def bundled_fixture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, episodes: Path, controller: Path
) -> Path:
    """A package with one task."""
    folder = tmp_path / "bundled"
    folder.mkdir()
    monkeypatch.setattr(bundle, "FOLDER", folder)
    half = in_half_precision(load_trained_idm(controller))
    save_trained_idm(folder / "two-room.safetensors", half, half=True)
    save_pairs(folder / "two-room.pairs.safetensors", draw_pairs(episodes, CONFIG))
    return folder


def test_weights_too_large_for_half_precision_are_refused(controller: Path, tmp_path: Path) -> None:
    model = load_trained_idm(controller)
    with torch.no_grad():
        next(model.network.parameters()).fill_(1e6)
    with pytest.raises(ValueError, match=r"in half precision: tensor .* infinity"):
        save_trained_idm(tmp_path / "m.safetensors", model, half=True)


@pytest.mark.usefixtures("bundled")
def test_the_bundled_controller_is_evaluated_without_any_dataset(tmp_path: Path) -> None:
    pairs = prepare_pairs(tmp_path, replace(CONFIG, count=2), None)
    specs, observer = resolve_controllers(get_task("two-room"), ["zero", "bundled"], device="cpu")
    found = evaluate(tmp_path, pairs, specs, observer=observer, budget=8, timed=False)
    assert [(row.method, row.pair) for row in found.rows] == [
        *(("zero", 0), ("zero", 1), ("gc-idm", 0), ("gc-idm", 1))
    ]


@pytest.mark.usefixtures("bundled")
def test_what_does_not_come_with_the_package_is_refused() -> None:
    with pytest.raises(ValueError, match=r"nothing of task push-t .* only of: two-room"):
        bundle.controller_path("push-t")
    with pytest.raises(ValueError, match=r"nothing of task push-t .* only of: two-room"):
        bundle.bundled_pairs("push-t", 1)
    with pytest.raises(ValueError, match="pairs must be 1 to 3"):
        bundle.bundled_pairs("two-room", 4)


def test_what_ships_is_small_and_of_its_task() -> None:
    shipped = [p for p in sorted(bundle.FOLDER.glob("*.safetensors")) if "." not in p.stem]
    assert "two-room" in [path.stem for path in shipped]
    assert sum(path.stat().st_size for path in bundle.FOLDER.iterdir()) <= 40e6
    for path in shipped:
        metadata = load_trained_idm(bundle.controller_path(path.stem)).metadata
        pairs = bundle.bundled_pairs(path.stem, 50)
        assert metadata.task == pairs.metadata.config.task == path.stem
        # Pairs of episodes that neither world model nor controller was trained on.
        assert (
            pairs.metadata.config.split == "test"
            and metadata.split == pairs.metadata.config.split_config
        )


@pytest.mark.parametrize("protocol", ["moderate", "strict"])
@pytest.mark.parametrize(("task", "count"), [("two-room", 20), ("push-t", 150)])
def test_stricter_protocols_take_the_shipped_pairs_that_they_admit(
    task: str, count: int, protocol: str
) -> None:
    rule, every = get_task(task).protocols[protocol], bundle.bundled_pairs(task, 200).pairs
    found = bundle.bundled_pairs(task, count, protocol)
    admitted = [bool(rule.admits(a.start, a.goal)) for a in every]
    wanted = [a.recorded for a, is_in in zip(every, admitted, strict=True) if is_in][:count]
    np.testing.assert_array_equal([a.recorded for a in found.pairs], wanted)
    assert [a.number for a in found.pairs] == list(range(count))
    assert found.metadata.config == PairsConfig(task=task, protocol=protocol, count=count)
    assert (
        found.metadata.render.physics == rule.physics
    )  # of Two-Room: without a way through the wall
    with pytest.raises(ValueError, match=f"1 to {sum(admitted)}, .* for protocol {protocol}"):
        bundle.bundled_pairs(task, sum(admitted) + 1, protocol)


@pytest.mark.parametrize(("task", "least"), [("two-room", 16), ("push-t", 10), ("cube", 13)])
def test_what_ships_reaches_its_goals(task: str, least: int) -> None:
    specs, _ = resolve_controllers(get_task(task), ["bundled"], device="cpu")
    found = evaluate(None, bundle.bundled_pairs(task, 16), specs, timed=False)
    assert sum(row.success for row in found.rows) >= least

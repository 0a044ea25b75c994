"""The stages of a task: controllers may have more demonstrations than the world model."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from goalward import defaults
from goalward.data.episodes import open_episodes
from goalward.data.splits import split_episodes
from goalward.pipeline import Pipeline
from goalward.tasks import get_task

EPISODES, DEMONSTRATIONS = defaults.PRESET_EPISODES["smoke"]["two-room"], 30


@pytest.fixture(name="pipeline")
def pipeline_fixture(smoke_runs: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    more = {"smoke": {"two-room": DEMONSTRATIONS}}
    monkeypatch.setattr(defaults, "PRESET_DEMONSTRATIONS", more)
    folder = smoke_runs / "smoke" / "two-room"
    shutil.rmtree(folder / "latents")
    return Pipeline(task=get_task("two-room"), preset="smoke", folder=folder, device="cpu")


def test_demonstrations_begin_with_the_world_models_episodes(pipeline: Pipeline) -> None:
    latents = pipeline.latents()
    assert len(latents.lengths) == DEMONSTRATIONS
    with (
        open_episodes(pipeline.episodes()) as known,
        open_episodes(pipeline.demonstrations()) as more,
    ):
        assert known.num_episodes == EPISODES
        for number in (0, EPISODES - 1):
            first, again = known.episode(number), more.episode(number)
            assert all(np.array_equal(first[c], again[c], equal_nan=True) for c in first)
    # What was held out from the world model's training is held out from the controller's.
    split = pipeline.world_config().split
    few, many = split_episodes(EPISODES, split), split_episodes(DEMONSTRATIONS, split)
    assert set(few.test) == {k for k in many.test if k < EPISODES}
    assert set(few.train) == {k for k in many.train if k < EPISODES}


def test_a_task_without_more_has_the_world_models_episodes(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(defaults, "PRESET_DEMONSTRATIONS", {"smoke": {"cube": 100}})
    assert pipeline.demonstrations() == pipeline.episodes() == pipeline.folder / "episodes"

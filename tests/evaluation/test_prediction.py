"""Whether a world model predicts what executed actions lead to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from goalward.bundle import bundled_pairs, controller_path
from goalward.control.checkpoint import load_trained_idm
from goalward.data.episodes import open_episodes
from goalward.data.splits import SplitConfig, split_episodes
from goalward.evaluation import prediction
from goalward.evaluation.pairs import Pairs
from goalward.evaluation.prediction import (
    CEM_PLANS,
    RECORDED,
    WHITE_NOISE,
    outcome_errors,
    simulated_outcomes,
)
from goalward.tasks import get_task
from goalward.world.checkpoint import World
from goalward.world.frozen import FrameEncoder
from goalward.world.metrics import OutcomeError

PAIRS = 8


@pytest.fixture(name="world", scope="module")
def world_fixture() -> World:
    return load_trained_idm(controller_path("two-room")).world


@pytest.fixture(name="pairs", scope="module")
def pairs_fixture() -> Pairs:
    pairs = bundled_pairs("two-room", 50)
    return replace(pairs, pairs=pairs.pairs[:PAIRS])


def test_predictions_of_a_trained_world_beat_copying_by_far(world: World, pairs: Pairs) -> None:
    found = outcome_errors(world, pairs, plans=1)
    assert [(one.actions, one.sequences) for one in found] == [
        (RECORDED, PAIRS),
        (WHITE_NOISE, PAIRS),
        (CEM_PLANS, 1),
    ]
    assert all(one.ratio < 0.3 for one in found)
    # Copying is wrong by how far the recorded actions lead.
    simulator = get_task("two-room").simulator(pairs.metadata.render)
    starts = []
    for pair in pairs.pairs:
        simulator.restore(pair.start)
        starts.append(simulator.render())
    encode = FrameEncoder(world.model)
    first = encode(torch.from_numpy(np.stack(starts)))
    last = encode(torch.from_numpy(np.stack([pair.goal_frame for pair in pairs.pairs])))
    assert found[0].copy_first == pytest.approx(float((first - last).square().mean()), rel=1e-4)


def test_an_untrained_predictor_is_no_better_than_copying(world: World, pairs: Pairs) -> None:
    torch.manual_seed(0)
    model = load_trained_idm(controller_path("two-room")).world.model
    for parameter in model.predictor.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    recorded, *_ = outcome_errors(replace(world, model=model), pairs, plans=1)
    assert recorded.ratio > 0.5


def test_pairs_come_from_held_out_episodes_and_none_may_be_asked_for(
    world: World, dataset: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Pairs, int]] = []

    def record(world: World, pairs: Pairs, *, plans: int, **_: object) -> tuple[OutcomeError, ...]:
        asked.append((pairs, plans))
        return ()

    monkeypatch.setattr(prediction, "outcome_errors", record)
    path, split = dataset("two-room") / "episodes.h5", SplitConfig(held_out_every=2)
    world = replace(world, split=split)
    options = {"plans": 5, "workers": 1, "seed": 0}
    assert simulated_outcomes(world, path, None, pairs=3, **options) == ()
    ((pairs, plans),) = asked
    with open_episodes(path) as episodes:
        held_out = split_episodes(episodes.num_episodes, split).test
    assert len(pairs) == 3 == plans and {pair.episode for pair in pairs.pairs} <= {*held_out}
    simulated_outcomes(world, path, None, pairs=0, **options)
    assert len(asked) == 1

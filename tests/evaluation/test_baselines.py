"""Baselines run through the same evaluation as every controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from goalward.core.machine import usable_cpus
from goalward.data.collect import CollectConfig, collect
from goalward.data.episodes import open_episodes
from goalward.evaluation.baselines import baseline_names, measure_baselines, solved_at_start
from goalward.evaluation.pairs import PairsConfig, draw_pairs
from goalward.tasks import get_task

pytest.importorskip("stable_worldmodel")

Dataset = Callable[[str], Path]


def test_baselines_of_push_t_have_known_answers(dataset: Dataset) -> None:
    wanted = PairsConfig(task="push-t", count=6, split="all")
    pairs = draw_pairs(dataset("push-t"), wanted)
    found = measure_baselines(pairs, workers=2, budget=40)
    again = measure_baselines(pairs, workers=1, budget=40)
    assert found.controllers == baseline_names(pairs.task) == ("zero", "random", "line", "replay")
    for name in ("line", "replay"):  # the others' rows have times
        assert found.of(name) == again.of(name)
        assert {row.batched_latency_ms for row in found.of(name)} == {None}
    rates = {summary.method: summary.rate.mean for summary in found.summary()}
    assert rates["replay"] == 1.0 and rates["random"] < 0.5
    moderate = replace(wanted, protocol="moderate")
    strict = measure_baselines(draw_pairs(dataset("push-t"), moderate), budget=5)
    assert not any(row.success for row in strict.of("zero"))  # solved starts are left out


def test_the_share_of_solved_starts_is_that_of_all_pairs(dataset: Dataset) -> None:
    task = get_task("two-room")
    with open_episodes(dataset("two-room")) as episodes:
        found = solved_at_start(episodes, task)
    assert found.keys() == task.protocols.keys() and 0 <= found["strict"] <= found["paper"] < 0.5


@pytest.mark.slow
def test_a_line_solves_few_push_t_pairs(tmp_path: Path) -> None:
    data = tmp_path / "run"
    collect(CollectConfig.for_task("push-t", episodes=60, seed=11), data, workers=usable_cpus())
    pairs = draw_pairs(data, PairsConfig(task="push-t", count=200, split="all"))
    found = measure_baselines(pairs, workers=usable_cpus())
    rates = {summary.method: summary.rate.mean for summary in found.summary()}
    assert rates["line"] <= 0.4
    assert rates["replay"] >= 0.99

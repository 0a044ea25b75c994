"""The catalog holds together: names, changes, claims, and the paper's figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from world_helpers import tiny_model

from goalward.control.networks import GCIDMConfig, HorizonConfig, PairwiseConfig, TimeToGoConfig
from goalward.control.train import ControllerConfig, IDMSchedule
from goalward.core.config import override
from goalward.evaluation.specs import require_known
from goalward.experiments.ablations import WORLDS
from goalward.experiments.catalog import ANALYSES, EXPERIMENTS, find_experiments
from goalward.experiments.experiment import (
    CEM,
    GC_IDM,
    LINES,
    ONNX,
    TASKS,
    TIME_TO_GO,
    Experiment,
    RunSpec,
    Variant,
)
from goalward.experiments.paper import paper_numbers, paper_success
from goalward.tasks import get_task
from goalward.world.train import ScheduleConfig, WorldConfig


def experiment(name: str) -> Experiment:
    (found,) = find_experiments([name])
    assert isinstance(found, Experiment)
    return found


def figure(name: str, task: str, point: str, variant: Variant) -> float | None:
    return paper_success(name, task, variant.controller, point)


def specs(*names: str) -> set[RunSpec]:
    return {spec for name in names for _, _, spec in experiment(name).runs("two-room")}


def test_the_catalog_has_every_experiment_once() -> None:
    names = [one.id for one in EXPERIMENTS] + [one.id for one in ANALYSES]
    assert len(names) == len(set(names)) >= 23
    assert [one.id for one in find_experiments()] == names
    assert [one.id for one in find_experiments(["budget", "main"])] == ["budget", "main"]
    with pytest.raises(ValueError, match="unknown experiment 'mian'; did you mean 'main'"):
        find_experiments(["mian"])


@pytest.mark.parametrize("one", EXPERIMENTS, ids=lambda e: e.id)
def test_every_change_is_one_that_its_configuration_knows(one: Experiment) -> None:
    controller = ControllerConfig(
        network=GCIDMConfig(latent_dim=4, action_dim=2), schedule=IDMSchedule(steps=1)
    )
    pairwise = replace(controller, network=PairwiseConfig(latent_dim=4, action_dim=2))
    controller = replace(
        controller, time_to_go=TimeToGoConfig(), horizon=HorizonConfig(mode="time-to-go")
    )
    world = WorldConfig(model=tiny_model(), schedule=ScheduleConfig(steps=1))
    for _, variant, spec in one.runs(one.tasks[0]):
        plain = pairwise if spec.kind == "pairwise" else controller
        changed = override(plain, spec.controller_changes)
        assert changed.network.latent_dim == 4
        # A controller that is trained for a table learns what the table shows, and no more.
        if variant == TIME_TO_GO:
            assert changed.time_to_go is not None
        elif spec.controller_changes:
            assert changed.time_to_go is None
        assert override(world, spec.world_changes).model == tiny_model()


@pytest.mark.parametrize("one", EXPERIMENTS, ids=lambda e: e.id)
def test_every_variant_is_a_controller_with_a_label_of_its_own(one: Experiment) -> None:
    labels = [variant.label for variant in one.variants]
    assert len(labels) == len(set(labels))
    known = [variant.controller for variant in one.variants if variant.controller != ONNX]
    require_known(known, get_task(one.tasks[0]))


def test_the_papers_figures_stand_beside_the_right_points() -> None:
    with_figures = [experiment(name) for name in paper_numbers()["success"]]
    assert len(with_figures) >= 12
    for one in with_figures:
        for task in one.tasks:
            for point in one.points:
                found = [figure(one.id, task, point.label, variant) for variant in one.variants]
                assert any(success is not None for success in found), (one.id, point)
    assert figure("goal-distance", "push-t", "10", GC_IDM) == 90.5
    assert figure("goal-distance", "push-t", "10", TIME_TO_GO) is None  # the paper has none
    assert figure("pairwise-planning", "two-room", "success", LINES[-1]) == 48
    assert figure("pairwise-planning", "two-room", "success", CEM) == 87
    assert figure("held-out", "push-t", "held-out", GC_IDM) == 84.8
    assert figure("held-out", "push-t", "all", GC_IDM) == 84.2  # of the main table


def test_every_number_of_the_paper_has_its_place() -> None:
    for name, tasks in paper_numbers()["success"].items():
        one = experiment(name)
        places = {(variant.controller, point.label) for point, variant, _ in one.runs("two-room")}
        assert {*tasks} == {*one.tasks}
        assert {(c, p) for found in tasks.values() for c in found for p in found[c]} <= places


def test_a_slow_variant_has_the_first_seed_only() -> None:
    main = experiment("main")
    seeds: dict[str, set[int]] = {}
    for _, variant, spec in main.runs("cube"):
        seeds.setdefault(variant.label, set()).add(spec.seed)
    slow = {"CEM", "zero"}
    assert {label for label, found in seeds.items() if found == {42}} == slow
    assert all(seeds[label] == {42, 123, 456} for label in seeds.keys() - slow)


def test_a_world_model_without_regulariser_may_collapse_and_others_may_not() -> None:
    plain = WorldConfig(model=tiny_model(), schedule=ScheduleConfig(steps=1))
    for changes in WORLDS.values():
        config = override(plain, changes)
        assert (config.min_latent_std == 0) == (config.objective.regulariser == "none")


def test_claims_name_places_and_tasks_that_are_measured() -> None:
    claims = [(one, claim) for one in EXPERIMENTS for claim in one.claims]
    assert len(claims) >= 6
    for one, claim in claims:
        labels = {point.label for point in one.points}
        for variant, label in (claim.better, claim.worse):
            assert variant in one.variants and label in labels
        assert {*claim.tasks} & {*one.tasks} and {*claim.tasks} <= {*TASKS}


def test_every_finding_of_the_paper_that_success_can_show_is_a_claim() -> None:
    without = {one.id for one in EXPERIMENTS if all(claim.ours for claim in one.claims)}
    ours = {"protocols", "hard-pairs", "exported", "commit", "demonstrations", "geometry"}
    assert without == ours  # which the paper does not have

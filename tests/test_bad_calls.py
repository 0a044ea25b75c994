"""Thousands of bad calls to the public interface: each is refused by a clear `ValueError`.

For every part there is a good call beside the bad ones, so that nothing passes by refusing all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from controller_helpers import (  # noqa: F401
    dot_latents_fixture,
    many_dots_fixture,
    tiny_world_fixture,
)
from goalward.config import from_json, override, parse_config, to_json
from goalward.controllers.base import Controller
from goalward.controllers.direct import DirectController, load_controller
from goalward.controllers.file import InverseModel, load_inverse_model
from goalward.controllers.gc_idm import GCIDMConfig
from goalward.controllers.horizon import HorizonConfig
from goalward.controllers.pairwise import PairwiseConfig
from goalward.controllers.simple import RandomController, ZeroController
from goalward.controllers.swm_policy import SwmPolicy
from goalward.controllers.time_to_go import TimeToGoConfig
from goalward.controllers.train_config import ControllerConfig, IDMSchedule, NoiseConfig
from goalward.data.collect import CollectConfig
from goalward.data.episodes import Episodes, open_episodes
from goalward.data.splits import SplitConfig, split_episodes
from goalward.embed import EmbedConfig, open_latents
from goalward.evaluate.floors import FloorsConfig
from goalward.evaluate.frozen_pairs import PairsConfig, load_pairs
from goalward.evaluate.methods import Models, make_method, names
from goalward.evaluate.metrics import success_rate
from goalward.evaluate.rows import RowFile
from goalward.evaluate.summary import paired_difference, summarise_method
from goalward.planning.base import Plan, SeededDraws
from goalward.planning.cem import CEM
from goalward.planning.cost import LatentCost
from goalward.planning.gradient import Gradient
from goalward.planning.hybrid import HybridConfig, HybridController
from goalward.planning.icem import ICEM
from goalward.planning.interpolation import InterpolationConfig, InterpolationController
from goalward.planning.mpc import MPCConfig, plan_with
from goalward.planning.mppi import MPPI
from goalward.planning.solvers import SOLVERS, AnySolver, make_solver
from goalward.runtime.export import export_onnx
from goalward.runtime.onnx_controller import OnnxController
from goalward.tasks import TASKS, get_task
from goalward.tasks.spec import SceneConfig
from goalward.types import Array
from goalward.world.checkpoint import ActionScale, load_world
from goalward.world.encoders import ConvConfig, ViTConfig
from goalward.world.lewm import LeWM, LeWMConfig, PredictorConfig
from goalward.world.objective import ObjectiveConfig
from goalward.world.probe import MLPProbeConfig
from goalward.world.train_config import ScheduleConfig, WorldConfig
from test_hybrid import model_fixture, pairwise_fixture  # noqa: F401
from world_helpers import tiny_model

# Bad calls that each test makes.
CALLS = {
    "types": 3_000,
    "ranges": 2_000,
    "frames": 1_600,
    "budgets": 800,
    "environments": 800,
    "solvers": 600,
    "costs": 400,
    "rows": 600,
    "words": 600,
    "files": 400,
    "numbers": 200,
}

SIDE, NUMBER = 16, 3
FRAMES = np.zeros((NUMBER, SIDE, SIDE, 3), dtype=np.uint8)
TINY = CEM(num_samples=4, num_iters=1, num_elites=2)


def calls(name: str) -> Callable[[Any], Any]:
    """So many examples, the same ones in every run."""
    often = settings(
        max_examples=CALLS[name],
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )

    def marked(test: Any) -> Any:
        test.bad_calls = CALLS[name]
        return often(test)

    return marked


def refused(call: Callable[[], object]) -> None:
    """The call raises a ValueError that says something in one line."""
    MADE.append(1)
    with pytest.raises(ValueError) as caught:
        call()
    assert 10 < len(str(caught.value)) < 2_000
    assert "\n" not in str(caught.value)


MADE: list[int] = []


@pytest.fixture(autouse=True)
def _as_many_as_said(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test of bad calls makes as many as the table says: hypothesis may stop early."""
    before = len(MADE)
    yield
    said = getattr(request.function, "bad_calls", 0)
    assert len(MADE) - before >= said


def test_ten_thousand_bad_calls_are_asked_for() -> None:
    assert sum(CALLS.values()) >= 10_000


# Configurations: a value of another type, and a number out of range.

NETWORK = GCIDMConfig(latent_dim=4, action_dim=2)
CONFIGS: tuple[Any, ...] = (
    *(CEM(), ICEM(), MPPI(), Gradient()),
    *(MPCConfig(), HybridConfig(), InterpolationConfig(), HorizonConfig()),
    *(NETWORK, PairwiseConfig(latent_dim=4, action_dim=2), TimeToGoConfig()),
    *(IDMSchedule(steps=1), NoiseConfig(), SplitConfig(), EmbedConfig(), FloorsConfig()),
    ControllerConfig(network=NETWORK, schedule=IDMSchedule(steps=1)),
    CollectConfig.for_task("two-room", episodes=1),
    *(PairsConfig(task="two-room"), SceneConfig(), ActionScale(mean=(0.0,), std=(1.0,))),
    *(ViTConfig(), ConvConfig(), PredictorConfig(), LeWMConfig(action_dim=2), MLPProbeConfig()),
    *(ObjectiveConfig(), ScheduleConfig(steps=1)),
    WorldConfig(model=tiny_model(), schedule=ScheduleConfig(steps=1)),
)
PLACES = [(config, field.name) for config in CONFIGS for field in fields(config) if field.init]
FOREIGN = st.one_of(
    st.sampled_from([math.nan, math.inf, -math.inf, 10**400, 1 + 2j, object(), b"1", {1}, [[]]]),
    st.sampled_from([np.float32(1), np.zeros(2), np.array(math.nan), torch.zeros(1), LeWM]),
    st.dictionaries(st.text(max_size=3), st.integers(), min_size=1, max_size=2),
    st.lists(st.none() | st.integers(1, 3) | st.floats(0.1, 1), min_size=1, max_size=3),
)


@given(place=st.sampled_from(PLACES), value=FOREIGN)
@calls("types")
def test_values_of_another_type_are_refused_by_every_configuration(
    place: tuple[Any, str], value: Any
) -> None:
    config, name = place
    refused(lambda: replace(config, **{name: value}))


def numbers_out_of_range(config: Any) -> Iterator[tuple[Any, str]]:
    """The fields whose numbers must not be negative: all of them."""
    hints = get_type_hints(type(config))
    for field in fields(config):
        kinds = get_args(hints[field.name]) or (hints[field.name],)
        if field.init and {int, float} & set(kinds):
            yield config, field.name


NUMBERS = [place for config in CONFIGS for place in numbers_out_of_range(config)]
NEGATIVE = st.one_of(
    st.integers(max_value=-1), st.floats(max_value=-1e-9, allow_nan=False, allow_infinity=False)
)


@given(place=st.sampled_from(NUMBERS), value=NEGATIVE)
@calls("ranges")
def test_negative_numbers_are_refused_by_every_configuration(
    place: tuple[Any, str], value: float
) -> None:
    config, name = place
    refused(lambda: replace(config, **{name: value}))


def test_good_configurations_are_taken_and_read_back() -> None:
    for config in CONFIGS:
        assert from_json(type(config), to_json(config)) == config == replace(config)
    assert len(NUMBERS) > 60


# Controllers: frames, budgets and environments.


@pytest.fixture(name="controllers", scope="module")
def controllers_fixture(
    model: InverseModel, pairwise: InverseModel, tmp_path_factory: pytest.TempPathFactory
) -> list[Controller]:
    path = InterpolationConfig(horizon=4, commit=2)
    return [
        DirectController(model, HorizonConfig()),
        RandomController(2, 0),
        ZeroController(2),
        plan_with(model, TINY, MPCConfig(horizon=2, receding_horizon=1)),
        HybridController(model, HybridConfig(search=TINY, horizon=2, commit=1)),
        InterpolationController(pairwise, path),
        _exported(model, tmp_path_factory.mktemp("onnx") / "c.onnx"),
    ]


def _exported(model: InverseModel, path: Path) -> Controller:
    export_onnx(model, path)
    return OnnxController(path, threads=1)


@st.composite
def bad_frames(draw: st.DrawFn) -> Any:
    """Anything but a batch of uint8 frames."""
    kind = draw(st.sampled_from(["type", "shape", "thing", "number"]))
    if kind == "type":
        types: list[Any] = [
            np.float32,
            np.float64,
            np.int64,
            np.bool_,
            np.complex64,
            object,
            "U3",
            "M8[s]",
        ]
        array = np.zeros(FRAMES.shape, dtype=draw(st.sampled_from(types)))
        if array.dtype.kind == "f" and draw(st.booleans()):
            array[:] = math.nan
        return array
    if kind == "shape":
        sides = st.integers(0, 4)
        shape = draw(st.lists(sides, max_size=6).filter(lambda s: len(s) not in (3, 4)))
        last = draw(st.sampled_from([None, (NUMBER, SIDE, SIDE, 1), (SIDE, SIDE, 4), (0, 4, 4, 3)]))
        return np.zeros(shape if last is None else last, dtype=np.uint8)
    if kind == "number":
        huge = draw(st.integers(2**16 + 1, 2**30))
        return np.broadcast_to(np.uint8(0), (huge, SIDE, SIDE, 3))  # takes no memory as it is
    return draw(st.sampled_from([None, "frames", 3, math.nan, [], {}, [[1, 2], [3]], FRAMES[0, 0]]))


@given(frames=bad_frames(), number=st.integers(0, 7), resets=st.booleans())
@calls("frames")
def test_what_is_no_frame_is_refused_by_every_controller(
    controllers: list[Controller], frames: Any, number: int, resets: bool
) -> None:
    if number == len(controllers):
        policy = SwmPolicy(controllers[1])
        refused(lambda: policy.get_action({"pixels": frames, "goal": frames}))
        return
    controller = controllers[number]
    if resets:
        refused(lambda: controller.reset(frames, 50))
    else:
        controller.reset(FRAMES, 50)
        refused(lambda: controller.act(frames))


BAD_BUDGETS = st.one_of(
    st.integers(max_value=0),
    st.integers(min_value=10**9 + 1),
    st.floats().filter(lambda x: not (1 <= x <= 1e9 and x.is_integer())),
    hnp.arrays(np.int64, st.integers(0, 8).filter(lambda n: n != NUMBER), elements=st.just(5)),
    hnp.arrays(np.int64, NUMBER, elements=st.integers(-5, 0)),
    hnp.arrays(np.float64, NUMBER, elements=st.sampled_from([math.nan, math.inf, 0.5])),
    st.sampled_from(["50", "", {}, [[5, 5, 5]], [5, [5]], 5j, np.datetime64(1, "s")]),
)


@given(budget=BAD_BUDGETS, number=st.integers(0, 6), resets=st.booleans())
@calls("budgets")
def test_impossible_budgets_are_refused_by_every_controller(
    controllers: list[Controller], budget: Any, number: int, resets: bool
) -> None:
    controller = controllers[number]
    if resets:
        refused(lambda: controller.reset(FRAMES, budget))
    else:
        controller.reset(FRAMES, 50)
        refused(lambda: controller.act(FRAMES, budget))


BAD_ENVIRONMENTS = st.one_of(
    st.lists(st.integers(), max_size=6).filter(lambda x: len(x) != 2),
    st.lists(st.integers(NUMBER, 10**18), min_size=2, max_size=2),
    st.lists(st.integers(-(10**18), -1), min_size=2, max_size=2),
    st.integers(0, 2).map(lambda k: [k, k]),
    st.lists(st.floats(), min_size=2, max_size=2),
    st.sampled_from([0, "01", [[0, 1]], [True, False], ["0", "1"], {}, {0: 1}]),
)


@given(environments=BAD_ENVIRONMENTS, number=st.integers(0, 6), resets=st.booleans())
@calls("environments")
def test_impossible_environments_are_refused_by_every_controller(
    controllers: list[Controller], environments: Any, number: int, resets: bool
) -> None:
    controller = controllers[number]
    controller.reset(FRAMES, 50)
    if resets:
        refused(lambda: controller.reset(FRAMES[:2], 50, environments=environments))
    else:
        refused(lambda: controller.act(FRAMES[:2], environments=environments))


def test_good_frames_budgets_and_environments_are_taken(controllers: list[Controller]) -> None:
    for controller in controllers:
        controller.reset(FRAMES, [50, 40, 30])
        assert controller.act(FRAMES).shape == (NUMBER, 2)
        controller.reset(FRAMES[:2], 20, environments=[2, 0])
        assert controller.act(FRAMES[:2], 7.0, environments=[1, 2]).shape == (2, 2)
        controller.reset(FRAMES[0], 50)
        assert controller.act(FRAMES[0]).shape == (2,)


# Solvers and their cost.

TENSOR_TYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64)


@st.composite
def bad_starts(draw: st.DrawFn) -> torch.Tensor:
    """Anything but plans (B, H, A)."""
    kind = draw(st.sampled_from(["rank", "empty", "type", "value"]))
    if kind == "rank":
        shape = draw(st.lists(st.integers(1, 3), max_size=5).filter(lambda s: len(s) != 3))
        return torch.zeros(shape)
    if kind == "empty":
        shape = draw(st.lists(st.integers(0, 3), min_size=3, max_size=3).filter(lambda s: 0 in s))
        return torch.zeros(shape)
    if kind == "type":
        return torch.zeros(1, 2, 2, dtype=draw(st.sampled_from(TENSOR_TYPES[2:])))
    return torch.full((1, 2, 2), draw(st.sampled_from([math.nan, math.inf, -math.inf])))


def search(name: Any, mean: torch.Tensor, cost: Callable[[torch.Tensor], torch.Tensor]) -> Plan:
    quick = {"num_samples": 4, "num_iters": 2}
    elites = {} if name == "gradient" else {"num_elites": 2}
    kept = {"num_kept": 1} if name == "icem" else {}
    solver: AnySolver = replace(make_solver(name), **quick, **elites, **kept)  # type: ignore[arg-type]
    draws = SeededDraws(generators=[torch.Generator().manual_seed(0)] * max(1, len(mean.shape[:1])))
    return solver(cost, mean, draws=draws)


def distance(plans: torch.Tensor) -> torch.Tensor:
    return plans.square().sum(dim=(2, 3))


def costs_of_another_shape(plans: torch.Tensor) -> torch.Tensor:
    return plans.square().sum()


def costs_of_nan(plans: torch.Tensor) -> torch.Tensor:
    return distance(plans) * math.nan


@given(name=st.sampled_from(SOLVERS), start=bad_starts(), bad_cost=st.booleans())
@calls("solvers")
def test_solvers_refuse_what_is_no_plan_and_no_cost(
    name: Any, start: torch.Tensor, bad_cost: bool
) -> None:
    if bad_cost:
        cost = costs_of_nan if start.numel() % 2 else costs_of_another_shape
        refused(lambda: search(name, torch.zeros(1, 2, 2), cost))
    else:
        refused(lambda: search(name, start, distance))


@given(data=st.data())
@calls("costs")
def test_the_latent_cost_refuses_shapes_that_do_not_fit(data: st.DataObject) -> None:
    model, good = LATENT_MODEL, {"z": (2, 1, 16), "goal": (2, 16), "plans": (2, 3, 2, 4)}
    name = data.draw(st.sampled_from(sorted(good)))
    shapes = st.lists(st.integers(0, 5), max_size=5).map(tuple)
    bad = data.draw(shapes.filter(lambda shape: not fits(name, shape)))
    shape = {**good, name: bad}

    def call() -> None:
        cost = LatentCost(model, torch.zeros(shape["z"]), torch.zeros(shape["goal"]))
        cost(torch.zeros(shape["plans"]))

    refused(call)


def fits(name: str, shape: tuple[int, ...]) -> bool:
    if name == "plans":
        return len(shape) == 4 and shape[0] == 2 and shape[3] == 4 and 0 not in shape
    return shape == {"z": (2, 1, 16), "goal": (2, 16)}[name]


LATENT_MODEL = LeWM(tiny_model()).eval()


def test_good_searches_find_something() -> None:
    for name in SOLVERS:
        assert search(name, torch.zeros(1, 2, 2), distance).actions.shape == (1, 2, 2)
    cost = LatentCost(LATENT_MODEL, torch.zeros(2, 1, 16), torch.zeros(2, 16))
    assert cost(torch.zeros(2, 3, 2, 4)).shape == (2, 3)


# Episodes.


@pytest.fixture(name="episodes", scope="module")
def episodes_fixture(many_dots: Path) -> Iterator[Episodes]:
    with open_episodes(many_dots) as episodes:
        yield episodes


BAD_ROWS = st.one_of(
    st.lists(st.integers(-(10**18), -1), min_size=1, max_size=3),
    st.lists(st.integers(32 * 32, 10**18), min_size=1, max_size=3),
    st.lists(st.floats(), min_size=1, max_size=3),
    st.sampled_from([0, "0", [[0]], ["a"], [None], np.array([2**64 - 1], dtype=np.uint64)]),
)


@given(
    rows=BAD_ROWS,
    length=st.one_of(st.integers(max_value=0), st.integers(min_value=33)),
    way=st.integers(0, 5),
)
@calls("rows")
def test_rows_and_windows_that_are_not_there_are_refused(
    episodes: Episodes, rows: Any, length: int, way: int
) -> None:
    ways: list[Callable[[], object]] = [
        lambda: episodes.rows("action", rows),
        lambda: episodes.windows(rows, 2, columns=["action"]),
        lambda: episodes.windows([0], length, columns=["action"]),
        lambda: episodes.windows([0], 2, stride=length, columns=["action"]),
        lambda: episodes.window_starts(2, rows),
        lambda: episodes.read("action", 0, length if length < 0 else 32 * 32 + 1 + length),
    ]
    refused(ways[way])


def test_rows_and_windows_that_are_there_are_read(episodes: Episodes) -> None:
    assert episodes.rows("action", [5, 5, 0]).shape == (3, 2)
    assert episodes.windows([0, 40], 4, stride=5, columns=["action"])["action"].shape == (2, 4, 2)
    assert len(episodes.window_starts(33)) == 0  # longer than any episode, which is no mistake


# Names, settings and files.

TEXT = st.text(max_size=30)


@given(text=TEXT, way=st.integers(0, 5))
@calls("words")
def test_words_that_mean_nothing_are_refused(model: InverseModel, text: str, way: int) -> None:
    ways: list[Callable[[], object]] = [
        lambda: get_task(text + "?"),
        lambda: override(CEM(), [text + "?"]),
        lambda: override(CEM(), [f"num_iters={text}?"]),
        lambda: make_method(text + "?", Models(controller=model), action_dim=2),
        lambda: make_method(f"cem:{text}?", Models(controller=model), action_dim=2),
        lambda: parse_config(CEM, text.encode("utf-8", "surrogatepass"), "a file"),
    ]
    refused(ways[way])


@given(content=st.binary(max_size=300), way=st.integers(0, 6))
@calls("files")
def test_files_of_something_else_are_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, way: int
) -> None:
    folder = tmp_path_factory.getbasetemp() / "garbage"
    folder.mkdir(exist_ok=True)
    path = folder / ("rows.jsonl" if way == 6 else "best.safetensors")
    path.write_bytes(content + b"\x00}\n")
    (folder / "episodes.h5").write_bytes(content)
    ways: list[Callable[[], object]] = [
        lambda: load_controller(path),
        lambda: load_inverse_model(folder),
        lambda: load_pairs(path),
        lambda: open_episodes(folder / "episodes.h5"),
        lambda: load_world(folder),
        lambda: open_latents(folder),
        lambda: RowFile(path).read(),
    ]
    refused(ways[way])


@given(number=st.one_of(st.integers(), st.floats()), way=st.integers(0, 2))
@calls("numbers")
def test_numbers_that_cannot_be_are_refused(number: float, way: int) -> None:
    ways: list[Callable[[], object]] = [
        lambda: success_rate(-abs(number) - 1 if math.isfinite(number) else number, 10),
        lambda: split_episodes(-abs(int(number)) if math.isfinite(number) else 0),
        lambda: paired_difference([], []) if number else summarise_method([]),
    ]
    refused(ways[way])


def test_good_words_and_numbers_are_taken(model: InverseModel) -> None:
    assert [get_task(name).name for name in TASKS] == list(TASKS)
    assert override(CEM(), ["num_iters=3"]).num_iters == 3
    for name in set(names()) - {"interpolation"}:
        assert make_method(name, Models(controller=model), action_dim=2).name == name
    assert success_rate(3, 10).mean == 0.3
    assert len(split_episodes(20).train) == 18


def test_frames_of_any_size_are_taken(controllers: list[Controller]) -> None:
    large: Array = np.zeros((NUMBER, 40, 24, 3), dtype=np.uint8)
    controllers[0].reset(large, 50)
    assert controllers[0].act(large).shape == (NUMBER, 2)

"""Bad calls of the evaluation."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from hypothesis import strategies as st

from bad_call_kit import (
    LENGTHS,
    ROWS,
    Call,
    Draw,
    Giving,
    Kit,
    StillPool,
    api,
    one_bad,
    row,
    spoilt_file,
)
from bad_values import (
    JUNK,
    NO_FILE,
    NO_NUMBER,
    NO_PATH,
    NO_TEXT,
    NO_VALUES,
    SMALL,
    TEXT,
    TINY,
    either,
    no_array,
    no_float,
    no_indices,
    no_shape,
    no_whole_number,
    not_none,
    write,
)
from goalward.control.controller import ZeroController
from goalward.evaluation.cells import EvaluationConfig
from goalward.evaluation.pairs import (
    PairIndex,
    PairsConfig,
    attempts,
    draw_pair_index,
    draw_pairs,
    load_pairs,
)
from goalward.evaluation.results import summarise_method
from goalward.evaluation.rollout import action_jerk, is_monotonic, latent_distances, run_attempts
from goalward.evaluation.specs import Models, make_method, names
from goalward.evaluation.statistics import paired_difference, success_rate
from goalward.tasks import get_task


@api("path|pairs", lambda kit: load_pairs(kit.pairs_file))
def load_frozen_pairs(draw: Draw, kit: Kit) -> Call:
    kind = draw(st.sampled_from(["path", "file", "array"]))
    if kind == "path":
        path = draw(NO_FILE)
        return lambda: load_pairs(path)
    bad = kit.folder / "bad-pairs.npz"
    if kind == "file":
        spoilt_file(draw, kit.pairs_file, bad)
        return lambda: load_pairs(bad)
    with np.load(kit.pairs_file) as file:
        arrays = {name: file[name] for name in file.files}
    name = draw(st.sampled_from(["goal_frames", "recorded", "start/state", "goal/state"]))
    values = draw(
        either(
            no_shape(*arrays[name].shape).map(np.zeros),
            st.sampled_from(["U3", "bool", "M8[s]"]).map(lambda k: np.zeros(arrays[name].shape, k)),
        )
    )
    stream = io.BytesIO()
    np.savez(stream, **{**arrays, name: values})
    write(bad, stream.getvalue())
    return lambda: load_pairs(bad)


@api("successes|count", lambda kit: success_rate(1.5, 3), examples=150)
def rate(draw: Draw, kit: Kit) -> Call:
    bad = {"successes": no_float(SMALL, 3 + TINY), "count": no_whole_number(1, None)}
    arguments = one_bad(draw, {"successes": 1, "count": 3}, **bad)
    return lambda: success_rate(**arguments)


@api("pairs|row", lambda kit: attempts_of(kit, np.array([0, 1]), np.array([2, 3])))
def read_attempts(draw: Draw, kit: Kit) -> Call:
    if draw(st.booleans()):
        bad = one_bad(
            draw,
            {"starts": np.array([0, 1]), "goals": np.array([2, 3])},
            starts=either(no_indices(3), st.none()),
            goals=either(no_indices(3), st.none()),
        )
        return lambda: attempts_of(kit, **bad)
    starts = draw(st.lists(st.integers(0, 3), max_size=3))
    steps = [draw(st.integers(-3, 0)), *(draw(st.integers(1, 3)) for _ in starts)]
    goals = np.array([s + step for s, step in zip(starts, steps, strict=False)], dtype=np.int64)
    return lambda: attempts_of(kit, np.array(starts, dtype=np.int64), goals)


def attempts_of(kit: Kit, starts: Any, goals: Any) -> object:
    pairs = PairIndex(start_rows=starts, goal_rows=goals)
    return attempts(kit.episodes, get_task("two-room"), pairs)


def drawn(kit: Kit, **changes: Any) -> object:
    task = get_task("two-room")
    arguments = {"count": 3, "seed": 0, "offset": 2, **changes}
    return draw_pair_index(kit.episodes, task, task.protocols["paper"], **arguments)


@api("count|seed|offset|episode|pairs", drawn)
def draw_some_pairs(draw: Draw, kit: Kit) -> Call:
    bad = one_bad(
        draw,
        {},
        count=no_whole_number(1, ROWS),
        seed=no_whole_number(0),
        offset=no_whole_number(1, max(LENGTHS)),
        among=no_indices(len(LENGTHS)),
    )
    return lambda: drawn(kit, **bad)


@api("pairs|config|path", lambda kit: kit.pairs)
def freeze_some_pairs(draw: Draw, kit: Kit) -> Call:
    many = st.integers(ROWS, 10**9).map(lambda n: PairsConfig(task="two-room", count=n, offset=2))
    far = st.integers(max(LENGTHS), 10**9).map(lambda n: PairsConfig(task="two-room", offset=n))
    good = {"dataset": kit.dataset, "config": PairsConfig(task="two-room", count=1, offset=2)}
    bad = one_bad(draw, good, dataset=NO_PATH, config=either(JUNK, many, far))
    return lambda: draw_pairs(**bad)


LEAVES = {
    "gc-idm": ("mode", "level", "steps"),
    "cem": ("solver.num_samples", "solver.init_std", "mpc.horizon", "mpc.seed"),
    "gradient": ("solver.lr", "solver.kind", "mpc.warm_start"),
    "hybrid": ("horizon", "commit", "search.num_iters", "steps_left.level"),
    "waypoints": ("horizon", "spread", "candidates"),
}


@api("method|NAME=VALUE|no such value|expected|must", lambda kit: method(kit, "cem"), examples=250)
def method_of_a_name(draw: Draw, kit: Kit) -> Call:
    kind = draw(st.sampled_from(["name", "setting", "value"]))
    if kind == "name":
        no_name = TEXT.filter(lambda text: text.partition(":")[0] not in names())
        spec = draw(st.one_of(no_name, NO_TEXT))
        return lambda: method(kit, spec)
    name = draw(st.sampled_from(sorted(LEAVES)))
    setting = draw(st.text(min_size=1, max_size=6).filter(lambda t: t.replace(",", "")))
    if kind == "value":
        setting = f"{draw(st.sampled_from(LEAVES[name]))}={draw(st.sampled_from(NO_VALUES))}"
    return lambda: method(kit, f"{name}:{setting}")


@api("action_dim|seed", lambda kit: method(kit, "random").make(0), examples=60)
def method_of_a_size(draw: Draw, kit: Kit) -> Call:
    bad = {"action_dim": no_whole_number(1, 2**16), "seed": no_whole_number(0)}
    found = one_bad(draw, {"action_dim": 2, "seed": 0}, **bad)
    return lambda: method(kit, "random", found["action_dim"]).make(found["seed"])


def method(kit: Kit, spec: str, action_dim: int = 2) -> Any:
    models = Models(controller=kit.model, pairwise=kit.pairwise)
    return make_method(spec, models, action_dim=action_dim)


@api(
    "pairs|budget|environments",
    lambda kit: EvaluationConfig(pairs=kit.pairs, budget=5, environments=2),
)
def setting(draw: Draw, kit: Kit) -> Call:
    arguments = one_bad(
        draw,
        {"pairs": kit.pairs, "budget": 5, "environments": 2},
        pairs=either(NO_NUMBER, st.integers()),
        budget=no_whole_number(1, 10**9),
        environments=no_whole_number(),
    )
    return lambda: EvaluationConfig(**arguments)


def run(kit: Kit, actions: Any = None, budget: Any = 2) -> object:
    controller = ZeroController(2) if actions is None else Giving(actions)
    return run_attempts(controller, StillPool(), kit.pairs.attempts[:2], budget=budget)


@api("budget|actions", run, examples=150)
def run_some_attempts(draw: Draw, kit: Kit) -> Call:
    actions = not_none(no_array(2, 2))
    bad = one_bad(draw, {}, actions=actions, budget=no_whole_number(1, 10**9))
    return lambda: run(kit, **bad)


@api("actions|distances|latents|goal", lambda kit: action_jerk(np.zeros((4, 2))), examples=250)
def trajectory(draw: Draw, kit: Kit) -> Call:
    kind = draw(st.sampled_from(["jerk", "monotonic", "latents", "goal"]))
    shapes: dict[str, tuple[int | str, ...]] = {"monotonic": ("T",), "goal": (3,)}
    bad = draw(no_array(*shapes.get(kind, ("T", "D"))))
    calls: dict[str, Call] = {
        "jerk": lambda: action_jerk(bad),
        "monotonic": lambda: is_monotonic(bad),
        "latents": lambda: latent_distances(bad, np.zeros(2)),
        "goal": lambda: latent_distances(np.zeros((4, 3)), bad),
    }
    return calls[kind]


@api("pair|rows", lambda kit: paired_difference([row(1), row(2)], [row(2)]), examples=60)
def compare_methods(draw: Draw, kit: Kit) -> Call:
    numbers = st.lists(st.integers(0, 20), max_size=4)
    ours = [row(2 * k) for k in draw(numbers)]
    theirs = [row(2 * k + 1) for k in draw(numbers)]
    if draw(st.booleans()):
        return lambda: paired_difference(ours, theirs)
    return lambda: summarise_method([], reference=theirs)

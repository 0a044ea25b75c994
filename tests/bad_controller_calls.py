"""Bad calls of controllers, of their networks and of their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from bad_call_kit import (
    CONTROLLERS,
    FRAMES,
    LENGTHS,
    ROWS,
    Call,
    Draw,
    Kit,
    api,
    one_bad,
    spoilt_file,
)
from bad_values import (
    JUNK,
    NO_FILE,
    NO_TEXT,
    TEXT,
    Values,
    either,
    no_frames,
    no_indices,
    no_steps,
    no_tensor,
    no_whole_number,
)
from goalward.control.act import load_controller
from goalward.control.checkpoint import load_trained_idm
from goalward.control.controller import RandomController, ZeroController
from goalward.control.swm_policy import SwmPolicy
from goalward.core.tensors import read_tensors, write_tensors
from goalward.world.checkpoint import load_world
from goalward.world.frozen import FrameEncoder


def reset_of(name: str) -> None:
    @api("goals|budget|environments", lambda kit: kit.fresh(name).reset(FRAMES, 50), of=name)
    def reset(draw: Draw, kit: Kit) -> Call:
        controller = kit.controllers[name]
        some = draw(st.booleans())
        bad = {"goals": no_frames(), "budget": either(st.none(), no_steps(2 if some else 3))}
        good: dict[str, Any] = {"goals": FRAMES, "budget": 50}
        if some:
            good |= {"goals": FRAMES[:2], "environments": [0, 1]}
            bad["environments"] = no_indices(3, number=2)
        given = one_bad(draw, good, **bad)
        return lambda: controller.reset(**given)


OTHER_NUMBER: Values = st.sampled_from([FRAMES[:2], FRAMES[0], FRAMES[[0, 1, 2, 0]]])


def act_of(name: str) -> None:
    def good(kit: Kit) -> None:
        controller = kit.controllers[name]
        assert controller.act(FRAMES).shape == (3, 2)
        assert controller.act(FRAMES[:1], 7, environments=[1]).shape == (1, 2)

    @api("frames|steps_left|environments", good, of=name)
    def act(draw: Draw, kit: Kit) -> Call:
        controller = kit.controllers[name]
        some = draw(st.booleans())
        bad = {"frames": no_frames(), "steps_left": no_steps(2 if some else 3)}
        arguments: dict[str, Any] = {"frames": FRAMES}
        if some:
            arguments = {"frames": FRAMES[:2], "environments": [2, 0]}
            bad["environments"] = no_indices(3, number=2)
        else:
            bad["frames"] = either(no_frames(), OTHER_NUMBER)
        given = one_bad(draw, arguments, **bad)
        return lambda: controller.act(**given)


for controller_name in CONTROLLERS:
    reset_of(controller_name)
    act_of(controller_name)


@api("call reset|reset all", lambda kit: kit.fresh("zero").reset(FRAMES, 5), examples=60)
def without_goals(draw: Draw, kit: Kit) -> Call:
    controller = kit.fresh(draw(st.sampled_from(sorted(CONTROLLERS))))
    number, budget = draw(st.integers(1, 3)), draw(st.integers(1, 50))
    if draw(st.booleans()):
        return lambda: controller.act(FRAMES[:number], budget)
    return lambda: controller.reset(FRAMES[:number], budget, environments=range(number))


@api("action_dim|seed", lambda kit: (ZeroController(1), RandomController(2, seed=0)))
def blind_controllers(draw: Draw, kit: Kit) -> Call:
    if draw(st.booleans()):
        size = draw(no_whole_number(1, 2**16))
        return lambda: ZeroController(size)
    bad = {"action_dim": no_whole_number(1, 2**16), "seed": no_whole_number(0)}
    arguments = one_bad(draw, {"action_dim": 2, "seed": 0}, **bad)
    return lambda: RandomController(**arguments)


NO_PIXELS: Values = no_frames().filter(  # arrays, and a time axis only if it is not empty
    lambda value: isinstance(value, np.ndarray) and value.ndim < 5
)


@api(
    "pixels|goal|frames",
    lambda kit: SwmPolicy(ZeroController(2)).get_action({"pixels": FRAMES, "goal": FRAMES}),
)
def swm_policy(draw: Draw, kit: Kit) -> Call:
    good = {"pixels": FRAMES[:, None], "goal": FRAMES[:, None]}
    info = one_bad(draw, good, pixels=NO_PIXELS, goal=NO_PIXELS)
    if draw(st.booleans()):
        info = {**good, "other": 0}
        del info[draw(st.sampled_from(["pixels", "goal"]))]
    return lambda: SwmPolicy(ZeroController(2)).get_action(info)


def spoilt_card(draw: Draw, kit: Kit) -> Path:
    """A controller's file with a size, or any other value, that cannot be."""
    tensors, facts = read_tensors(kit.model_file)
    metadata = json.loads(facts["card"])
    place, path = metadata, draw(st.sampled_from(sorted(leaves(metadata))))
    *parents, last = path
    for parent in parents:
        place = place[parent]
    large = st.sampled_from([-1, 0, 2**15, 2**16, 10**6, 2**31, 2**62, 2**70])
    shape = path[0] in ("world", "network", "time_to_go") and type(place[last]) is int
    place[last] = draw(large if shape and draw(st.booleans()) else st.just({"no": 1}))
    write_tensors(kit.folder / "spoilt.safetensors", tensors, {"card": json.dumps(metadata)})
    return kit.folder / "spoilt.safetensors"


def leaves(data: dict[str, Any]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for key, value in data.items():
        inner = leaves(value) if isinstance(value, dict) else [()]
        found += [(key, *rest) for rest in inner]
    return found


def no_model(draw: Draw, kit: Kit) -> Any:
    kind = draw(st.sampled_from(["path", "card", "file"]))
    if kind == "card":
        return spoilt_card(draw, kit)
    if kind == "file":
        return spoilt_file(draw, kit.model_file, kit.folder / "bad.safetensors")
    return draw(NO_FILE)


@api("path|safetensors|controller", lambda kit: load_controller(kit.model_file))
def load_a_controller(draw: Draw, kit: Kit) -> Call:
    path = no_model(draw, kit)
    return lambda: load_controller(path)


@api("path|safetensors|controller|device", lambda kit: load_trained_idm(kit.model_file))
def load_an_inverse_model(draw: Draw, kit: Kit) -> Call:
    if draw(st.booleans()):
        device = draw(either(NO_TEXT, TEXT))
        return lambda: load_trained_idm(kit.model_file, device=device)
    path = no_model(draw, kit)
    return lambda: load_trained_idm(path)


@api("path|folder|world|bad", lambda kit: load_world(kit.world_folder), examples=60)
def load_a_world(draw: Draw, kit: Kit) -> Call:
    if draw(st.booleans()):
        path = draw(NO_FILE)
        return lambda: load_world(path)
    bad = kit.folder / "bad-world"
    bad.mkdir(exist_ok=True)
    spoilt_file(draw, kit.world_folder / "model.json", bad / "model.json")
    return lambda: load_world(bad)


@api("frames", lambda kit: FrameEncoder(kit.world)(torch.from_numpy(FRAMES)), examples=100)
def encode_frames(draw: Draw, kit: Kit) -> Call:
    frames = draw(no_tensor("N", "H", "W", 3, dtype="uint8"))
    return lambda: FrameEncoder(kit.world)(frames)


OTHER_STEPS: Values = st.sampled_from([torch.zeros(2, 0, 16), torch.zeros(2, 5, 16)])
Z, ACTIONS = torch.zeros(2, 2, 16), torch.zeros(2, 2, 4)


@api("pixels|latents|actions", lambda kit: kit.world.predict(Z, ACTIONS), examples=250)
def world_model(draw: Draw, kit: Kit) -> Call:
    kind = draw(st.sampled_from(["encode", "predict", "rollout"]))
    if kind == "encode":
        pixels = draw(no_tensor("N", 3, 16, 16))
        return lambda: kit.world.encode(pixels)
    z = either(no_tensor("B", "T", 16), OTHER_STEPS)
    pair = one_bad(draw, {"z": Z, "actions": ACTIONS}, z=z, actions=no_tensor(2, "T", 4))
    return lambda: getattr(kit.world, kind)(pair["z"], pair["actions"])


PAIRED = (torch.zeros(2, 16), torch.ones(2, 16), torch.tensor([5, 1]))


@api(
    "latents|goals|steps_left",
    lambda kit: (kit.model.network(*PAIRED), kit.pairwise.network(*PAIRED[:2])),
    examples=250,
)
def networks(draw: Draw, kit: Kit) -> Call:
    kind = draw(st.sampled_from(["gc-idm", "pairwise", "time-to-go", "horizon"]))
    z, goal, steps = PAIRED
    bad = {"z": no_tensor("B", 16), "goal": no_tensor(2, 16)}
    if kind in ("gc-idm", "horizon"):
        bad["steps"] = no_tensor(2, dtype="int64")
    given = one_bad(draw, {"z": z, "goal": goal, "steps": steps}, **bad)
    pair = (given["z"], given["goal"])
    head = kit.model.time_to_go
    assert head is not None
    calls: dict[str, Call] = {
        "gc-idm": lambda: kit.model.network(*pair, given["steps"]),
        "pairwise": lambda: kit.pairwise.network(*pair),
        "time-to-go": lambda: head(*pair),
        "horizon": lambda: kit.controllers["direct"].act_on_latents.horizon_steps(
            *pair, given["steps"]
        ),
    }
    return calls[kind]


@api(
    "latents|goals|steps_left",
    lambda kit: kit.controllers["direct"].act_on_latents(*PAIRED),
    examples=150,
)
def act_on_latents(draw: Draw, kit: Kit) -> Call:
    z, goal, steps = PAIRED
    bad = one_bad(
        draw,
        {"z_BD": z, "z_goal_BD": goal, "steps_left_B": steps},
        z_BD=no_tensor("B", 16),
        z_goal_BD=no_tensor(2, 16),
        steps_left_B=no_tensor(2, dtype="int64"),
    )
    return lambda: kit.controllers["direct"].act_on_latents(**bad)


@api("latents|actions|lengths|chosen|horizon|block|episodes", Kit.sampler, examples=200)
def goal_sampler(draw: Draw, kit: Kit) -> Call:
    wrong_sum = st.lists(st.integers(0, 9), max_size=4)
    bad = one_bad(
        draw,
        {},
        z_ND=no_tensor("N", "D"),
        actions_NA=no_tensor(ROWS, "A"),
        lengths_E=either(no_indices(ROWS), st.none(), wrong_sum),
        chosen=either(no_indices(4), st.none(), st.just([])),
        min_horizon=no_whole_number(1, max(LENGTHS)),
        max_horizon=no_whole_number(),
        block=no_whole_number(1, max(LENGTHS)),
    )
    return lambda: kit.sampler(**bad)


@api("number|rng", lambda kit: kit.sampler().draw(3, torch.Generator()), examples=100)
def draw_examples(draw: Draw, kit: Kit) -> Call:
    bad = {"number": no_whole_number(1, 2**26), "rng": either(JUNK, st.integers())}
    arguments = one_bad(draw, {"number": 3, "rng": torch.Generator()}, **bad)
    return lambda: kit.sampler().draw(**arguments)

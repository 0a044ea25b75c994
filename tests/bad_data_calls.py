"""Bad calls of readers, writers and configurations."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from bad_call_kit import FRAMES, LENGTHS, ROWS, Call, Draw, Kit, api, columns, one_bad, spoilt_file
from bad_values import (
    GARBAGE,
    JUNK,
    NO_FILE,
    NO_NUMBER,
    NO_PATH,
    NO_TEXT,
    NO_VALUES,
    SMALL,
    TEXT,
    Values,
    either,
    no_array,
    no_float,
    no_frames,
    no_indices,
    no_tensor,
    no_whole_number,
    not_none,
)
from goalward.core.config import override, parse_config
from goalward.core.machine import choose_device
from goalward.core.random import generator
from goalward.data.episodes import open_episodes
from goalward.data.hdf5 import write_episode
from goalward.data.splits import SplitConfig, split_episodes
from goalward.planning.solvers import CEM
from goalward.tasks import get_task
from goalward.world.frozen import normalise
from goalward.world.latents import embed, open_latents


@api("path|bad.h5", lambda kit: open_episodes(kit.dataset), examples=100)
def open_an_episode_file(draw: Draw, kit: Kit) -> Call:
    path = draw(NO_PATH)
    if draw(st.booleans()):
        path = spoilt_file(draw, kit.dataset, kit.folder / "bad.h5")
    return lambda: open_episodes(path)


@api("folder|world|dataset|task|save_seconds|devices|config", lambda kit: open_embedded(kit))
def embed_a_dataset(draw: Draw, kit: Kit) -> Call:
    good = {"world": kit.world_folder, "dataset": kit.dataset, "folder": kit.folder / "latents"}
    some = not_none(NO_TEXT)
    arguments = one_bad(
        draw,
        good,
        world=NO_PATH,
        dataset=NO_PATH,
        folder=NO_PATH,
        config=some,
        task=either(some, TEXT),
        save_seconds=no_float(SMALL),
        devices=st.just(()),
    )
    return lambda: embed(**arguments)


def open_embedded(kit: Kit) -> object:
    embed(kit.world_folder, kit.dataset, kit.folder / "latents")
    return open_latents(kit.folder / "latents")


@api("folder|stage", open_embedded, examples=60)
def open_embedded_latents(draw: Draw, kit: Kit) -> Call:
    path = draw(NO_FILE)
    return lambda: open_latents(path)


NO_COLUMN: Values = either(NO_TEXT, TEXT)
NO_COLUMNS: Values = not_none(st.one_of(JUNK, TEXT, st.lists(TEXT, min_size=1)))
NO_LIMIT: Values = not_none(no_whole_number(0))
READS: dict[str, tuple[dict[str, Any], dict[str, Values]]] = {
    "read": (
        {"column": "state", "start": 0, "stop": 3},
        {"column": NO_COLUMN, "start": no_whole_number(0, 3), "stop": no_whole_number(0, ROWS)},
    ),
    "rows": (
        {"column": "state", "index": [3, 1]},
        {"column": NO_COLUMN, "index": either(st.none(), no_indices(ROWS))},
    ),
    "episode": ({"i": 1}, {"i": no_whole_number(0, 3), "columns": NO_COLUMNS}),
    "windows": (
        {"starts": [0, 1], "length": 2, "columns": ["state"]},
        {"starts": either(st.none(), no_indices(ROWS)), "length": no_whole_number(1, 7)}
        | {"stride": no_whole_number(1, 7), "columns": NO_COLUMNS},
    ),
    "window_starts": (
        {"span": 3},
        {"span": no_whole_number(), "episodes": no_indices(len(LENGTHS))},
    ),
    "in_memory": ({}, {"columns": NO_COLUMNS, "limit_bytes": NO_LIMIT}),
}


def read_of(name: str) -> None:
    good, bad = READS[name]

    @api(
        "column|row|index|start|stop|episode|length|stride|span|limit_bytes",
        lambda kit: getattr(kit.episodes, name)(**good),
        examples=150,
        of=name,
    )
    def episodes(draw: Draw, kit: Kit) -> Call:
        arguments = one_bad(draw, good, **bad)
        return lambda: getattr(kit.episodes, name)(**arguments)


for read_name in READS:
    read_of(read_name)


NO_ATTRIBUTES: Values = st.one_of(
    JUNK.filter(lambda value: not isinstance(value, dict) or len(value)),
    st.sampled_from([{"format": "x"}, {"task": 3}, {"": "x"}, {"a/b": "x"}]),
    TEXT,
)
NO_NAME: Values = st.one_of(
    st.sampled_from(["", ".", "a/b", "/", "x\0", "ep_len", "step_idx"]),
    st.one_of(st.integers(), st.none(), st.binary()),
)


@api("columns?|pixels|action|attribute", lambda kit: written(kit), examples=250)
def write_an_episode(draw: Draw, kit: Kit) -> Call:
    kind = draw(st.sampled_from(["pixels", "action", "state", "name", "columns", "attributes"]))
    if kind == "attributes":
        attributes = draw(NO_ATTRIBUTES)
        return lambda: written(kit, attributes=attributes)
    table: Any = columns()
    if kind == "columns":
        table = draw(NO_NUMBER)
    elif kind == "name":
        table[draw(NO_NAME)] = table["state"]
    elif kind == "action":
        table["action"] = draw(either(no_array(7, 2), st.just(np.zeros((7, 2), np.float32))))
    else:
        table[kind] = draw(no_frames() if kind == "pixels" else no_rows(7))
    return lambda: written(kit, table)


@cache
def no_rows(number: int) -> Values:
    """Anything but finite numbers of so many rows."""
    return no_array(number, "N").filter(
        lambda v: (
            not (isinstance(v, np.ndarray) and v.dtype == float and v.shape[:1] == (number,))
            or not np.isfinite(v).all()
            or not v.size
        )
    )


def written(kit: Kit, *tables: Any, **attributes: Any) -> None:
    table = tables[0] if tables else columns()
    write_episode(kit.folder / "new.h5", table, **{"attributes": {"task": "x"}, **attributes})


@api("episodes|config", lambda kit: split_episodes(2))
def split(draw: Draw, kit: Kit) -> Call:
    bad = {"num_episodes": no_whole_number(2, 10**7), "config": either(JUNK, st.integers())}
    arguments = one_bad(draw, {"num_episodes": 20}, **bad)
    return lambda: split_episodes(**arguments)


@api("frames|image_size", lambda kit: normalise(torch.from_numpy(FRAMES), 8))
def preprocess(draw: Draw, kit: Kit) -> Call:
    size = not_none(no_whole_number(1, 2**14))
    bad = {"frames_NHWC": no_tensor("N", "H", "W", 3, dtype="uint8"), "image_size": size}
    arguments = one_bad(draw, {"frames_NHWC": torch.from_numpy(FRAMES)}, **bad)
    return lambda: normalise(**arguments)


JSON: Values = st.recursive(
    either(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6)),
    lambda inner: either(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


@api("file.json", lambda kit: parse_config(SplitConfig, b'{"seed":0,"held_out_every":2}', "x"), 250)
def config_of_text(draw: Draw, kit: Kit) -> Call:
    deep = st.sampled_from([b"[" * 10**5, b'{"seed":' * 10**5, b"9" * 10**4, b"{}", b"\xff"])
    text = draw(either(GARBAGE, JSON.map(lambda d: json.dumps(d).encode()), deep))
    return lambda: parse_config(SplitConfig, text, "file.json")


@api("NAME=VALUE|no such value|expected|must", lambda kit: override(CEM(), ["num_iters=3"]), 250)
def config_override(draw: Draw, kit: Kit) -> Call:
    field = st.sampled_from(["num_samples", "num_elites", "init_std", "kind"])
    known = st.tuples(field, st.sampled_from(NO_VALUES)).map("=".join)
    assignment = draw(either(known, TEXT))
    return lambda: override(CEM(), [assignment])


@api("purpose|seed|index", lambda kit: generator("test", 0, 2**64 - 1), examples=150)
def seeded(draw: Draw, kit: Kit) -> Call:
    bad = {"purpose": NO_TEXT, "seed": no_whole_number(0), "index": no_whole_number(0, 2**64 - 1)}
    given = one_bad(draw, {"purpose": "test", "seed": 0, "index": 3}, **bad)
    return lambda: generator(given["purpose"], given["seed"], given["index"])


@api("task", lambda kit: get_task("two-room"), examples=100)
def task_of_a_name(draw: Draw, kit: Kit) -> Call:
    name = draw(either(NO_TEXT, TEXT))
    return lambda: get_task(name)


@api("device", lambda kit: choose_device("cpu"), examples=100)
def device_of_a_name(draw: Draw, kit: Kit) -> Call:
    name = draw(either(NO_TEXT, TEXT, st.sampled_from(["cuda:99", "mps:99", "cpu:x"])))
    return lambda: choose_device(name)

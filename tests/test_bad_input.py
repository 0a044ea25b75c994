"""Bad calls of the public API: each gives one line that says what was expected and what came.

Every argument of every verb is tried with values of other types and ranges; then bad content of
files, frames and names. `python tests/test_bad_input.py` writes all messages to
`tests/golden/errors.txt`, to be read from top to bottom.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import goalward as gw
from goalward import api, bundle
from goalward.cli import describe_error
from goalward.core.checks import one_line

FILE = Path(__file__).parent / "golden" / "errors.txt"
WRONG: tuple[Any, ...] = (None, object, -1, 0.5, "nonsense", ["a"], math.nan)
# Of the same type in every verb, so that they are tried once; `--log` needs an optional package.
SHARED = {"progress", "device", "threads", "workers", "seed", "preset", "log", "weights"}
SHOWING = "train"  # the verb that they are tried with
MOST_CHARACTERS = 420

Case = tuple[str, Callable[[Path], object]]


def wrong_arguments() -> Iterator[Case]:
    """Every argument of every verb with values of other types and ranges."""
    for name, verb in api.VERBS.items():
        parameters = inspect.signature(verb).parameters
        needed: dict[str, Any] = {
            key: ["x"] if key in ("controllers", "experiments") else "x"
            for key, one in parameters.items()
            if one.default is one.empty
        }
        for key in parameters:
            if name == SHOWING or key not in SHARED:
                for value in WRONG:
                    call = {**needed, key: value}
                    title = f"{name} {key}={one_line(repr(value))}"
                    yield title, partial(_call, verb, call)


def _call(verb: Callable[..., object], arguments: dict[str, Any], _: Path) -> object:
    return verb(**arguments)


def bundled_copy(folder: Path) -> Path:
    """A copy of a bundled controller, to be spoilt."""
    path = folder / "push-t.safetensors"
    path.write_bytes(bundle.controller_path("push-t").read_bytes())
    return path


def spoilt(path: Path, *, size: int | None = None, at: int | None = None) -> Path:
    """The file cut short, or with another byte at a place."""
    data = bytearray(path.read_bytes()[:size])
    if at is not None:
        data[at] ^= 1
    path.write_bytes(data)
    return path


def recordings(folder: Path, **columns: Any) -> Path:
    """An episode file of two short recordings, with other columns in place of good ones."""
    frames = np.zeros((12, 64, 64, 3), np.uint8)
    good = {"pixels": frames, "action": np.zeros((11, 2), np.float32)}
    gw.write_episodes(folder / "episodes.h5", [{**good, **columns}] * 2)
    return folder / "episodes.h5"


def foreign(folder: Path, **datasets: Any) -> Path:
    with h5py.File(folder / "other.h5", "w") as file:
        for name, values in datasets.items():
            file[name] = values
    return folder / "other.h5"


def acting(**wrong: Any) -> Callable[[Path], object]:
    """A bundled controller that gets other goals, frames or budget than it should."""

    def call(_: Path) -> object:
        controller = gw.load("bundled:two-room")
        frame = np.zeros((64, 64, 3), np.uint8)
        given = {"goals": frame, "budget": 50, "frames": frame, **wrong}
        if given["goals"] is not None:
            controller.reset(given["goals"], given["budget"])
        return controller.act(given["frames"])

    return call


FRAME = np.zeros((64, 64, 3), np.uint8)
CONTENT: tuple[Case, ...] = (
    ("act before reset", acting(goals=None)),
    ("goals are floats", acting(goals=FRAME.astype(float))),
    ("goals are grey", acting(goals=FRAME[..., 0])),
    ("goals are no array", acting(goals=[[1], [2, 3]])),
    ("frames are floats with NaN", acting(frames=np.full((64, 64, 3), np.nan))),
    ("more frames than goals", acting(frames=np.stack([FRAME] * 3))),
    ("frames are a text", acting(frames="frame.png")),
    ("budget is negative", acting(budget=-3)),
    ("budget is a fraction", acting(budget=2.5)),
    ("budgets of other environments", acting(budget=[1, 2, 3])),
    ("load a misspelt bundled task", lambda _: gw.load("bundled:pusht")),
    ("load what is not there", lambda f: gw.load(f / "none.onnx")),
    ("load a folder that is no training", lambda f: gw.load(f)),
    ("load a misspelt name", lambda _: gw.load("cme", task="push-t")),
    ("load a planner without a model", lambda _: gw.load("cem", task="push-t")),
    ("load a controller of any task without one", lambda _: gw.load("random")),
    ("load a number", lambda _: gw.load(3)),  # type: ignore[arg-type]
    ("load a file that is cut short", lambda f: gw.load(spoilt(bundled_copy(f), size=900_000))),
    ("load a file with a changed byte", lambda f: gw.load(spoilt(bundled_copy(f), at=900_000))),
    ("load a misspelt setting", lambda _: gw.load("bundled:push-t:mod=budget")),
    ("load a setting of another kind", lambda _: gw.load("bundled:push-t:mode=fast")),
    ("evaluate nobody", lambda f: gw.evaluate("two-room", [], f / "x")),
    ("evaluate a misspelt task", lambda f: gw.evaluate("pusht", ["bundled"], f / "x")),
    ("evaluate a misspelt controller", lambda f: gw.evaluate("push-t", ["cme"], f / "x")),
    ("evaluate what makes none", lambda f: gw.evaluate("push-t", [lambda seed: seed], f / "x")),
    ("evaluate twice", lambda f: gw.evaluate("push-t", ["random", "random"], f / "x")),
    ("evaluate no seeds", lambda f: gw.evaluate("push-t", ["random"], f / "x", seeds=[])),
    ("evaluate too many pairs", lambda f: gw.evaluate("push-t", ["zero"], f / "x", pairs=9999)),
    (
        "evaluate by a misspelt protocol",
        lambda f: gw.evaluate("push-t", ["zero"], f / "x", protocol="stric"),
    ),
    (
        "evaluate a controller of another task",
        lambda f: gw.evaluate("cube", [bundle.controller_path("push-t")], f / "x"),
    ),
    (
        "draw a pair that does not exist",
        lambda f: gw.evaluate("push-t", ["zero"], f / "x", pairs=2, videos=[2]),
    ),
    (
        "evaluate other goals than the bundled ones",
        lambda f: gw.evaluate("push-t", ["zero"], f / "x", goal_offset=10),
    ),
    ("inspect a file that is cut short", lambda f: gw.inspect(spoilt(recordings(f), size=3000))),
    ("inspect what is no episode file", lambda f: gw.inspect(foreign(f, weights=[1.0]))),
    ("inspect a file without frames", lambda f: gw.inspect(foreign(f, ep_len=[3]))),
    ("inspect a folder", lambda f: gw.inspect(f)),
    (
        "inspect a link to another file",
        lambda f: gw.inspect(foreign(f, ep_len=[3], pixels=h5py.ExternalLink("secret.h5", "/a"))),
    ),
    ("write actions with NaN", lambda f: recordings(f, action=np.full((11, 2), np.nan))),
    ("write too few actions", lambda f: recordings(f, action=np.zeros((3, 2)))),
    ("write frames of floats", lambda f: recordings(f, pixels=np.zeros((12, 64, 64, 3)))),
    ("write frames that are no images", lambda f: recordings(f, pixels=np.zeros((12, 64)))),
    ("write a column of texts", lambda f: recordings(f, note=["a"] * 12)),
    ("write no episodes", lambda f: gw.write_episodes(f / "none.h5", [])),
    ("train on a file of no task", lambda f: gw.baselines(recordings(f), f / "x")),
    (
        "train with a misspelt setting",
        lambda f: gw.train_world(recordings(f), f / "x", overrides=["schedule.lrr=1"]),
    ),
    (
        "train with a setting out of range",
        lambda f: gw.train_world(recordings(f), f / "x", overrides=["schedule.lr=-1"]),
    ),
    (
        "train with a setting without a value",
        lambda f: gw.train_world(recordings(f), f / "x", overrides=["schedule.lr"]),
    ),
    ("train on too little", lambda f: gw.train_world(recordings(f), f / "x", preset="smoke")),
    ("embed with what is no world model", lambda f: gw.embed(f, recordings(f), f / "x")),
    ("train on what are no latents", lambda f: gw.train(f, f / "x")),
    ("export into a missing folder", lambda f: gw.export(bundled_copy(f), f / "a" / "b.txt")),
    ("reproduce a misspelt experiment", lambda f: gw.reproduce(["mian"], f)),
    (
        "reproduce what needs training without any",
        lambda f: gw.reproduce(["width"], f, preset="bundled"),
    ),
    ("report a folder without tables", lambda f: gw.report(f, f / "report")),
    ("verify a folder without checksums", lambda f: gw.verify(f)),
    ("run a misspelt task", lambda f: gw.run("two-rooms", f / "x")),
    ("run a misspelt controller", lambda f: gw.run("two-room", f / "x", controllers=["gcidm"])),
    ("convert without a download", lambda f: gw.convert_world("owner/name", f / "x")),
    ("register a task that is none", lambda _: gw.register_task("push-t")),  # type: ignore[arg-type]
    (
        "register a controller by a bad name",
        lambda _: gw.register_controller("a:b", lambda *_: None),  # type: ignore[arg-type]
    ),
)
# What is no mistake: any text may be a path, an experiment list may be empty, and so on.
ALLOWED = {"doctor out='nonsense'"}


def messages(folder: Path) -> Iterator[tuple[str, str]]:
    """What each bad call says; places on this machine are left out."""
    os.chdir(folder)
    package = str(Path(gw.__file__).parent)
    for number, (title, call) in enumerate((*wrong_arguments(), *CONTENT)):
        place = folder / str(number)
        place.mkdir()
        try:
            call(place)
        except (ValueError, OSError) as error:
            message = describe_error(error).replace(str(place), "FOLDER")
            yield title, message.replace(f"{folder}/", "").replace(package, "PACKAGE")
        else:
            assert title in ALLOWED, f"{title}: was accepted"


@pytest.fixture(scope="module", name="found")
def found_fixture(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Every message by the title of its case, in a process that no other test has changed."""
    path = tmp_path_factory.mktemp("bad") / "messages.json"
    subprocess.run([sys.executable, __file__, str(path)], check=True)
    found: dict[str, str] = json.loads(path.read_text())
    return found


def test_every_bad_call_gives_one_short_line(found: dict[str, str]) -> None:
    assert len(found) > 300
    for title, message in found.items():
        assert message and "\n" not in message, title
        assert len(message) <= MOST_CHARACTERS, f"{title}: {message}"
        assert "Traceback" not in message and "pydantic" not in message, title


def test_a_wrong_type_or_range_is_refused_by_the_name_of_the_argument(
    found: dict[str, str],
) -> None:
    for title in (one for one in found if one.split("=")[-1] in ("-1", "nan")):
        key = title.split()[1].partition("=")[0]
        assert found[title].startswith(key), f"{title}: {found[title]}"


def test_misspelt_names_are_answered_with_the_nearest_known_one(found: dict[str, str]) -> None:
    for title in (one for one in found if "misspelt" in one):
        hint = "did you mean" in found[title] or "known " in found[title]
        assert hint or "only" in found[title], f"{title}: {found[title]}"


def test_the_list_of_messages_is_up_to_date(found: dict[str, str]) -> None:
    assert FILE.read_text().splitlines() == listed(found), "run `python tests/test_bad_input.py`"


def listed(found: dict[str, str]) -> list[str]:
    """Each message once, with the first case that gives it."""
    first: dict[str, str] = {}
    for title, message in found.items():
        first.setdefault(message, title)
    return [f"{title}: {message}" for message, title in first.items()]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        every = dict(messages(Path(temporary)))
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(every))
    else:
        FILE.write_text("\n".join(listed(every)) + "\n")

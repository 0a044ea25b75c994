"""Collections do not depend on the number of workers or on interruptions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import goalward as gw
from goalward import cli
from goalward.core.artifacts import load_manifest
from goalward.data.collect import CollectConfig, collect
from goalward.data.episodes import open_episodes
from goalward.tasks import get_task, register_task
from goalward.tasks.demonstrations import KINDS

pytest.importorskip("stable_worldmodel")

Dataset = Callable[[str], Path]
SMALL = CollectConfig.for_task("two-room", episodes=8, seed=3, episode_steps=30)


def command(out: Path, *flags: str) -> list[str]:
    small = ["--num-episodes", "8", "--seed", "3", "--episode-steps", "30", "--out", str(out)]
    return [sys.executable, "-m", "goalward.cli", "collect", "two-room", *small, *flags]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an uninterrupted collection by one worker."""
    return collect(SMALL, tmp_path_factory.mktemp("whole") / "run", workers=1)


def test_two_workers_write_the_same_bytes_as_one(whole: Path, tmp_path: Path) -> None:
    both = collect(SMALL, tmp_path / "run", workers=2)
    assert both.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize(
    "name", ["push-t", "cube", pytest.param("reacher", marks=pytest.mark.slow)]
)
def test_an_episode_is_the_same_whichever_process_recorded_it(
    name: str, dataset: Dataset, tmp_path: Path
) -> None:
    with open_episodes(dataset(name)) as episodes:
        by_two = episodes.episode(1)
    config = CollectConfig.for_task(name, episodes=2, seed=5)
    with open_episodes(collect(config, tmp_path / "run", workers=1)) as episodes:
        by_one = episodes.episode(1)
    assert by_two.keys() == by_one.keys()
    for column in by_two:
        assert np.array_equal(by_two[column], by_one[column], equal_nan=True), column


def children_of(pid: int) -> list[int]:
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_a_killed_collection_resumes_to_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    parts = tmp_path / "run.partial" / "parts"
    first = subprocess.Popen(command(out, "--workers", "2", "--json"), stdout=subprocess.DEVNULL)
    wait_for(lambda: len(list(parts.glob("0*.h5"))) >= 3)
    workers = children_of(first.pid)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert not out.exists()
    wait_for(lambda: not any(map(is_alive, workers)), 20.0)  # orphans must not go on writing
    kept = {path.name: path.stat().st_mtime_ns for path in parts.glob("0*.h5")}
    assert 3 <= len(kept) < 8, "killed too late to show anything"
    progress: list[int] = []
    again = collect(SMALL, out, workers=1, on_progress=lambda done, _: progress.append(done))
    assert again.read_bytes() == whole.read_bytes()
    assert progress == list(range(len(kept), 9))
    assert load_manifest(out).files.keys() == {"config.json", "episodes.h5"}


def test_a_complete_collection_is_not_run_again(whole: Path) -> None:
    before = whole.stat().st_mtime_ns
    assert collect(SMALL, whole.parent, workers=2) == whole
    assert whole.stat().st_mtime_ns == before


def test_rows_hold_frame_state_and_the_action_taken_there(whole: Path) -> None:
    with open_episodes(whole) as episodes:
        assert episodes.attributes["task"] == "two-room"
        assert episodes.lengths.tolist() == [31] * 8  # the reset frame and 30 more
        episode = episodes.episode(2)
        last = np.cumsum(episodes.lengths) - 1
        assert np.flatnonzero(~episodes.has_action()).tolist() == last.tolist()
    moved = np.linalg.norm(np.diff(episode["state"], axis=0) - 5 * episode["action"][:-1], axis=1)
    assert np.median(moved) < 1e-3  # a step moves the agent by 5 px times the action in its row


def test_a_full_disk_stops_with_one_line_and_loses_nothing(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    full = subprocess.run(
        ["sh", "-c", 'ulimit -f 15; exec "$@"', "sh", *command(out, "--workers", "1", "--json")],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert full.returncode == 2
    assert "File too large" in full.stderr
    assert full.stderr.count("\n") == 1
    assert not out.exists()
    assert not list((tmp_path / "run.partial" / "parts").glob("0*.h5"))
    subprocess.run(command(out, "--workers", "2", "--json"), check=True, capture_output=True)
    assert (out / "episodes.h5").read_bytes() == whole.read_bytes()


def test_a_demonstrator_that_a_task_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="has no demonstrator 'nobody', only: expert"):
        replace(SMALL, demonstrator="nobody")


OWN = """
from dataclasses import replace
from goalward.tasks.two_room import TWO_ROOM, NoisyExpert
WALK = {"mine": lambda simulator, rng: NoisyExpert(simulator, rng)}
MINE = replace(TWO_ROOM, name="rooms-of-a-file", demonstrators=WALK)
"""


@pytest.mark.parametrize("source", ["file", "object"])
def test_a_task_from_outside_the_package_is_collected_by_two_workers(
    source: str, whole: Path, tmp_path: Path
) -> None:
    (tmp_path / "own_rooms.py").write_text(OWN)
    if source == "file":
        task = get_task(f"{tmp_path / 'own_rooms.py'}:MINE")
    else:
        expert = get_task("two-room").demonstrators["expert"]
        demonstrators = {"mine": lambda simulator, rng: expert(simulator, rng)}
        task = replace(get_task("two-room"), name="rooms-of-an-object", demonstrators=demonstrators)
        register_task(task)
    config = replace(SMALL, task=task.name, demonstrator="mine")
    with open_episodes(collect(config, tmp_path / "run", workers=2)) as episodes:
        assert episodes.attributes["task"] == task.name
        with open_episodes(whole) as known:
            for name in known.columns:
                np.testing.assert_array_equal(episodes.read(name, 0, 248), known.read(name, 0, 248))


@pytest.mark.parametrize(
    ("preset", "demonstrator"), [("cpu", "noisy-pusher"), ("cpu-long", "pusher")]
)
def test_a_preset_chooses_its_demonstrator(
    preset: str, demonstrator: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["--num-episodes", "1", "--episode-steps", "3", "--workers", "1", "--json"]
    out = tmp_path / preset
    assert cli.main(["collect", "push-t", "--preset", preset, "--out", str(out), *short]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 1
    assert load_manifest(out).config["demonstrator"] == demonstrator


def test_a_mixtures_recipe_can_be_changed_and_each_episode_has_its_kind(tmp_path: Path) -> None:
    collect_few = partial(
        gw.collect, "two-room", demonstrator="mixture", episode_steps=12, workers=1
    )
    others = ("plain", "correlated_noise", "bursts", "exploration")
    only_noise = [f"recipe.{name}=0" for name in others]
    with collect_few(tmp_path / "a", num_episodes=4, overrides=only_noise) as episodes:
        assert episodes.attributes["kinds"].split(", ") == list(KINDS)
        assert episodes.columns["kind"].dtype == np.uint8
        assert set(episodes.read("kind")) == {KINDS.index("white noise")}
    with collect_few(tmp_path / "b", num_episodes=12) as episodes:
        kinds = [episodes.episode(k)["kind"] for k in range(12)]
    assert all(len(set(kind)) == 1 for kind in kinds)
    assert len({int(kind[0]) for kind in kinds}) > 2
    with pytest.raises(ValueError, match=r"unknown setting 'recipe\.nose'; did you mean"):
        collect_few(tmp_path / "c", num_episodes=4, overrides=["recipe.nose=1"])

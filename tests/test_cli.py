"""The command line: quick, quiet when asked, and one clear line for every mistake."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

from cli_helpers import Capture, document, refusal
from episode_helpers import make_episode
from goalward import api, cli
from goalward.data.hdf5 import merge_episodes, write_episode
from goalward.tasks import TASKS, get_task
from goalward.tasks import rendering as gl

Dataset = Callable[[str], Path]
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "PYOPENGL_PLATFORM")
HEAVY = ("torch", "numpy", "h5py", "stable_worldmodel", "mujoco", "rich", "goalward.tasks")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom goalward.cli import parse\n"
        "try:\n    parse(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "collect" in done.stdout
    assert done.stderr.strip() == "[]"


def test_tasks_are_listed_for_people_and_for_programs(capsys: Capture) -> None:
    assert cli.main(["list-tasks"]) == 0
    out = capsys.readouterr().out
    assert all(f"{name}: " in out for name in TASKS.names())
    facts = document(capsys, "list-tasks")
    assert [task["name"] for task in facts] == list(TASKS.names())
    assert facts[1]["baselines"] == ["zero", "random", "line"]
    assert set(facts[0]["protocols"]) == {"paper", "moderate", "strict"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--image-size", "0"), "image_size must be at least 1, got 0"),
        (("--image-size", "9"), "image_size must be at least 16, got 9"),
        (("--num-episodes", "-3"), "num_episodes must be at least 1, got -3"),
        (("--workers", "0"), "workers must be at least 1, got 0"),
        (("--demonstrator", "me"), "has no demonstrator 'me'"),
    ],
)
def test_a_flag_out_of_range_is_refused(
    flags: tuple[str, ...], message: str, capsys: Capture, tmp_path: Path
) -> None:
    out = tmp_path / "x"
    assert message in refusal(capsys, "collect", "two-room", "--out", str(out), "--json", *flags)
    assert not out.exists()


def test_a_flag_that_cannot_be_parsed_exits_with_code_2(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["collect", "two-room", "--num-episodes", "many", "--out", "x"])
    assert caught.value.code == 2
    assert "many" in capsys.readouterr().err


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A folder that nobody may write, root included: root puts on another user's hat."""
    folder.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)


def test_a_read_only_folder_is_refused(capsys: Capture) -> None:
    import goalward.data.collect  # noqa: F401 - before the hat is on: it may not read our files

    locked = Path(tempfile.mkdtemp(dir="/tmp"))  # pytest's own folders are closed to other users
    try:
        with read_only(locked):
            line = refusal(capsys, "collect", "two-room", "--out", str(locked / "x"), "--json")
        assert "Permission denied; choose a folder that you may write to" in line
        assert list(locked.iterdir()) == []
    finally:
        shutil.rmtree(locked)


def test_a_machine_without_gl_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    monkeypatch.setattr(gl, "LIBRARIES", {"osmesa": ("libNoSuchLibrary.so",)})
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    line = refusal(capsys, "collect", "cube", "--out", str(tmp_path / "x"))
    assert "no off-screen OpenGL library" in line
    assert "libosmesa6" in line
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    with pytest.raises(
        ValueError, match=r"MUJOCO_GL='osmesa' cannot be used here \(can be: none\)"
    ):
        gl.prepare_gl()


def test_contradicting_gl_settings_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYOPENGL_PLATFORM", "wayland")
    line = refusal(capsys, "collect", "reacher", "--out", str(tmp_path / "x"))
    assert "PYOPENGL_PLATFORM='wayland' contradicts" in line


@pytest.mark.skipif(sys.platform != "linux", reason="GLFW draws without a display elsewhere")
def test_a_gl_back_end_that_cannot_draw_here_gives_one_line(tmp_path: Path) -> None:
    flags = ("--num-episodes", "1", "--episode-steps", "2", "--out", str(tmp_path / "x"))
    without = {k: v for k, v in os.environ.items() if k not in SCREENS}
    done = subprocess.run(
        [sys.executable, "-m", "goalward.cli", "collect", "reacher", *flags],
        capture_output=True,
        text=True,
        env=without | {"MUJOCO_GL": "glfw"},
    )
    assert done.returncode == 2
    assert done.stderr.startswith("goalward: MuJoCo cannot draw with MUJOCO_GL='glfw'")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda file: file.pop("state"), "lacks the column 'state'"),
        (lambda file: file.attrs.pop("task"), "does not name its task; give it with --task"),
    ],
)
def test_a_file_without_states_or_task_is_refused(
    spoil: Callable[[Any], object], message: str, dataset: Dataset, capsys: Capture, tmp_path: Path
) -> None:
    copy = shutil.copy(dataset("two-room") / "episodes.h5", tmp_path)
    with h5py.File(copy, "a") as file:
        spoil(file)
    assert message in refusal(capsys, "baselines", str(copy), "--json")


def test_a_file_of_another_task_is_refused(dataset: Dataset, capsys: Capture) -> None:
    line = refusal(capsys, "baselines", str(dataset("two-room")), "--task", "cube")
    assert "is a file of task two-room, not of cube; leave --task out" in line


@pytest.mark.parametrize("name", TASKS.names())
def test_inspect_tells_the_numbers_and_draws_a_sheet(
    name: str, dataset: Dataset, capsys: Capture, tmp_path: Path
) -> None:
    sheet = tmp_path / "sheet.png"
    facts = document(capsys, "inspect", str(dataset(name)), "--sheet", str(sheet))
    task = get_task(name)
    assert facts["steps"] == facts["episodes"] * (task.episode_steps + 1)
    assert len(facts["action"]["mean"]) == task.action_dim
    assert 0 <= facts["solved_pairs"]["paper"] < 0.6
    assert facts["contact_sheet"] == str(sheet)
    with Image.open(sheet) as image:
        assert image.width > 1000
        assert len(image.convert("RGB").getcolors(1 << 20) or []) > 30


def test_inspect_tells_what_training_will_refuse_and_reads_what_it_may_not_write_to(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object) -> None:
        raise OSError(errno.EROFS, "read only", str(tmp_path))

    write_episode(tmp_path / "part.h5", make_episode(0, 20), attributes={})
    merge_episodes([tmp_path / "part.h5"], tmp_path / "episodes.h5")
    with h5py.File(tmp_path / "episodes.h5", "r+") as file:
        file["action"][3] = np.nan
        del file.attrs["checksums"]  # as in files of others
    monkeypatch.setattr("goalward.data.summary.save_contact_sheet", read_only)
    run = ["inspect", str(tmp_path / "episodes.h5")]
    facts = document(capsys, *run)
    assert facts["contact_sheet"] is None and "row 3" in facts["problems"][0]
    assert cli.main(run) == 0
    assert "--sheet" in capsys.readouterr().out
    assert "Read-only" in refusal(capsys, *run, "--sheet", str(tmp_path / "sheet.png"))


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = [sys.executable, "-m", "goalward.cli", "list-tasks", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == cli.CLOSED_PIPE


def test_the_doctor_finds_this_machine_fit(capsys: Capture) -> None:
    findings = {f["name"]: f for f in document(capsys, "doctor")["findings"]}
    assert findings["stable-worldmodel"]["found"] == "0.1.1"
    assert {"python", "torch", "mujoco", "onnxruntime", "off-screen GL", "disk"} <= findings.keys()


def test_the_doctor_names_the_command_that_mends(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gl, "LIBRARIES", {"osmesa": ("libNoSuchLibrary.so",)})
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("goalward.diagnostics.SIMULATORS", ("no-such-simulator",))
    assert cli.main(["doctor"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "missing" in out
    assert "libosmesa6" in out
    assert "goalward[sim]" in out


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.ENOSPC, "", "/a/b"), "/a/b: No space left on device; free some space"),
        (OSError(errno.EROFS, "", "/a"), "/a: Read-only file system; choose a folder"),
        (ValueError("width: expected int"), "width: expected int"),
    ],
)
def test_errors_are_described_with_a_remedy(error: ValueError | OSError, line: str) -> None:
    assert cli.describe_error(error).startswith(line)


def test_ctrl_c_is_not_an_accident(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(api.VERBS, "list-tasks", interrupt)
    assert cli.main(["list-tasks"]) == 130
    assert "the same command continues where it stopped" in capsys.readouterr().err

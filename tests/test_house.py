"""The house stays in order: layers, generated pages, and what the README promises."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controller_helpers import (  # noqa: F401
    dot_latents_fixture,
    many_dots_fixture,
    smoke,
    tiny_world_fixture,
)
from goalward import cli
from goalward.control.train import train_controller
from goalward.data.episodes import open_episodes
from goalward.experiments.ablations import WORLDS
from goalward.experiments.catalog import find_experiments
from goalward.experiments.experiment import CEM, GC_IDM, Experiment
from goalward.experiments.report import read_report
from goalward.runtime.onnx import ACTIONS, FRAMES, GOALS, LATENTS, STEPS

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "goalward"

# Each layer may import itself and the layers before it.
LAYERS = (
    {"core", "defaults"},
    {"engines"},
    {"tasks"},
    {"data"},
    {"world"},
    {"control", "planning", "runtime"},
    {"evaluation"},
    {"presets", "bundle"},
    {"pipeline"},
    {"experiments"},
    {"diagnostics"},
    {"commands", "cli"},
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
SIMULATORS = {"stable_worldmodel", "mujoco", "pymunk", "pygame", "ogbench", "dm_control", "cv2"}


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def module_name(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


MODULES = [p for p in sorted(PACKAGE.rglob("*.py")) if p != PACKAGE / "__init__.py"]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_imports_only_its_own_layer_and_those_below(path: Path) -> None:
    rank = RANK[module_name(path)]
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "goalward" and parts[1] in RANK:
            assert RANK[parts[1]] <= rank, f"{path.name} imports {name}"
        if parts[0] in SIMULATORS:
            assert module_name(path) in ("tasks", "data"), f"{path.name} imports {name}"


def test_the_generated_pages_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    build = importlib.import_module("build")
    monkeypatch.setenv("COLUMNS", build.WIDTH)
    for name, page in build.PAGES.items():
        assert (ROOT / "docs" / name).read_text() == page(), f"{name}: run `make docs`"


def test_the_readmes_tables_are_those_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    readme = (ROOT / "README.md").read_text()
    wanted = importlib.import_module("readme_block").with_blocks(readme)
    assert "two-room" in wanted and readme == wanted, "README.md: run `make docs`"


def test_what_the_readme_tells_of_experiments_on_push_t_is_what_was_measured() -> None:
    readme = " ".join((ROOT / "README.md").read_text().split())
    tables = {t.table.id: t.table for t in read_report(ROOT / "results/experiments/cpu").sections}
    geometry, held_out = (
        [e.summary.rate for e in tables[name].entries if e.task == "push-t" and e.method in methods]
        for name, methods in (("geometry", (GC_IDM,)), ("held-out", (GC_IDM, CEM)))
    )
    assert len(geometry) == len(WORLDS) and len(held_out) == 4
    for rate in (*geometry, *held_out):
        low, high = round(100 * rate.low), round(100 * rate.high)
        assert f"{100 * rate.mean:.1f} ({low}-{high})%" in readme
    facts = [f for f in tables["latent-geometry"].facts if f.task == "push-t"]
    shown = [f.value for f in facts if f.column == "inverse R²" and f.value is not None]
    assert len(shown) == len(WORLDS) and all(f"{value:.2f})" in readme for value in shown)
    (verdict,) = [v for v in tables["held-out"].verdicts if v.task == "push-t"]
    gap = verdict.difference
    assert gap is not None
    bounds = f"{-100 * gap.mean:.1f}, {-100 * gap.high:.1f} to {-100 * gap.low:.1f}"
    assert f"(difference {bounds})" in readme


def test_stored_tables_have_what_the_catalog_asks_and_claims() -> None:
    tables = read_report(ROOT / "results" / "experiments" / "cpu").sections
    assert tables
    for table in (section.table for section in tables):
        (one,) = find_experiments([table.id])
        assert (table.title, table.paper) == (one.title, one.paper)
        if isinstance(one, Experiment):
            again = f"{one.id}: run `goalward reproduce {one.id}` again"
            claims = {(t, c.wording) for t in table.tasks for c in one.claims if t in c.tasks}
            assert {(v.task, v.claim) for v in table.verdicts} == claims, again
            places = {(t, m, p.label) for t in table.tasks for p, m, _ in one.cells(t)}
            assert {(e.task, e.method, e.point) for e in table.entries} == places, again


def test_every_file_that_the_documents_link_to_exists() -> None:
    for document in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_every_make_target_that_the_documents_name_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named: set[str] = set()
    for document in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        named |= set(re.findall(r"`make ([a-z-]+)`", document.read_text()))
        named |= set(re.findall(r"^make ([a-z-]+)", document.read_text(), re.M))
    assert {"demo", "test"} <= named <= targets


def test_continuous_integration_runs_the_readmes_test_command() -> None:
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("\nmake test")


def test_the_readmes_python_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dataset: Callable[[str], Path],
    dot_latents: Path,
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    (tmp_path / "my").mkdir()
    (tmp_path / "my" / "episodes").symlink_to(dataset("push-t"))
    train_controller(smoke(dot_latents, 2), dot_latents, tmp_path / "my" / "controller")
    monkeypatch.chdir(tmp_path)
    frame = np.zeros((64, 64, 3), dtype=np.uint8)
    scope: dict[str, Any] = {"frame": frame, "goal_frame": frame}
    for code in blocks:
        exec(compile(code, "README.md", "exec"), scope)
    assert scope["batch"]["pixels"].shape == (64, 4, 64, 64, 3)
    assert scope["action"].shape == (2,)


def test_recordings_become_an_episode_file_as_the_page_about_data_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "DATA.md").read_text(), re.S)
    rng = np.random.default_rng(0)
    frames = rng.integers(256, size=(20, 12, 64, 64, 3), dtype=np.uint8)
    actions = rng.normal(size=(20, 12, 3)).astype(np.float32)
    actions[:, -1] = np.nan
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "DATA.md", "exec"), {"recordings": zip(frames, actions, strict=True)})
    with open_episodes(tmp_path / "episodes.h5") as episodes:
        np.testing.assert_array_equal(episodes.read("pixels", 12, 24), frames[1])
    assert cli.main(["inspect", "episodes.h5"]) == 0
    assert "unknown" in capsys.readouterr().out
    assert cli.main(["inspect", "episodes.h5", "--task", "two-rooms"]) == 2


def test_the_page_about_data_names_the_exported_graphs_inputs_and_outputs() -> None:
    page = (ROOT / "docs" / "DATA.md").read_text()
    for name in (FRAMES, GOALS, STEPS, ACTIONS, LATENTS):
        assert f"`{name}`" in page


def test_the_constraints_pin_what_is_known_to_break_and_name_no_place() -> None:
    text = (ROOT / "constraints.txt").read_text()
    pins = dict(re.findall(r"^([\w.-]+)==([\w.]+)", text, re.M))
    assert pins["stable-worldmodel"] == "0.1.1"
    assert pins["mujoco"].startswith("3.")
    assert "torch" in pins and "torchvision" in pins
    assert "@" not in text and "://" not in text and "--hash" not in text


def project() -> dict[str, Any]:
    tomllib = pytest.importorskip("tomllib", reason="in the standard library from Python 3.11 on")
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def test_every_dependency_is_pinned_in_the_constraints() -> None:
    extras = project()["optional-dependencies"]
    wanted = [*project()["dependencies"], *(d for extra in extras.values() for d in extra)]
    text = (ROOT / "constraints.txt").read_text().lower().replace("_", "-")
    for requirement in wanted:
        name = re.split(r"[<>=!~\[; ]", requirement)[0].lower().replace("_", "-")
        assert name == "goalward" or f"\n{name}==" in text, name


def test_the_version_is_the_same_everywhere() -> None:
    import goalward

    assert project()["version"] == goalward.__version__

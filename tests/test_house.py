"""The house stays in order: layers, sizes, generated pages, and what the documents promise."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import goalward as gw
from goalward import cli
from goalward.data.episodes import open_episodes
from goalward.experiments.catalog import find_experiments
from goalward.experiments.experiment import Experiment
from goalward.experiments.report import read_report
from goalward.runtime.onnx import ACTIONS, FRAMES, GOALS, LATENTS, STEPS

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "goalward"
DOCUMENTS = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")))
TABLES = sorted((ROOT / "results").glob("*/*.json.gz"))

# Each layer may import itself and the layers before it.
LAYERS = (
    {"core", "defaults"},
    {"engines"},
    {"tasks"},
    {"data"},
    {"world"},
    {"control", "planning", "runtime"},
    {"evaluation", "bundle"},
    {"presets"},
    {"pipeline"},
    {"experiments"},
    {"diagnostics"},
    {"api", "display", "cli"},
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
SIMULATORS = {"stable_worldmodel", "mujoco", "pymunk", "pygame", "ogbench", "dm_control", "cv2"}
MOST_LINES = {"api.py": 1000}  # of a module; the verbs are long by their documentation
MOST_FUNCTION_LINES = 60  # of code, without its docstring


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
        if parts[0] == "goalward" and parts[-1] != "goalward" and parts[1] in RANK:
            assert RANK[parts[1]] <= rank, f"{path.name} imports {name}"
        if parts[0] in SIMULATORS:
            assert module_name(path) in ("tasks", "data"), f"{path.name} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_modules_and_functions_are_short(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MOST_LINES.get(path.name, 420)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            lines = body[-1].end_lineno - body[0].lineno if body else 0  # type: ignore[operator]
            assert lines <= MOST_FUNCTION_LINES, f"{path.name}: {node.name}"


@pytest.fixture(name="build")
def build_fixture(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program that writes the generated pages."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    build = importlib.import_module("build")
    monkeypatch.setenv("COLUMNS", build.WIDTH)
    return build


def test_the_generated_pages_are_up_to_date(build: ModuleType) -> None:
    for name, page in build.PAGES.items():
        assert (ROOT / "docs" / name).read_text() == page(), f"{name}: run `make docs`"


def test_the_generated_blocks_of_documents_are_those_of_the_results(build: ModuleType) -> None:
    for path, with_blocks in build.BLOCKS.items():
        text = path.read_text()
        assert with_blocks(text) == text, f"{path.name}: run `make docs`"


def shown(task: str, preset: str, table: str, variant: str, point: str) -> str:
    """A success rate as documents show it."""
    report = read_report(ROOT / "results" / preset)
    (found,) = (s.table for s in report.sections if s.table.id == table)
    (rate,) = (
        e.summary.rate
        for e in found.entries
        if (e.task, e.variant, e.point) == (task, variant, point)
    )
    return f"{100 * rate.mean:.1f} ({100 * rate.low:.0f}-{100 * rate.high:.0f})%"


def test_the_figures_in_the_findings_are_those_of_the_results() -> None:
    page = " ".join((ROOT / "docs" / "findings.md").read_text().split())
    budget = "GC-IDM, budget horizon"
    worlds = next(one for one in find_experiments(["geometry"]) if isinstance(one, Experiment))
    for world in worlds.points:
        assert shown("push-t", "cpu", "geometry", budget, world.label) in page
    for variant in (budget, "CEM"):
        for point in ("held-out", "all"):
            assert shown("push-t", "cpu", "held-out", variant, point) in page
    tables = {s.table.id: s.table for s in read_report(ROOT / "results" / "cpu").sections}
    metrics = [m for m in tables["latent-geometry"].metrics if m.task == "push-t"]
    decoded = [m.value for m in metrics if m.column == "inverse R²" and m.value is not None]
    assert len(decoded) == len(worlds.points)
    assert all(f"({value:.2f})" in page for value in decoded)
    (verdict,) = (v for v in tables["held-out"].verdicts if v.task == "push-t")
    gap = verdict.difference
    assert gap is not None
    bounds = f"{-100 * gap.mean:.1f}, {-100 * gap.high:.1f} to {-100 * gap.low:.1f}"
    assert f"(difference {bounds})" in page


@pytest.mark.parametrize("path", TABLES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_stored_tables_have_what_the_catalog_asks_and_claims(path: Path) -> None:
    (table,) = (
        s.table
        for s in read_report(path.parent).sections
        if s.table.id == path.name.partition(".")[0]
    )
    (one,) = find_experiments([table.id])
    assert (table.title, table.paper) == (one.title, one.paper)
    if isinstance(one, Experiment):
        again = f"{one.id}: run `goalward reproduce {one.id}` again"
        entries = {(e.task, e.variant, e.point) for e in table.entries}
        places = {(t, v.label, p.label) for t in table.tasks for p, v, _ in one.runs(t)}
        assert entries <= places, again
        due = {
            (task, claim.wording)
            for task in table.tasks
            for claim in one.claims
            if task in claim.tasks
            and {(task, v.label, p) for v, p in (claim.better, claim.worse)} <= entries
        }
        assert {(v.task, v.claim) for v in table.verdicts} == due, again


def test_every_file_that_the_documents_link_to_exists() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_every_make_target_that_the_documents_name_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named: set[str] = set()
    for document in DOCUMENTS:
        named |= set(re.findall(r"`make ([a-z-]+)`", document.read_text()))
        named |= set(re.findall(r"^make ([a-z-]+)", document.read_text(), re.M))
    assert {"demo", "test"} <= named <= targets


def blocks(language: str) -> Iterator[tuple[Path, str]]:
    """The code that the documents show in a language."""
    for document in DOCUMENTS:
        for code in re.findall(rf"```{language}\n(.*?)```", document.read_text(), re.S):
            yield document, code


def test_every_command_that_the_documents_show_can_be_parsed() -> None:
    lines = [
        (document, line)
        for document, code in blocks("bash")
        for line in code.replace("\\\n", " ").splitlines()
        if line.startswith("goalward ")
    ]
    assert len(lines) > 20
    for document, line in lines:
        words = shlex.split(line, comments=True)[1:]
        try:
            cli.parse([word for word in words if word != "→"])
        except SystemExit as error:
            raise AssertionError(f"{document.name}: {line}") from error


def test_every_public_name_that_the_documents_use_exists() -> None:
    named = {
        (document.name, name)
        for document in DOCUMENTS
        for name in re.findall(r"\bgw\.(\w+)", document.read_text())
    }
    assert len(named) > 10
    assert {one for one in named if one[1] not in gw.__all__} == set()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_continuous_integration_runs_the_readmes_test_command() -> None:
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("\nmake test")


def test_the_readmes_python_runs() -> None:
    (code,) = (code for document, code in blocks("python") if document.name == "README.md")
    frame = np.zeros((64, 64, 3), dtype=np.uint8)
    scope: dict[str, Any] = {"goal_frame": frame, "frame": frame, "step": lambda _: frame}
    exec(compile(code, "README.md", "exec"), scope)
    assert scope["action"].shape == (2,)
    assert len(code.splitlines()) <= 10


def test_recordings_become_an_episode_file_as_the_page_about_data_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = (code for document, code in blocks("python") if document.name == "data.md")
    rng = np.random.default_rng(0)
    frames = rng.integers(256, size=(20, 12, 64, 64, 3), dtype=np.uint8)
    actions = rng.normal(size=(20, 11, 3)).astype(np.float32)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "data.md", "exec"), {"recordings": zip(frames, actions, strict=True)})
    with open_episodes(tmp_path / "episodes.h5") as episodes:
        np.testing.assert_array_equal(episodes.read("pixels", 12, 24), frames[1])
    assert cli.main(["inspect", "episodes.h5"]) == 0
    assert "unknown" in capsys.readouterr().out
    assert cli.main(["inspect", "episodes.h5", "--task", "two-rooms"]) == 2


def test_the_page_about_data_names_the_exported_graphs_inputs_and_outputs() -> None:
    page = (ROOT / "docs" / "data.md").read_text()
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
    assert project()["version"] == gw.__version__

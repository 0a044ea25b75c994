"""The report: tables as one HTML page, as Markdown and as CSV."""

from __future__ import annotations

import base64
import csv
import io
import os
import re
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from goalward.core.files import atomic_write
from goalward.core.machine import Provenance, short_revision
from goalward.experiments.catalog import find_experiments
from goalward.experiments.claims import Decision
from goalward.experiments.experiment import GC_IDM, HYBRID, TIME_TO_GO, Experiment
from goalward.experiments.figures import save_table_figure
from goalward.experiments.grids import Grid, details_grid, metric_grids, success_grid
from goalward.experiments.tables import SUFFIX, Entry, Picture, Table, read_table

TITLE = "goalward: the paper's tables, measured"
INTRODUCTION = (
    "Success is in percent, ± the standard deviation over seeds where there are several, with the "
    "95% confidence interval over pairs in parentheses. The paper's figure is in brackets: = is "
    "inside our interval, ↑ means that ours is higher, ↓ that ours is lower.",
    "Unless a table varies it: pairs come from held-out test episodes, the goal is 25 recorded "
    "steps after the start, the budget is 50 steps, and the environment decides success (protocol "
    "`paper`). No weights were trained or chosen on these episodes, but the settings of the CPU "
    "presets' world models were chosen with probes on all held-out episodes. All controllers of a "
    "table have the same pairs, and planners use the same world model as GC-IDM.",
    "Compare with the paper's figures with care: its models are larger, its demonstrations are "
    "different, its pairs come from all episodes, and its times are of GPUs. The CPU presets train "
    "the world model with two auxiliary losses that the paper does not have.",
    "A claim is supported or refuted by the 95% interval of a difference: on the same pairs "
    "(Agresti & Min) or, where the table varies the pairs, on different pairs (Agresti & Caffo). "
    "Intervals are wider where pairs of one episode agree (design effect). They do not include the "
    "variation between trainings: tables of different revisions have different trainings.",
)
GLOSSARY = {
    GC_IDM.label: "the horizon input is the number of remaining steps (the paper's setting)",
    TIME_TO_GO.label: "the horizon input is a learned estimate of the distance to the goal (ours)",
    HYBRID.label: "a short search around GC-IDM's proposal (ours)",
    "bundled": "preset of the controllers that come with the package: `cpu` (Two-Room, Reacher) or "
    "`cpu-long` (Cube, Push-T), one seed, rounded to half precision",
    "jerk": "mean norm of the second difference of the actions",
    "monotonic": "share of episodes in which the latent distance to the goal falls at every step "
    "(the paper's definition; its figures are so high that they may be approach rates)",
    "approach rate": "mean share of steps at which that distance falls",
    "ms a decision": "from frame to action, one environment; a plan's time is spread over "
    "the actions that it commits to",
    "isotropy": "1 if the latents vary equally in every direction, 1 / D if in one only",
    "effective rank": "number of directions in which they vary, by the entropy of the variances",
    "κ": "how unevenly the actions of one step show in the latents (condition number, median over "
    "states); it compares world models on one task",
    "inverse R²": "how well the pairwise model decodes actions from true pairs of latents",
    "RMSE from pixels": "of the same probe on principal components of the frames, without learning",
    "+dirty": "the code had uncommitted changes",
}
MARKS: dict[Decision, str] = {"supported": "✓", "refuted": "✗", "inconclusive": "~"}
LIBRARIES = {"torch": "torch", "Python": "python"}
TEMPLATE = "page.html.j2"
MIME_TYPES = {".svg": "image/svg+xml", ".png": "image/png", ".gif": "image/gif"}
CSV_COLUMNS = (
    *("experiment", "preset", "task", "controller", "point", "quantity", "value", "low", "high"),
    *("pairs", "seeds", "seed_std", "paper"),
)


@dataclass(frozen=True, kw_only=True)
class Section:
    """One table of a report."""

    table: Table
    folder: Path

    @property
    def anchor(self) -> str:
        """The place in the page."""
        return f"{self.table.id}-{self.table.preset}"

    @property
    def grids(self) -> list[Grid]:
        """Success, what else was measured of every controller, and other metrics."""
        table = self.table
        found = [success_grid(table), details_grid(table)] if table.entries else []
        return [*filter(None, found), *metric_grids(table)]

    @property
    def claims(self) -> list[Grid]:
        """The verdicts."""
        rows = tuple(
            (v.task, v.claim, f"{MARKS[v.verdict]} {v.verdict}", str(v))
            for v in self.table.verdicts
        )
        return [Grid(("task", "claim", "verdict", "difference"), rows)] if rows else []

    @property
    def chart(self) -> str | None:
        """The chart as SVG; None if the table has none."""
        known = {one.id: one for one in find_experiments() if isinstance(one, Experiment)}
        chart = known[self.table.id].chart if self.table.id in known else "none"
        if chart == "none" or not self.table.entries:
            return None
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "chart.svg")
            save_table_figure(path, self.table, chart)
            return path.read_text(encoding="utf-8")

    @property
    def pictures(self) -> list[tuple[str, Path]]:
        """Pictures that are results themselves, with their names."""
        found = [(_picture_name(self.table, p), self.folder / p.path) for p in self.table.pictures]
        return [(name, path) for name, path in found if path.exists()]

    @property
    def commands(self) -> list[str]:
        """Commands that measure the table again."""
        return [
            f"goalward reproduce {self.table.id} --preset {self.table.preset}"
            f"{f' --pairs {pairs}' if self.table.has_pairs else ''} --tasks {' '.join(tasks)}"
            for pairs, tasks in self.table.tasks_by_pairs.items()
        ]

    @property
    def sources(self) -> str:
        """Machine, revision and libraries of each task."""
        tasks: dict[str, list[str]] = {}
        for task in self.table.tasks:
            origins = dict.fromkeys(map(_shown_origin, self.table.sources[task].origins))
            tasks.setdefault(" and ".join(origins) or "unknown", []).append(task)
        return "; ".join(f"{', '.join(names)}: {source}" for source, names in tasks.items())


@dataclass(frozen=True)
class Report:
    """All tables, in the order of the catalog."""

    sections: tuple[Section, ...]
    missing: tuple[str, ...]  # experiments that were not measured

    def verdicts(self, *, ours: bool) -> dict[Decision, int]:
        """How many claims are supported, refuted, inconclusive: the paper's, or ours."""
        found = Counter(
            v.verdict for section in self.sections for v in section.table.verdicts if v.ours == ours
        )
        return {name: found[name] for name in MARKS}


def report(tables: Path, out: Path) -> Path:
    """Write the tables of a folder as report.html, report.md and report.csv.

    Args:
        tables: Folder that `goalward reproduce` wrote, such as runs/experiments/tables/cpu.
        out: Folder of the three files.

    Returns:
        The HTML page.

    Raises:
        ValueError: the folder has no tables, or one is damaged.
    """
    found = read_report(tables)
    pages = {
        "report.html": html_page(found),
        "report.md": f"# {TITLE}\n\n{legend()}\n{markdown_page(found, out)}",
        "report.csv": csv_rows(found),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        with atomic_write(out / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return out / "report.html"


def read_report(folder: Path) -> Report:
    """The tables of a folder that `goalward reproduce` wrote.

    Raises:
        ValueError: there are none, or one is damaged.
    """
    sections = [
        Section(table=read_table(path), folder=folder) for path in sorted(folder.glob(f"*{SUFFIX}"))
    ]
    if not sections:
        raise ValueError(
            f"{folder}: no tables there; give a folder of `goalward "
            "reproduce`, such as runs/experiments/tables/cpu"
        )
    order = [one.id for one in find_experiments()]
    sections.sort(key=lambda s: order.index(s.table.id) if s.table.id in order else len(order))
    known = {section.table.id for section in sections}
    return Report(tuple(sections), tuple(name for name in order if name not in known))


def legend() -> str:
    """How to read the tables."""
    paragraphs = [f"{textwrap.fill(paragraph, 100)}\n" for paragraph in INTRODUCTION]
    terms = [f"- *{name}*: {meaning}." for name, meaning in GLOSSARY.items()]
    return "\n".join([*paragraphs, *terms, ""])


def markdown_page(found: Report, folder: Path) -> str:
    """The sections, for a file in this folder; pictures stay where they are."""
    parts = ["".join(f"- [{_heading(s)}](#{_slug(_heading(s))})\n" for s in found.sections)]
    if found.missing:
        parts.append(f"Not measured: {', '.join(found.missing)}.\n")
    for section in found.sections:
        parts += _markdown(section, folder)
    return "\n".join(parts) + "\n"


def _heading(section: Section) -> str:
    return f"{section.table.title} (`{section.table.preset}`)"


def _slug(heading: str) -> str:
    """The anchor that Markdown viewers give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _markdown(section: Section, folder: Path) -> Iterator[str]:
    yield f"## {_heading(section)}\n\n{section.table.paper}.\n"
    yield "\n".join(f"    {command}" for command in section.commands) + "\n"
    for name, path in section.pictures:
        # Not Path.relative_to, which cannot go up.
        target = Path(os.path.relpath(path, folder)).as_posix()
        yield f"![{section.table.title}: {name}]({target})\n"
    for grid in (*section.grids, *section.claims):
        for part in grid.split():
            yield from markdown_table(part.header, part.rows)
    pairs = f"{section.table.shown_pairs}. " if section.table.has_pairs else ""
    yield f"{pairs}Measured: {section.sources}.\n"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a Markdown table, with an empty one after it."""
    yield f"| {' | '.join(header)} |"
    yield f"|{' --- |' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def html_page(found: Report) -> str:
    """The whole page: it needs no other file and no network."""
    from jinja2 import Environment

    text = (files("goalward.experiments") / TEMPLATE).read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["as_image"] = lambda path: _data(path.read_bytes(), path.suffix)
    environment.filters["svg"] = lambda svg: _data(svg.encode(), ".svg")
    return environment.from_string(text).render(
        title=TITLE, report=found, introduction=INTRODUCTION, glossary=GLOSSARY
    )


def _data(content: bytes, suffix: str) -> str:
    return f"data:{MIME_TYPES[suffix]};base64,{base64.b64encode(content).decode()}"


def csv_rows(found: Report) -> str:
    """One row for each number: where it is from, what it is, and its interval."""
    out = io.StringIO()
    writer = csv.DictWriter(out, CSV_COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    for table in (section.table for section in found.sections):
        about = {"experiment": table.id, "preset": table.preset}
        for entry in table.entries:
            place = {"task": entry.task, "controller": entry.variant, "point": entry.point}
            seeds = {"seeds": entry.summary.seeds}
            writer.writerows({**about, **place, **seeds, **number} for number in _numbers(entry))
        for metric in table.metrics:
            place = {"task": metric.task, "point": metric.row, "quantity": metric.column}
            values = {name: getattr(metric, name) for name in ("value", "low", "high", "paper")}
            writer.writerow({**about, **place, **values, "pairs": metric.count})
    return out.getvalue()


def _numbers(entry: Entry) -> Iterator[dict[str, object]]:
    """The success of an entry, then its other numbers."""
    summary, latency = entry.summary, entry.latency
    yield {
        "quantity": "success",
        "pairs": summary.rate.count,
        "seed_std": summary.seed_std,
        "value": summary.rate.mean,
        "low": summary.rate.low,
        "high": summary.rate.high,
        "paper": None if entry.paper is None else entry.paper / 100,
    }
    others = {
        "jerk": summary.jerk,
        "monotonic": summary.monotonic,
        "approach rate": summary.approach_rate,
        "steps": summary.steps,
    }
    if latency is not None:
        others |= {"ms_decision": latency.mean, "ms_plan": latency.plan}
    for name, value in others.items():
        yield {"quantity": name, "value": value}


def _picture_name(table: Table, picture: Picture) -> str:
    """`two-room` for plans-two-room.png, `two-room, pair 3` for two-room/pair-3-648713.png."""
    stem = re.sub("-[0-9a-f]{6}$", "", Path(picture.path).stem)  # without the id of its pairs
    if stem == f"{table.id}-{picture.task}":
        return picture.task
    return f"{picture.task}, {stem.replace('-', ' ')}"


def _shown_origin(origin: Provenance) -> str:
    known = {name: origin.versions.get(key) for name, key in LIBRARIES.items()}
    versions = (f"{name} {version}" for name, version in known.items() if version)
    revision = "unknown" if origin.git_revision is None else short_revision(origin.git_revision)
    return ", ".join([origin.machine, f"revision {revision}", *versions])

"""Draw docs/pictures/architecture.png: what every verb reads and writes."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

OUT = Path(__file__).parent / "pictures" / "architecture.png"
INK, GRAY, BLUE, ORANGE, GREEN = "#263238", "#607d8b", "#0072b2", "#d55e00", "#009e73"
WIDTH, HEIGHT, COLUMN, ROW = 2.2, 0.95, 3.75, 1.85
ARTIFACTS = {  # name: column, row, file, verbs that examine it, color
    "Task": (0, 0, "two_room.py", "list-tasks", BLUE),
    "Episodes": (1, 0, "episodes.h5", "inspect  baselines", BLUE),
    "World": (2, 0, "best.safetensors", "validate-world", BLUE),
    "Latents": (3, 0, "arrays + world model", "", BLUE),
    "Controller": (3, 1, "best.safetensors", "", GREEN),
    "Results": (2, 1, "one row per episode", "", ORANGE),
    "Tables": (1, 1, "one per experiment", "", ORANGE),
    "Report": (0, 1, "report.html", "", ORANGE),
    "ONNX": (3, 2, "controller.onnx", "", GREEN),
}
VERBS = """Task collect Episodes, Episodes train-world World, World embed Latents,
Latents train Controller, Controller evaluate Results, Results reproduce Tables,
Tables report Report, Controller export ONNX"""
NOTES = """goalward run does every step from Task to Results.
Both green files act: reset(goals, budget), then act(frames) → actions. ONNX needs no torch."""


def draw_box(axes: Axes, name: str) -> None:
    """A noun with its file."""
    column, row, file, checks, color = ARTIFACTS[name]
    x, y = column * COLUMN, -row * ROW
    box = FancyBboxPatch((x - WIDTH / 2, y - HEIGHT / 2), WIDTH, HEIGHT, fc=color + "18", ec=color)
    box.set(boxstyle="round,pad=0,rounding_size=0.13", linewidth=1.8)
    axes.add_patch(box)
    axes.text(x, y + 0.15, name, ha="center", va="center", size=14, weight="bold", color=INK)
    axes.text(x, y - 0.22, file, ha="center", va="center", size=9.5, color=GRAY)
    axes.text(x, y + 0.58, checks, ha="center", size=9.5, color=GRAY, family="monospace")


def draw_verb(axes: Axes, start: str, verb: str, end: str) -> None:
    """An arrow from one noun to the next."""
    (c0, r0), (c1, r1) = ARTIFACTS[start][:2], ARTIFACTS[end][:2]
    dx, dy = (c1 - c0) * (WIDTH / 2 + 0.06), (r0 - r1) * (HEIGHT / 2 + 0.06)
    tail, head = (c0 * COLUMN + dx, -r0 * ROW + dy), (c1 * COLUMN - dx, -r1 * ROW - dy)
    axes.annotate("", head, tail, arrowprops={"arrowstyle": "-|>", "lw": 1.7, "color": INK})
    x, y = (tail[0] + head[0]) / 2, (tail[1] + head[1]) / 2
    x, y, side = (x + 0.1, y - 0.05, "left") if dy else (x, y + 0.11, "center")
    axes.text(x, y, verb, ha=side, size=11, color=INK, family="monospace")


def draw_architecture() -> None:
    """Write the picture."""
    figure = Figure(figsize=(11.6, 4.7), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1), aspect="equal", xlim=(-1.35, 12.6), ylim=(-4.4, 1.1))
    axes.set_axis_off()
    for name in ARTIFACTS:
        draw_box(axes, name)
    for step in VERBS.split(","):
        draw_verb(axes, *step.split())
    axes.text(-1.1, -2 * ROW, NOTES, va="center", size=10.5, color=INK, linespacing=1.7)
    figure.savefig(OUT, dpi=120, metadata={"Software": None})

"""The part of `docs/RESULTS.md` about the cost of a decision, from `results/cost/`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from markdown_table import table
from provenance_lines import provenance

from goalward.core.config import from_json, read_json
from goalward.evaluation.latency import Latency, SpeedUp
from goalward.evaluation.specs import REFERENCE
from goalward.experiments.experiment import GC_IDM, TASKS
from goalward.experiments.paper import paper_tables

ROOT = Path(__file__).resolve().parents[1]

BATCHES = """\
## What a decision costs, alone and in batches

    python -m benchmarks.cost

Milliseconds a decision of one environment, from frames to action, and CEM's time over the method's;
a plan is spread over the 25 actions that it commits to, as in the paper's *ms / plan*, which is the
mean over all calls, of a batch of 50 or 200 environments on a GPU. Alone, GC-IDM in torch is bound
by the overhead of its 60 small operations, which a batch shares. Bundled weights, all methods of a
task in one run, nothing else running.
"""


def decision_costs() -> list[dict[str, Any]]:
    """Times alone and in batches, in the order of the tasks."""
    paths = (ROOT / "results" / "cost" / f"{task}.json" for task in TASKS)
    return [read_json(path) for path in paths if path.exists()]


def speed_up(cost: dict[str, Any], environments: str, method: str) -> float:
    """How many times CEM's decision takes longer, in a batch of so many environments."""
    times = cost["latency"][environments]
    ours, theirs = (from_json(Latency, times[name]) for name in (method, REFERENCE))
    return SpeedUp.of(ours, theirs).decision


def cost_section(names: Mapping[str, str]) -> Iterator[str]:
    """GC-IDM's and CEM's times of a decision, by the number of environments."""
    costs = decision_costs()
    if not costs:
        return
    yield BATCHES
    sizes = list(costs[0]["latency"])
    rows = []
    for cost in costs:
        for method in sorted(cost["latency"][sizes[0]], key=_place(names)):
            cells = []
            for size in sizes:
                time = from_json(Latency, cost["latency"][size][method])
                cells += [f"{time.mean:,.3f}", f"{speed_up(cost, size, method):,.0f}x"]
            rows.append(
                [cost["task"], names.get(method, method), *cells, _papers_speed_up(cost, method)]
            )
    header = ["task", "method"]
    for size in sizes:
        header += [f"ms, {size} at once", "faster than CEM"]
    yield from table([*header, "the paper's, 50 at once"], rows)
    yield provenance(costs) + "\n"


def _place(names: Mapping[str, str]) -> Callable[[str], int]:
    """Where a method stands: as the names have it, others last."""
    order = [*names]
    return lambda method: order.index(method) if method in order else len(order)


def _papers_speed_up(cost: dict[str, Any], method: str) -> str:
    if method != GC_IDM:
        return ""
    return f"{paper_tables()['table1_main'][cost['task']]['50']['speedup_plan']:g}x"

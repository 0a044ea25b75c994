"""What the speed comparisons share: timing in turns, and tables of rates and ratios."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import numpy as np
import torch

from goalward.core.arrays import Array
from goalward.core.console import show_table

Key = TypeVar("Key")
Work = Callable[[], object]
Rates = Mapping[str, Array]  # per second in each turn, by side


def calls_per_second(work: Work, seconds: float = 0.0, *, uncounted: int = 0) -> float:
    """Call the work for so long, at least once, after some calls that are not counted."""
    for _ in range(uncounted):
        work()
    begin, calls = time.perf_counter(), 0
    while (now := time.perf_counter()) - begin < seconds or not calls:
        work()
        calls += 1
    return calls / (now - begin)


def rates_in_turns(
    works: Mapping[Key, Work], repeats: int, seconds: float = 0.0, *, uncounted: int = 0
) -> dict[Key, Array]:
    """Calls per second of every work in every turn.

    The works take turns, so that other load on the machine slows all of them.

    Args:
        works: What to time. Each is called once before the first turn, to warm up.
        repeats: Turns of each work.
        seconds: Length of a turn; at least one call.
        uncounted: Calls at the start of each turn that are not counted.
    """
    for work in works.values():
        work()
    turns = [
        {key: calls_per_second(work, seconds, uncounted=uncounted) for key, work in works.items()}
        for _ in range(repeats)
    ]
    return {key: np.array([turn[key] for turn in turns]) for key in works}


def show_rates(title: str, others: Rates, ours: Rates, *, wanted: float | None = None) -> bool:
    """Print median rates, and median ratios to the fastest of the others.

    Returns:
        Whether each of ours reaches the ratio that is wanted.
    """
    reference = max(others.values(), key=np.median)
    rows, enough = [], True
    for side, rates in {**others, **ours}.items():
        ratio, verdict = float(np.median(rates / reference)), ""
        if wanted is not None and side in ours:
            reached = ratio >= wanted
            verdict = f"{wanted:g}x, {'reached' if reached else 'below'}"
            enough = enough and reached
        rows.append((side, _short(float(np.median(rates))), f"{ratio:.2f}x", verdict))
    columns = 3 if wanted is None else 4
    header = ("side", "per second", "ratio", "wanted")[:columns]
    show_table(title, header, [row[:columns] for row in rows])
    return enough


def _short(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def matrix_product(rows: int, inner: int, columns: int) -> tuple[Work, float]:
    """A product of matrices of these sizes, and its floating-point operations."""
    left, right, out = (
        torch.rand(*size) for size in ((rows, inner), (inner, columns), (rows, columns))
    )
    return partial(torch.mm, left, right, out=out), 2.0 * rows * inner * columns


def show_arithmetic(
    unit: str, speed: float, works: Mapping[str, tuple[float, float]]
) -> dict[str, float]:
    """Print how much of the measured times the matrix products alone would take.

    Args:
        unit: What is timed, such as `training step`.
        speed: Floating-point operations per second of this machine's matrix products.
        works: Floating-point operations and measured seconds, by name.

    Returns:
        The measured time over that of the products, by name.
    """
    ratios, rows = {}, []
    for name, (operations, seconds) in works.items():
        products = operations / speed
        ratios[name] = seconds / products
        times = (f"{1e3 * part:,.1f}" for part in (products, seconds))
        rows.append((name, f"{operations / 1e9:.2f}", *times, f"{ratios[name]:.2f}x"))
    title = f"Arithmetic of a {unit}: matrix products at {speed / 1e9:.0f} GFLOP/s (measured)"
    show_table(title, ("work", "GFLOP", "products alone, ms", "measured, ms", "ratio"), rows)
    return ratios

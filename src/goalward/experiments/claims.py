"""Claims in few words: a place is a method and a point, or a point of GC-IDM told the budget."""

from __future__ import annotations

from goalward.experiments.experiment import TASKS, Claim, Label, MethodName
from goalward.experiments.specs import GC_IDM

PUSH_T = ("push-t",)
EASIER = ("two-room", "reacher", "cube")  # where the paper finds most settings good enough
AS_GOOD = 3.0  # points that may be lacking

Place = Label | tuple[MethodName, Label]


def more(
    text: str,
    better: Place,
    worse: Place,
    *,
    tasks: tuple[str, ...] = TASKS,
    ours: bool = False,
    apart: bool = False,
) -> Claim:
    """That one succeeds more often than the other."""
    return as_good(text, better, worse, margin=0.0, tasks=tasks, ours=ours, apart=apart)


def as_good(
    text: str,
    better: Place,
    worse: Place,
    *,
    margin: float = AS_GOOD,
    tasks: tuple[str, ...] = TASKS,
    ours: bool = False,
    apart: bool = False,
) -> Claim:
    """That one succeeds as often as the other, but for some points."""
    return Claim(
        text=text,
        better=_place(better),
        worse=_place(worse),
        margin=margin,
        tasks=tasks,
        ours=ours,
        apart=apart,
    )


def _place(place: Place) -> tuple[MethodName, Label]:
    return (GC_IDM, place) if isinstance(place, str) else place

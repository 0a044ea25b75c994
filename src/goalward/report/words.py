"""What a reader must know of a report, on the page and in Markdown alike."""

from __future__ import annotations

TITLE = "goalward: the paper's tables, measured"
INTRODUCTION = (
    "Success in percent, ± the standard deviation over three seeds (without it: one seed), with "
    "the 95% interval over pairs; in brackets the paper's figure, and whether our interval lies "
    "around it (=), above it (↑) or below it (↓). Pairs are of held-out test episodes (but where a "
    "column says all), the goal 25 recorded steps on and the budget 50 steps unless a table varies "
    "them, judged by the environment itself, as in the paper, whose pairs are of all episodes.",
    "The paper's models are larger, and its demonstrations are others. And the CPU presets train "
    "their world models with two losses that the paper does not have, one of them an inverse "
    "dynamics loss, which teaches latents to show actions: the table of geometries tells what "
    "that one does. The paper's figures are for orientation.",
    "Claims (the paper's, but for those marked as ours) are judged by the 95% interval of a "
    "difference: on the same pairs (Agresti & Min) or, where the pairs themselves are varied, on "
    "different ones (Agresti & Caffo), wider where pairs of an episode are alike. A claim that few "
    "pairs cannot tell stays open. Intervals do not know how much another training would differ; "
    "tables of different revisions are of separate trainings, in which the same cell may differ by "
    "a few points.",
)
GLOSSARY = {
    "GC-IDM (budget)": "as in the paper: told the steps that are left of the budget",
    "GC-IDM (time to go)": "ours: told its own estimate of the steps to the goal",
    "hybrid": "ours: a short search around GC-IDM's proposal",
    "jerk": "mean size of the second difference of the actions",
    "monotone": (
        "share of episodes in which the latent distance to the goal falls at every step, as the "
        "paper defines it; its figures are so high that they may be of the next kind"
    ),
    "closing": "mean share of steps at which that distance falls",
    "ms a decision": "one environment, a plan's time spread over the actions that it commits to",
    "isotropy": "1 if the latents vary as much in every direction, 1 / D if in one alone",
    "effective rank": "in how many directions they vary, by the entropy of the variances",
    "κ": (
        "how unevenly a step's actions show in the latents (condition number, median over states); "
        "it compares world models on one task"
    ),
    "inverse R²": "how well the pairwise model reads actions from true pairs of latents",
}

"""Experiments that train something else: controllers, world models, demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from goalward.experiments.experiment import (
    CEM,
    EASIER,
    GC_IDM,
    LINE,
    LINES,
    PUSH_T,
    RANDOM,
    TIME_TO_GO,
    Experiment,
    Point,
    as_good,
    more,
)

UNTRAINED = ("schedule.steps=50", "schedule.lr=1e-12")  # BatchNorms settle, weights do not move
UNGUARDED = ("objective.regulariser=none", "min_latent_std=0.0")  # latents may collapse
ALONE = (  # as the paper's LeWM
    "objective.inverse_dynamics_weight=0.0",
    "objective.reconstruction_weight=0.0",
)
PRESET = "the preset"  # `cpu`: both auxiliary losses; `paper`: SIGReg alone
WORLDS = {  # other ways to train a world model
    PRESET: (),
    "SIGReg and inverse": (
        "objective.inverse_dynamics_weight=1.0",
        "objective.reconstruction_weight=0.0",
    ),
    "SIGReg alone": ALONE,
    "VICReg alone": (*ALONE, "objective.regulariser=vicreg"),
    "no regulariser": UNGUARDED,
    "prediction alone": (*ALONE, *UNGUARDED),
    "untrained": UNTRAINED,
}
# GC-IDM learns the same weights with and without the time to go, and a third quicker without.
WITHOUT_TIME_TO_GO = ("horizon.mode=budget", "time_to_go=null")
NOISY = ("noise.sigma=1.5",)  # the best pairwise model's


def trained(name: str, values: Sequence[Any]) -> tuple[Point, ...]:
    """A point for each value of the controller's configuration."""
    return tuple(budget_point(f"{value:g}", f"{name}={value}") for value in values)


def budget_point(label: str, *changes: str) -> Point:
    """A point whose controller has the budget horizon only, and does not learn the time to go."""
    return Point(label, {"controller_changes": (*changes, *WITHOUT_TIME_TO_GO)})


ABLATIONS: tuple[Experiment, ...] = (
    Experiment(
        id="h-max",
        title="Farthest goal of the training",
        paper="Table 3: short horizons are worse, 50 is enough",
        axis="H_max",
        points=trained("network.max_horizon", (5, 10, 25, 50, 100)),
        chart="line",
        claims=(
            more("H_max 50 succeeds more often than 5", "50", "5"),
            as_good("H_max 50 succeeds as often as 100", "50", "100"),
        ),
    ),
    Experiment(
        id="data",
        title="Share of the training episodes",
        paper="Table D: all but Push-T are near their best well below all data (shares of the "
        "public datasets, which are larger than a CPU preset's 250 to 4,000 episodes)",
        axis="share",
        points=trained("data_fraction", (0.01, 0.05, 0.1, 0.25, 0.5, 1.0)),
        chart="line",
        claims=(
            as_good(
                "a twentieth of the episodes is as good as all",
                "0.05",
                "1",
                tasks=("two-room", "reacher"),
            ),
            as_good("half of the episodes are as good as all", "0.5", "1", tasks=EASIER),
            more("all episodes are better than a tenth", "1", "0.1", tasks=("cube", "push-t")),
        ),
    ),
    Experiment(
        id="noise",
        title="Noise on GC-IDM's latents in training",
        paper="Table E: no noise is best, or as good as any",
        axis="sigma",
        points=trained("noise.sigma", (0.0, 0.01, 0.05, 0.1, 0.2, 0.5)),
        chart="line",
        claims=(
            more("no noise is better than 0.5", "0", "0.5", tasks=PUSH_T),
            as_good("no noise is as good as 0.1", "0", "0.1"),
        ),
    ),
    Experiment(
        id="noise-schedule",
        title="Noise that varies between batches",
        paper="Table I: it recovers nothing of what noise costs",
        axis="sigma",
        points=(
            Point("none"),
            *(
                budget_point(
                    f"{schedule} {sigma:g}", f"noise.sigma={sigma}", f"noise.schedule={schedule}"
                )
                for schedule in ("fixed", "uniform")
                for sigma in (0.05, 0.1, 0.2)
            ),
        ),
        claims=(
            as_good(
                "fixed noise of 0.2 is as good as noise of up to 0.2", "fixed 0.2", "uniform 0.2"
            ),
            as_good("no noise is as good as noise of up to 0.2", "none", "uniform 0.2"),
        ),
    ),
    Experiment(
        id="horizon-embedding",
        title="Without far goals",
        paper="Table F: training on the next frame alone fails, with a wider and deeper network "
        "as well",
        axis="variant",
        points=(
            budget_point("hmax1", "network.max_horizon=1"),
            budget_point("hmax5", "network.max_horizon=5"),
            budget_point(
                "hmax1_wide1024x4",
                "network.max_horizon=1",
                "network.hidden_dim=1024",
                "network.num_layers=4",
            ),
            Point("hmax50"),
        ),
        claims=tuple(
            more(
                f"training on goals up to 50 steps away is better than on {less}",
                "hmax50",
                (GC_IDM, variant),
            )
            for variant, less in (
                ("hmax1", "the next frame alone"),
                ("hmax1_wide1024x4", "the next frame alone, with a wider and deeper network"),
            )
        ),
    ),
    Experiment(
        id="width",
        title="Width of the network",
        paper="Table H: width hardly matters, not even on Push-T",
        axis="hidden units",
        points=trained("network.hidden_dim", (128, 256, 512, 1024)),
        chart="line",
        claims=(
            as_good("128 units are as good as 512", "128", "512"),
            as_good("512 units are as good as 1024", "512", "1024"),
        ),
    ),
    Experiment(
        id="depth",
        title="Depth of the network",
        paper="Table H: Push-T gains with depth, from 70.5% with one layer to 87.5% with five",
        axis="layers",
        points=trained("network.num_layers", (1, 2, 3, 4, 5)),
        chart="line",
        claims=(
            more("three layers are better than one", "3", "1", tasks=PUSH_T),
            as_good("three layers are as good as five", "3", "5", tasks=EASIER),
        ),
    ),
    Experiment(
        id="pairwise-planning",
        title="Straight lines in latent space, decoded by the pairwise model",
        paper="Table C: refining and choosing help, and stay far below CEM",
        axis="",
        points=(Point("success", {"controller_changes": NOISY}),),
        variants=(*LINES, CEM),
        tasks=("two-room",),
        claims=(
            more("refining and choosing help", (LINES[-1], "success"), (LINE, "success")),
            more("CEM is better than the best line", (CEM, "success"), (LINES[-1], "success")),
        ),
    ),
    Experiment(
        id="pairwise-noise",
        title="Noise in the pairwise model's training",
        paper="Table B: 1.5 is best",
        axis="sigma",
        points=trained("noise.sigma", (0.0, 0.1, 0.2, 0.5, 0.8, 1.0, 1.5, 2.0)),
        variants=(LINE,),
        tasks=("two-room",),
        chart="line",
        claims=(
            more(
                "the pairwise model plans better with noise of 1.5 than without",
                (LINE, "1.5"),
                (LINE, "0"),
            ),
        ),
    ),
    Experiment(
        id="demonstrations",
        title="Smooth demonstrations, and noisy ones",
        paper="Not in the paper: search needs a model of actions that nobody demonstrated",
        axis="demonstrations",
        points=(
            Point("smooth", {"demonstrator": "pusher"}),
            Point("noisy", {"demonstrator": "noisy-pusher"}),
        ),
        variants=(GC_IDM, TIME_TO_GO, CEM, RANDOM),
        tasks=PUSH_T,
        claims=(
            more(
                "CEM does better on noisy demonstrations",
                (CEM, "noisy"),
                (CEM, "smooth"),
                ours=True,
            ),
            as_good(
                "noisy demonstrations are as good for GC-IDM as smooth ones",
                "noisy",
                "smooth",
                ours=True,
            ),
            as_good(
                "on noisy demonstrations GC-IDM is as good as CEM",
                "noisy",
                (CEM, "noisy"),
                ours=True,
            ),
        ),
    ),
    Experiment(
        id="geometry",
        title="Geometry of the latents that the inverse model needs",
        paper="Left open by the paper",
        axis="world model",
        points=tuple(Point(name, {"world_changes": changes}) for name, changes in WORLDS.items()),
        variants=(GC_IDM, TIME_TO_GO),
        claims=tuple(
            more(
                f"GC-IDM succeeds more often on latents of {one} than of {other}",
                one,
                other,
                ours=True,
            )
            for one, other in (
                (PRESET, "SIGReg alone"),
                ("SIGReg and inverse", "SIGReg alone"),
                ("SIGReg alone", "VICReg alone"),
                ("SIGReg alone", "prediction alone"),
                ("SIGReg alone", "untrained"),
            )
        ),
    ),
)

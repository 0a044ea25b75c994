"""The catalog: the paper's tables and figures, and some of our own, a row each.

To add an experiment, add a row: to `EXPERIMENTS` if its outcome is success, else to `STUDIES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from goalward.experiments.cell import SEEDS
from goalward.experiments.claims import AS_GOOD, EASIER, PUSH_T, as_good, more
from goalward.experiments.experiment import ALL_PAIRS, Claim, Experiment, Point
from goalward.experiments.measures import latent_geometry, oracle_noise, pairwise_cells
from goalward.experiments.names import method_name
from goalward.experiments.paper_figures import (
    NO_NOISE,
    column,
    held_out_figure,
    pairwise_figure,
    planning_figure,
    schedule_figure,
    solver_figure,
)
from goalward.experiments.pictures import (
    compared_cells,
    executions,
    latents_over_training,
    plans_in_latent_space,
)
from goalward.experiments.specs import (
    CEM,
    FRONTIER,
    GC_IDM,
    PATHS,
    WITH_TIME_TO_GO,
    blindly,
)
from goalward.experiments.study import Study

PAIRS = "pairs"  # the axis of tables whose points are the first so many, and all
UNTRAINED = ("schedule.steps=50", "schedule.lr=1e-12")  # BatchNorms settle, weights do not move
UNGUARDED = ("objective.regulariser=none", "min_latent_std=0.0")  # it may collapse: that is asked
ALONE = ("objective.inverse_weight=0.0", "objective.thumbnail_weight=0.0")  # as the paper's LeWM
PRESET = "the preset"  # on CPUs with both auxiliary losses, in `paper` SIGReg alone
WORLDS = {  # the question which geometry is needed: how else a world model could be trained
    PRESET: (),
    "SIGReg alone": ALONE,
    "VICReg alone": (*ALONE, "objective.regulariser=vicreg"),
    "no regulariser": UNGUARDED,
    "prediction alone": (*ALONE, *UNGUARDED),
    "untrained": UNTRAINED,
}
NOISY = ("noise.sigma=1.5",)  # the best pairwise model's


def swept(name: str, values: Sequence[Any], **fixed: Any) -> tuple[Point, ...]:
    """A point for each value of a cell's own field."""
    return tuple(Point(label=f"{value:g}", changes={name: value, **fixed}) for value in values)


def trained(name: str, values: Sequence[Any]) -> tuple[Point, ...]:
    """A point for each value of the controller's configuration."""
    return tuple(
        Point(label=f"{value:g}", changes={"controller": (f"{name}={value}",)}) for value in values
    )


SIZES = (Point(label="first 50", first=50), Point(label=ALL_PAIRS))
EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        id="main",
        title="GC-IDM and CEM",
        paper="Table 1: GC-IDM succeeds as often as CEM or more often in seven of eight cells",
        axis=PAIRS,
        points=SIZES,
        methods=(GC_IDM, WITH_TIME_TO_GO, "hybrid", CEM, "random", "zero"),
        seeds=SEEDS,
        slow=(CEM,),
        figure=solver_figure,
        timed=True,
        chart="bars",
        claims=(
            as_good("GC-IDM succeeds as often as CEM or more often", ALL_PAIRS, (CEM, ALL_PAIRS)),
        ),
    ),
    Experiment(
        id="solvers",
        title="The family of solvers",
        paper="Figure 4 and Table G: GC-IDM is above every solver on every task",
        axis=PAIRS,
        points=SIZES,
        methods=(GC_IDM, CEM, "icem", "mppi", "gradient"),
        figure=solver_figure,
        timed=True,
        chart="bars",
        claims=tuple(
            as_good(
                f"GC-IDM succeeds as often as {method_name(solver)} or more often",
                ALL_PAIRS,
                (solver, ALL_PAIRS),
            )
            for solver in ("icem", "mppi", "gradient")
        ),
    ),
    Experiment(
        id="goal-distance",
        title="Distance to the goal",
        paper="Table 2: flat but for Push-T, which falls with the distance",
        axis="steps from start to goal",
        points=swept("offset", (5, 10, 15, 25, 35, 50)),
        methods=(GC_IDM, WITH_TIME_TO_GO),
        figure=column("table_goal_offset", "offsets"),
        claims=(
            more(
                "GC-IDM reaches goals 5 steps off more often than goals 50 steps off",
                "5",
                "50",
                tasks=PUSH_T,
                apart=True,
            ),
            as_good(
                "GC-IDM reaches goals 35 steps off as often as goals 5 steps off",
                "35",
                "5",
                margin=5.0,
                tasks=EASIER,
                apart=True,
            ),
            more(
                "told the time to go, GC-IDM reaches goals 5 steps off more often",
                (WITH_TIME_TO_GO, "5"),
                "5",
                tasks=("reacher", "cube", "push-t"),
                ours=True,
            ),
        ),
    ),
    Experiment(
        id="h-max",
        title="The farthest goal of the training",
        paper="Table 3: short horizons are worse, 50 is enough",
        axis="H_max",
        points=trained("network.max_horizon", (5, 10, 25, 50, 100)),
        figure=column("table_hmax", "hmax"),
        claims=(
            more("H_max 50 succeeds more often than 5", "50", "5"),
            as_good("H_max 50 succeeds as often as 100", "50", "100"),
        ),
    ),
    Experiment(
        id="trajectories",
        title="How smoothly: action jerk, and latent distance that always falls",
        paper="Table 4: GC-IDM's actions are 15 to 36 times smoother; it nears the goal more "
        "steadily on three tasks",
        axis=PAIRS,
        points=SIZES[1:],
        methods=(GC_IDM, WITH_TIME_TO_GO, CEM),
        chart="none",
        claims=(
            Claim(
                text="GC-IDM's actions are smoother than CEM's",
                better=(GC_IDM, ALL_PAIRS),
                worse=(CEM, ALL_PAIRS),
                about="jerk",
            ),
            Claim(
                text="GC-IDM's latent distance falls at every step more often than CEM's",
                better=(GC_IDM, ALL_PAIRS),
                worse=(CEM, ALL_PAIRS),
                tasks=("two-room", "reacher", "push-t"),
                about="monotone",
            ),
        ),
    ),
    Experiment(
        id="frontier",
        title="CEM with less search, up to its default",
        paper="Figure B: no setting is both quicker and better than GC-IDM (the paper tries up to "
        "30,000 rollouts; here up to CEM's default of 9,000, a tenth of the samples being elites)",
        axis=PAIRS,
        points=(Point(label=ALL_PAIRS),),
        methods=(GC_IDM, WITH_TIME_TO_GO, *FRONTIER, CEM),
        timed=True,
        chart="frontier",
        claims=(
            Claim(
                text="no setting of CEM is as quick as GC-IDM and succeeds more often",
                better=(GC_IDM, ALL_PAIRS),
                worse=(CEM, ALL_PAIRS),
                margin=AS_GOOD,
                as_quick=True,
            ),
        ),
    ),
    Experiment(
        id="commit",
        title="Actions until the next look: GC-IDM without feedback",
        paper="Appendix A bounds how errors add up without feedback",
        axis="actions",
        points=(Point(label="success"),),
        methods=(
            GC_IDM,
            *map(blindly, (1, 2, 5, 10, 25)),
        ),
        chart="bars",
        claims=(
            more(
                "GC-IDM that looks at every step succeeds more often than at every 25th",
                (blindly(1), "success"),
                (blindly(25), "success"),
                ours=True,
            ),
        ),
    ),
    Experiment(
        id="data",
        title="Share of the training episodes",
        paper="Table D: all but Push-T are near their best well below all data (of 10,000 "
        "episodes; a CPU preset has 250 to 4,000)",
        axis="share",
        points=trained("data_fraction", (0.01, 0.05, 0.1, 0.25, 0.5, 1.0)),
        figure=column("table_data_efficiency", "fraction"),
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
        paper="Table E: none is best",
        axis="sigma",
        points=trained("noise.sigma", (0.0, 0.01, 0.05, 0.1, 0.2, 0.5)),
        figure=column("table_gcidm_noise", "sigma"),
        claims=(
            more("no noise is better than 0.5", "0", "0.5", tasks=PUSH_T),
            as_good("no noise is as good as 0.1", "0", "0.1"),
        ),
    ),
    Experiment(
        id="noise-schedule",
        title="Noise that varies from batch to batch",
        paper="Table I: it gives nothing back",
        axis="sigma",
        points=(
            Point(label=NO_NOISE),
            *(
                Point(
                    label=f"{schedule} {sigma:g}",
                    changes={"controller": (f"noise.sigma={sigma}", f"noise.schedule={schedule}")},
                )
                for schedule in ("fixed", "uniform")
                for sigma in (0.05, 0.1, 0.2)
            ),
        ),
        figure=schedule_figure,
        chart="bars",
        claims=(
            as_good(
                "fixed noise of 0.2 is as good as noise of up to 0.2", "fixed 0.2", "uniform 0.2"
            ),
            as_good("no noise is as good as noise of up to 0.2", NO_NOISE, "uniform 0.2"),
        ),
    ),
    Experiment(
        id="horizon-embedding",
        title="Without goals that are far",
        paper="Table F: training on the next frame alone fails, however wide the network",
        axis="variant",
        points=(
            Point(label="hmax1", changes={"controller": ("network.max_horizon=1",)}),
            Point(label="hmax5", changes={"controller": ("network.max_horizon=5",)}),
            Point(
                label="hmax1_wide1024x4",
                changes={
                    "controller": (
                        "network.max_horizon=1",
                        "network.hidden_dim=1024",
                        "network.num_layers=4",
                    )
                },
            ),
            Point(label="hmax50"),
        ),
        figure=column("table_horizon_embedding", "variants"),
        chart="bars",
        claims=tuple(
            more(f"goals up to 50 steps off teach more than {less}", "hmax50", (GC_IDM, variant))
            for variant, less in (
                ("hmax1", "the next frame alone"),
                ("hmax1_wide1024x4", "the next frame alone, with a wider and deeper network"),
            )
        ),
    ),
    Experiment(
        id="width",
        title="Width of the network",
        paper="Table H: width hardly matters, on Push-T neither",
        axis="hidden units",
        points=trained("network.hidden_dim", (128, 256, 512, 1024)),
        figure=column("table_arch_width", "hidden"),
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
        figure=column("table_arch_depth", "layers"),
        claims=(
            more("three layers are better than one", "3", "1", tasks=PUSH_T),
            as_good("three layers are as good as five", "3", "5", tasks=EASIER),
        ),
    ),
    Experiment(
        id="budget",
        title="Budget of an episode",
        paper="Table J: Push-T is best at 25 and falls after it",
        axis="steps",
        points=swept("budget", (5, 10, 15, 25, 50, 75, 100)),
        methods=(GC_IDM, WITH_TIME_TO_GO),
        figure=column("table_budget", "budget"),
        claims=(
            more("a budget of 25 is better than one of 50", "25", "50", tasks=PUSH_T),
            as_good("a budget of 25 is as good as one of 50", "25", "50", tasks=EASIER),
            as_good(
                "told the time to go, a budget of 100 is as good as one of 50",
                (WITH_TIME_TO_GO, "100"),
                (WITH_TIME_TO_GO, "50"),
                ours=True,
            ),
        ),
    ),
    Experiment(
        id="held-out",
        title="Held-out episodes and all episodes",
        paper="Table K: nothing is memorised",
        axis="episodes",
        points=(
            Point(label="held-out"),
            Point(label="all", changes={"episodes": "all"}),
        ),
        methods=(GC_IDM, CEM),
        figure=held_out_figure,
        chart="bars",
        claims=(
            as_good(
                "GC-IDM succeeds on held-out episodes as often as on all",
                "held-out",
                "all",
                margin=5.0,
                apart=True,
            ),
        ),
    ),
    Experiment(
        id="pairwise-planning",
        title="Straight lines in latent space, decoded by the pairwise model",
        paper="Table C: refining and choosing help, and stay far below CEM",
        axis="",
        points=(Point(label="success", changes={"controller": NOISY}),),
        methods=(*PATHS, CEM),
        tasks=("two-room",),
        figure=planning_figure,
        chart="bars",
        claims=(
            more("refining and choosing help", (PATHS[-1], "success"), (PATHS[0], "success")),
            more("CEM is better than the best line", (CEM, "success"), (PATHS[-1], "success")),
        ),
    ),
    Experiment(
        id="pairwise-noise",
        title="Noise in the pairwise model's training",
        paper="Table B: 1.5 is best",
        axis="sigma",
        points=trained("noise.sigma", (0.0, 0.1, 0.2, 0.5, 0.8, 1.0, 1.5, 2.0)),
        methods=PATHS[:1],
        tasks=("two-room",),
        figure=pairwise_figure,
        claims=(
            more(
                "the pairwise model plans better with noise of 1.5 than without",
                (PATHS[0], "1.5"),
                (PATHS[0], "0"),
            ),
        ),
    ),
    Experiment(
        id="demonstrations",
        title="Smooth demonstrations, and noisy ones",
        paper="Not in the paper: what search must know of actions that nobody demonstrated",
        axis="demonstrations",
        points=(
            Point(label="smooth"),
            Point(label="noisy", changes={"demonstrator": "noisy-pusher"}),
        ),
        methods=(GC_IDM, WITH_TIME_TO_GO, CEM, "random"),
        tasks=PUSH_T,
        chart="bars",
        claims=(
            more(
                "CEM does better on noisy demonstrations",
                (CEM, "noisy"),
                (CEM, "smooth"),
                ours=True,
                apart=True,
            ),
            as_good(
                "noisy demonstrations are as good for GC-IDM as smooth ones",
                "noisy",
                "smooth",
                ours=True,
                apart=True,
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
        title="Which geometry does the inverse model need?",
        paper="Left open by the paper",
        axis="world model",
        points=tuple(
            Point(label=name, changes={"world": changes}) for name, changes in WORLDS.items()
        ),
        methods=(GC_IDM, WITH_TIME_TO_GO),
        chart="bars",
        claims=tuple(
            more(f"GC-IDM does better on latents of {one} than of {other}", one, other, ours=True)
            for one, other in (
                (PRESET, "SIGReg alone"),
                ("SIGReg alone", "VICReg alone"),
                ("SIGReg alone", "prediction alone"),
                ("SIGReg alone", "untrained"),
            )
        ),
    ),
)


STUDIES: tuple[Study, ...] = (
    Study(
        id="oracle-noise",
        title="The pairwise model on true pairs of latents, under noise",
        paper="Table A: near perfect, down to noise of half the latents' own spread",
        axis="sigma",
        tasks=("two-room",),
        measure=oracle_noise,
        uses=pairwise_cells(),
    ),
    Study(
        id="latent-geometry",
        title="The latents' geometry, and how plainly actions show in it",
        paper="Eq. (17) of Appendix B; which geometry is needed is left open by the paper",
        axis="world model",
        measure=latent_geometry(WORLDS),
        uses=pairwise_cells(WORLDS.values()),
    ),
    Study(
        id="latents",
        title="One episode's latents while the world model learns",
        paper="Figure 1: a cloud becomes a path",
        measure=latents_over_training,
        uses=compared_cells,
    ),
    Study(
        id="plans",
        title="CEM's plans and both methods' ways in latent space",
        paper="Figure A: GC-IDM goes straight where CEM searches",
        measure=plans_in_latent_space,
        uses=compared_cells,
    ),
    Study(
        id="executions",
        title="Demonstration, GC-IDM and CEM from the same starts to the same goals",
        paper="Figures 3 and C to F, there with goals 100 or 200 steps off, here 25",
        measure=executions,
        uses=compared_cells,
    ),
)


def find_experiments(ids: Sequence[str]) -> list[Experiment | Study]:
    """The experiments and studies of these names, or all of them.

    Raises:
        ValueError: there is no such experiment.
    """
    every: list[Experiment | Study] = [*EXPERIMENTS, *STUDIES]
    known = {one.id: one for one in every}
    for name in ids:
        if name not in known:
            raise ValueError(f"experiment {name!r} is not one of {', '.join(known)}")
    return [known[name] for name in ids or known]

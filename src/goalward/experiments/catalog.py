"""The catalog: the paper's tables and figures, and some of our own, a row each.

To add an experiment, add a row: to `EXPERIMENTS` if its outcome is success, else to `STUDIES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from goalward.experiments.cell import SEEDS
from goalward.experiments.experiment import (
    GC_IDM,
    WITH_TIME_TO_GO,
    Claim,
    Experiment,
    PaperFigure,
    Point,
)
from goalward.experiments.measures import latent_geometry, oracle_noise, pairwise_cells
from goalward.experiments.names import method_name
from goalward.experiments.paper import paper_tables
from goalward.experiments.pictures import (
    compared_cells,
    executions,
    latents_over_training,
    plans_in_latent_space,
)
from goalward.experiments.study import Study

CEM = "cem"
PAIRS = "pairs"  # the axis of tables whose points are the first so many, and all
UNTRAINED = ("schedule.steps=50", "schedule.lr=1e-12")  # BatchNorms settle, weights do not move
UNGUARDED = ("objective.regulariser=none", "min_latent_std=0.0")  # it may collapse: that is asked
ALONE = ("objective.inverse_weight=0.0", "objective.thumbnail_weight=0.0")  # as the paper's LeWM
WORLDS = {  # the question which geometry is needed: how else a world model could be trained
    "preset": (),
    "SIGReg alone": ALONE,
    "VICReg alone": (*ALONE, "objective.regulariser=vicreg"),
    "no regulariser": UNGUARDED,
    "prediction alone": (*ALONE, *UNGUARDED),
    "untrained": UNTRAINED,
}
PATHS = (
    "interpolation:refinements=0",
    "interpolation:refinements=1",
    "interpolation:refinements=3",
    "interpolation:refinements=3,candidates=10",
)
FRONTIER = tuple(  # 4 x 4 settings without the four largest; a tenth are elites
    f"cem:solver.num_samples={samples},solver.num_iters={iters},solver.num_elites={elites}"
    for samples, elites in ((30, 3), (100, 10), (300, 30), (1000, 100))
    for iters in (2, 5, 10, 30)
    if samples * iters <= 3_000
)
NOISY = ("noise.sigma=1.5",)  # the best pairwise model's


def swept(name: str, values: Sequence[Any], **fixed: Any) -> tuple[Point, ...]:
    """A point for each value of a cell's own field."""
    return tuple(Point(label=f"{value:g}", changes={name: value, **fixed}) for value in values)


def trained(name: str, values: Sequence[Any]) -> tuple[Point, ...]:
    """A point for each value of the controller's configuration."""
    return tuple(
        Point(label=f"{value:g}", changes={"controller": (f"{name}={value}",)}) for value in values
    )


def column(table: str, axis: str, method: str = GC_IDM) -> PaperFigure:
    """The figures of a table that has a list for each task."""
    found = paper_tables()[table]
    labels = [value if isinstance(value, str) else f"{value:g}" for value in found[axis]]

    def figure(task: str, point: str, asked: str) -> float | None:
        if asked != method or task not in found or point not in labels:
            return None
        return float(found[task][labels.index(point)])

    return figure


def solver_figure(task: str, point: str, method: str) -> float | None:
    """The full comparison of solvers; all pairs stand beside its larger protocol."""
    found = paper_tables()["table_solvers"][task]["200" if point == ALL_PAIRS else "50"]
    known = found.get(method.partition(":")[0]) if method != WITH_TIME_TO_GO else None
    return None if known is None else float(known["success"])


def trajectory_figure(task: str, method: str) -> tuple[float, float] | None:
    """Action jerk, and monotonicity in percent (Table 4)."""
    found, name = paper_tables()["table_trajectory"][task], {GC_IDM: "gc-idm", CEM: CEM}.get(method)
    return None if name is None else (found["jerk"][name], found["monotonicity"][name])


def held_out_figure(task: str, point: str, method: str) -> float | None:
    """Held-out validation."""
    found = paper_tables()["table_heldout"][task]
    if point != "held-out":
        return None
    return {GC_IDM: float(found["gc-idm"][0]), CEM: float(found["cem"])}.get(method)


def schedule_figure(task: str, point: str, method: str) -> float | None:  # noqa: ARG001
    """Fixed and uniform noise."""
    table = paper_tables()["table_noise_schedule"]
    schedule, sigma = point.split()
    return float(table[schedule][task][table["sigma"].index(float(sigma))])


def pairwise_figure(task: str, point: str, method: str) -> float | None:  # noqa: ARG001
    """Noise in the pairwise model's training."""
    table = paper_tables()["table_pairwise_train_noise"]
    return float(table["success"][table["train_sigma"].index(float(point))])


def planning_figure(task: str, point: str, method: str) -> float | None:  # noqa: ARG001
    """Planning with the pairwise model."""
    names = dict(zip(PATHS, ("lerp", "refine1", "refine3", "refine3_cand10"), strict=True))
    return float(paper_tables()["table_pairwise_planning"][task][names[method]])


ALL_PAIRS = "all pairs"
SIZES = (Point(label="first 50", first=50), Point(label=ALL_PAIRS))
EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        id="main",
        title="GC-IDM and CEM",
        paper="Table 1: GC-IDM is as good as CEM or better, at a hundredth of the cost",
        axis=PAIRS,
        points=SIZES,
        methods=(GC_IDM, WITH_TIME_TO_GO, "hybrid", CEM, "random", "zero"),
        seeds=SEEDS,
        slow=(CEM,),
        figure=solver_figure,
        timed=True,
        chart="bars",
        claims=(
            Claim(
                text="GC-IDM succeeds as often as CEM or more often",
                better=(GC_IDM, ALL_PAIRS),
                worse=(CEM, ALL_PAIRS),
                margin=3.0,
            ),
        ),
    ),
    Experiment(
        id="solvers",
        title="The family of solvers",
        paper="Figure 4 and Table 11: GC-IDM is above every solver on every task",
        axis=PAIRS,
        points=SIZES,
        methods=(GC_IDM, CEM, "icem", "mppi", "gradient"),
        figure=solver_figure,
        timed=True,
        chart="bars",
        claims=tuple(
            Claim(
                text=f"GC-IDM succeeds as often as {method_name(solver)} or more often",
                better=(GC_IDM, ALL_PAIRS),
                worse=(solver, ALL_PAIRS),
                margin=3.0,
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
    ),
    Experiment(
        id="h-max",
        title="The farthest goal of the training",
        paper="Table 3: short horizons are worse, 50 is enough",
        axis="H_max",
        points=trained("network.max_horizon", (5, 10, 25, 50, 100)),
        figure=column("table_hmax", "hmax"),
        claims=(
            Claim(
                text="H_max 50 succeeds more often than 5",
                better=(GC_IDM, "50"),
                worse=(GC_IDM, "5"),
            ),
        ),
    ),
    Experiment(
        id="trajectories",
        title="How smoothly: action jerk, and latent distance that always falls",
        paper="Table 4: GC-IDM's actions are smoother by far",
        axis=PAIRS,
        points=SIZES[1:],
        methods=(GC_IDM, WITH_TIME_TO_GO, CEM),
        chart="none",
    ),
    Experiment(
        id="frontier",
        title="CEM with less search, up to its default",
        paper="Figure 6: no setting is both quicker and better than GC-IDM",
        axis=PAIRS,
        points=(Point(label=ALL_PAIRS),),
        methods=(GC_IDM, WITH_TIME_TO_GO, *FRONTIER, CEM),
        timed=True,
        chart="frontier",
    ),
    Experiment(
        id="commit",
        title="Actions until the next look: GC-IDM without feedback",
        paper="Appendix A bounds how errors add up without feedback",
        axis="actions",
        points=(Point(label="success"),),
        methods=(
            GC_IDM,
            *(f"hybrid:search=null,steps_left.mode=budget,commit={k}" for k in (1, 2, 5, 10, 25)),
        ),
        chart="bars",
    ),
    Experiment(
        id="data",
        title="Share of the training episodes",
        paper="Appendix D: all but Push-T are near their best well below all data",
        axis="share",
        points=trained("data_fraction", (0.01, 0.05, 0.1, 0.25, 0.5, 1.0)),
        figure=column("table_data_efficiency", "fraction"),
    ),
    Experiment(
        id="noise",
        title="Noise on GC-IDM's latents in training",
        paper="Appendix D: none is best",
        axis="sigma",
        points=trained("noise.sigma", (0.0, 0.01, 0.05, 0.1, 0.2, 0.5)),
        figure=column("table_gcidm_noise", "sigma"),
    ),
    Experiment(
        id="noise-schedule",
        title="Noise that varies from batch to batch",
        paper="Appendix D: it gives nothing back",
        axis="sigma",
        points=tuple(
            Point(
                label=f"{schedule} {sigma:g}",
                changes={"controller": (f"noise.sigma={sigma}", f"noise.schedule={schedule}")},
            )
            for schedule in ("fixed", "uniform")
            for sigma in (0.05, 0.1, 0.2)
        ),
        figure=schedule_figure,
        chart="bars",
    ),
    Experiment(
        id="horizon-embedding",
        title="Without goals that are far",
        paper="Appendix D: training on the next frame alone fails, however wide the network",
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
    ),
    Experiment(
        id="width",
        title="Width of the network",
        paper="Appendix D: saturated but for Push-T",
        axis="hidden units",
        points=trained("network.hidden_dim", (128, 256, 512, 1024)),
        figure=column("table_arch_width", "hidden"),
    ),
    Experiment(
        id="depth",
        title="Depth of the network",
        paper="Appendix D: a fifth layer gives Push-T 2.5 points",
        axis="layers",
        points=trained("network.num_layers", (1, 2, 3, 4, 5)),
        figure=column("table_arch_depth", "layers"),
    ),
    Experiment(
        id="budget",
        title="Budget of an episode",
        paper="Appendix D: Push-T is best at 25 and falls after it",
        axis="steps",
        points=swept("budget", (5, 10, 15, 25, 50, 75, 100)),
        methods=(GC_IDM, WITH_TIME_TO_GO),
        figure=column("table_budget", "budget"),
        claims=(
            Claim(
                text="told the time to go, a budget of 100 is as good as one of 50",
                ours=True,
                better=(WITH_TIME_TO_GO, "100"),
                worse=(WITH_TIME_TO_GO, "50"),
                margin=3.0,
            ),
        ),
    ),
    Experiment(
        id="held-out",
        title="Held-out episodes and all episodes",
        paper="Appendix D: nothing is memorised",
        axis="episodes",
        points=(
            Point(label="held-out"),
            Point(label="all", changes={"episodes": "all"}),
        ),
        methods=(GC_IDM, CEM),
        figure=held_out_figure,
        chart="bars",
    ),
    Experiment(
        id="pairwise-planning",
        title="Straight lines in latent space, decoded by the pairwise model",
        paper="Table 7: refining and choosing help, and stay far below CEM",
        axis="",
        points=(Point(label="success", changes={"controller": NOISY}),),
        methods=PATHS,
        tasks=("two-room",),
        figure=planning_figure,
        chart="bars",
    ),
    Experiment(
        id="pairwise-noise",
        title="Noise in the pairwise model's training",
        paper="Table 6: 1.5 is best",
        axis="sigma",
        points=trained("noise.sigma", (0.0, 0.1, 0.2, 0.5, 0.8, 1.0, 1.5, 2.0)),
        methods=PATHS[:1],
        tasks=("two-room",),
        figure=pairwise_figure,
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
    ),
)


STUDIES: tuple[Study, ...] = (
    Study(
        id="oracle-noise",
        title="The pairwise model on true pairs of latents, under noise",
        paper="Table 5: near perfect, down to noise of half the latents' own spread",
        axis="sigma",
        tasks=("two-room",),
        measure=oracle_noise,
        uses=pairwise_cells(),
    ),
    Study(
        id="latent-geometry",
        title="The latents' geometry, and how plainly actions show in it",
        paper="Eq. (17) of Appendix A; which geometry is needed is left open by the paper",
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
        paper="Figure 5: GC-IDM goes straight where CEM searches",
        measure=plans_in_latent_space,
        uses=compared_cells,
    ),
    Study(
        id="executions",
        title="Demonstration, GC-IDM and CEM from the same starts to the same goals",
        paper="Figures 3 and 7 to 10",
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

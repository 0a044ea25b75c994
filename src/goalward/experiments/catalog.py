"""The catalog: the paper's tables and figures, and some of our own, a row each.

To add an experiment, add a row: if its outcome is success, to `COMPARISONS` or, where something
else is trained for it, to `ABLATIONS`; otherwise to `STUDIES`.
"""

from __future__ import annotations

from collections.abc import Sequence

from goalward.experiments.ablations import ABLATIONS, WORLDS
from goalward.experiments.analyses import latent_geometry, oracle_noise, pairwise_cells
from goalward.experiments.comparisons import COMPARISONS
from goalward.experiments.experiment import Experiment, Study
from goalward.experiments.pictures import (
    compared_cells,
    executions,
    latents_over_training,
    plans_in_latent_space,
)

EXPERIMENTS = (*COMPARISONS, *ABLATIONS)
STUDIES: tuple[Study, ...] = (
    Study(
        id="oracle-noise",
        title="The pairwise model on true pairs of latents, under noise",
        paper="Table A: near perfect without noise (R² 0.99), less and less so up to half the "
        "latents' own spread (0.89), useless beyond all of it",
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
        paper="Figure 1: on Push-T a cloud becomes a path over the epochs",
        measure=latents_over_training,
        uses=compared_cells,
    ),
    Study(
        id="plans",
        title="CEM's plans and both methods' ways in latent space",
        paper="Figure A: on Push-T, the plans that CEM tries out, and the ways of both (by t-SNE; "
        "here on principal axes)",
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

"""The catalog: the paper's tables and figures, and some of our own, one row each.

To add an experiment, add a row: to `COMPARISONS` or, where something else is trained for it, to
`ABLATIONS`, if its result is success; otherwise to `ANALYSES`.
"""

from __future__ import annotations

from collections.abc import Sequence

from goalward.core.config_errors import did_you_mean
from goalward.experiments import analyses, models, pictures, references
from goalward.experiments.ablations import ABLATIONS
from goalward.experiments.comparisons import COMPARISONS
from goalward.experiments.experiment import PUSH_T, Analysis, Experiment, RunSpec


def nothing(task: str) -> list[RunSpec]:  # noqa: ARG001
    """Nothing needs to be trained first."""
    return []


EXPERIMENTS = (*COMPARISONS, *ABLATIONS)
ANALYSES: tuple[Analysis, ...] = (
    Analysis(
        id="decision-cost",
        title="Time of a decision, alone and in batches",
        paper="Table 1: in batches of 50, a decision of GC-IDM is 116 to 129 times cheaper than "
        "one of CEM, on GPUs and with larger models",
        axis="controller",
        measure=analyses.decision_cost,
        bundled=True,
    ),
    Analysis(
        id="baselines",
        title="Success without learning",
        axis="policy",
        measure=references.baselines,
        uses=nothing,
    ),
    Analysis(
        id="true-state",
        title="GC-IDM on the true state",
        paper="Not in the paper: the same network on true states (of Cube only the positions of "
        "block and effector) in place of latents",
        axis="controller",
        measure=references.true_state,
    ),
    Analysis(
        id="world-models",
        title="What the latents hold",
        axis="read from the latent",
        measure=models.world_models,
    ),
    Analysis(
        id="training-length",
        title="Error of the latents by the length of training",
        axis="steps",
        tasks=PUSH_T,
        measure=models.training_length,
    ),
    Analysis(
        id="controllers",
        title="What the controllers learn, and which horizon input is best",
        paper="Not in the paper, whose horizon input is the remaining budget. Success is on pairs "
        "of validation episodes, which choose the setting",
        measure=models.controllers,
    ),
    Analysis(id="training-time", title="Time to train", measure=models.training_time),
    Analysis(
        id="recordings",
        title="How exactly recorded states restore and replay",
        measure=references.recordings,
        uses=nothing,
    ),
    Analysis(
        id="oracle-noise",
        title="The pairwise model on true pairs of latents, under noise",
        paper="Table A: nearly perfect without noise (R² 0.99), 0.89 at half the spread of the "
        "latents, useless beyond all of it",
        axis="sigma",
        tasks=("two-room",),
        measure=analyses.oracle_noise,
        uses=analyses.noise_runs,
    ),
    Analysis(
        id="latent-geometry",
        title="Geometry of the latents, and how well they show actions",
        paper="Eq. (17) of Appendix B; the paper leaves open which geometry is needed",
        axis="world model",
        measure=analyses.latent_geometry,
        uses=analyses.geometry_runs,
    ),
    Analysis(
        id="latents",
        title="One episode's latents while the world model learns",
        paper="Figure 1: on Push-T a cloud becomes a path over the epochs",
        draw=pictures.latents_over_training,
    ),
    Analysis(
        id="plans",
        title="CEM's plans and the paths of both controllers in latent space",
        paper="Figure A: on Push-T, the plans that CEM considers, and the paths of both (by t-SNE; "
        "here on principal axes)",
        draw=pictures.plans_in_latent_space,
    ),
    Analysis(
        id="executions",
        title="Demonstration, GC-IDM and CEM from the same starts to the same goals",
        paper="Figures 3 and C to F, there with goals 100 or 200 steps away, here 25",
        draw=pictures.executions,
        bundled=True,
    ),
)


def find_experiments(ids: Sequence[str] = ()) -> list[Experiment | Analysis]:
    """The experiments and analyses of these names, or all of them.

    Raises:
        ValueError: a name is unknown.
    """
    every: list[Experiment | Analysis] = [*EXPERIMENTS, *ANALYSES]
    known = {one.id: one for one in every}
    for name in ids:
        if name not in known:
            hint = did_you_mean(name, known) or "; see `goalward list-experiments`"
            raise ValueError(f"unknown experiment {name!r}{hint}")
    return [known[name] for name in ids or known]

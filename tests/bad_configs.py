"""Where the numbers of each configuration end."""

from __future__ import annotations

from bad_call_kit import CARD, ROW
from bad_values import SMALL, Fields
from goalward.control.checkpoint import IDMMetadata
from goalward.core.config import to_json
from goalward.data.collect import CollectConfig
from goalward.data.splits import SplitConfig
from goalward.data.windows import ActionScaler
from goalward.evaluation.baselines import FloorsConfig
from goalward.evaluation.pairs import PairsConfig
from goalward.evaluation.results import EpisodeResult
from goalward.tasks.task import RenderConfig
from goalward.world.encoders import ConvConfig, ViTConfig
from goalward.world.latents import EmbedConfig
from goalward.world.lewm import LeWMConfig, PredictorConfig
from goalward.world.metrics import MLPProbeConfig
from goalward.world.objective import ObjectiveConfig

WIDTH, DEPTH, PIXELS = (0, 2**16 + 1), (0, 1001), (0, 4097)
SAMPLES, ITERS, STEPS = (0, 2**20 + 1), (0, 10**6 + 1), (0, 10**4 + 1)
SHARE, WEIGHT, ABOVE_ZERO = (SMALL, 1.0), (SMALL, None), (0.0, None)


CONFIGS: dict[type, Fields] = {
    IDMMetadata: Fields(CARD),
    PredictorConfig: Fields(
        edges=dict.fromkeys(("heads", "dim_head", "mlp_dim"), WIDTH)
        | {"depth": DEPTH, "dropout": SHARE}
    ),
    LeWMConfig: Fields(
        {"action_dim": 2},
        dict.fromkeys(("action_dim", "frameskip", "history", "latent_dim", "projector_dim"), WIDTH),
    ),
    ViTConfig: Fields(
        edges={"image_size": PIXELS, "patch_size": (0, 225), "dim": WIDTH}
        | {"depth": DEPTH, "heads": (0, 193)}
    ),
    ConvConfig: Fields(edges={"image_size": PIXELS, "patch_size": (0, 65), "keypoints": WIDTH}),
    ObjectiveConfig: Fields(
        edges=dict.fromkeys(("regulariser_weight", "inverse_weight", "thumbnail_weight"), WEIGHT)
        | {"projections": WIDTH, "knots": (1, WIDTH[1]), "auxiliary_dim": WIDTH}
        | {"thumbnail_size": PIXELS}
    ),
    MLPProbeConfig: Fields(
        edges={"hidden": WIDTH, "batch": WIDTH}
        | {"learning_rate": ABOVE_ZERO, "weight_decay": WEIGHT}
    ),
    ActionScaler: Fields({"mean": (0.0,), "std": (1.0,)}),
    SplitConfig: Fields(edges={"held_out_every": (1, 2**63)}),
    RenderConfig: Fields(edges={"image_size": (15, 513)}),
    CollectConfig: Fields(
        to_json(CollectConfig.for_task("two-room", episodes=2)) | {"scene": RenderConfig()},
        {"episodes": (0, 10**7 + 1), "episode_steps": ITERS},
        texts=("task", "demonstrator"),
    ),
    EmbedConfig: Fields(edges={"batch": SAMPLES}),
    PairsConfig: Fields({"task": "two-room"}, texts=("task",)),
    FloorsConfig: Fields(),
    EpisodeResult: Fields(
        ROW,
        {"pair": (-1, 2**63), "budget": (9, 2**63), "steps": (0, 51)}
        | {"predictor_calls": (-1, 2**63)},
    ),
}

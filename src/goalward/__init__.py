"""goalward: turn a frozen latent world model into a goal-reaching controller that needs no search.

The names in `__all__` are the public API, and the only promise. They are imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

VERBS = (  # also commands of the same name
    *("collect", "inspect", "train_world", "validate_world", "convert_world", "embed"),
    *("train", "validate", "export", "load", "evaluate", "baselines", "run"),
    *("reproduce", "report", "verify", "doctor", "list_tasks", "list_experiments"),
)
NOUNS = {
    "Controller": "goalward.control.controller",
    "ControllerConfig": "goalward.control.train",
    "ControllerMetrics": "goalward.control.metrics",
    "Difference": "goalward.evaluation.statistics",
    "Encoder": "goalward.world.protocol",
    "Episodes": "goalward.data.episodes",
    "EpisodesSummary": "goalward.data.summary",
    "Latents": "goalward.world.latents",
    "Pairs": "goalward.evaluation.pairs",
    "Protocol": "goalward.tasks.task",
    "Results": "goalward.evaluation.results",
    "Simulator": "goalward.tasks.task",
    "Solver": "goalward.planning.solvers",
    "Table": "goalward.experiments.tables",
    "Task": "goalward.tasks.task",
    "TaskPreset": "goalward.tasks.task",
    "TrainedIDM": "goalward.control.checkpoint",
    "World": "goalward.world.checkpoint",
    "WorldConfig": "goalward.world.train",
    "WorldMetrics": "goalward.world.metrics",
    "WorldModel": "goalward.world.protocol",
    "register_controller": "goalward.evaluation.controllers",
    "register_encoder": "goalward.world.protocol",
    "register_solver": "goalward.planning.solvers",
    "register_task": "goalward.tasks",
    "write_episodes": "goalward.data.hdf5",
}
__all__ = [*VERBS, *NOUNS]

if TYPE_CHECKING:
    from goalward.api import baselines as baselines
    from goalward.api import collect as collect
    from goalward.api import convert_world as convert_world
    from goalward.api import doctor as doctor
    from goalward.api import embed as embed
    from goalward.api import evaluate as evaluate
    from goalward.api import export as export
    from goalward.api import inspect as inspect
    from goalward.api import list_experiments as list_experiments
    from goalward.api import list_tasks as list_tasks
    from goalward.api import load as load
    from goalward.api import report as report
    from goalward.api import reproduce as reproduce
    from goalward.api import run as run
    from goalward.api import train as train
    from goalward.api import train_world as train_world
    from goalward.api import validate as validate
    from goalward.api import validate_world as validate_world
    from goalward.api import verify as verify
    from goalward.control.checkpoint import TrainedIDM as TrainedIDM
    from goalward.control.controller import Controller as Controller
    from goalward.control.metrics import ControllerMetrics as ControllerMetrics
    from goalward.control.train import ControllerConfig as ControllerConfig
    from goalward.data.episodes import Episodes as Episodes
    from goalward.data.hdf5 import write_episodes as write_episodes
    from goalward.data.summary import EpisodesSummary as EpisodesSummary
    from goalward.evaluation.controllers import register_controller as register_controller
    from goalward.evaluation.pairs import Pairs as Pairs
    from goalward.evaluation.results import Results as Results
    from goalward.evaluation.statistics import Difference as Difference
    from goalward.experiments.tables import Table as Table
    from goalward.planning.solvers import Solver as Solver
    from goalward.planning.solvers import register_solver as register_solver
    from goalward.tasks import register_task as register_task
    from goalward.tasks.task import Protocol as Protocol
    from goalward.tasks.task import Simulator as Simulator
    from goalward.tasks.task import Task as Task
    from goalward.tasks.task import TaskPreset as TaskPreset
    from goalward.world.checkpoint import World as World
    from goalward.world.latents import Latents as Latents
    from goalward.world.metrics import WorldMetrics as WorldMetrics
    from goalward.world.protocol import Encoder as Encoder
    from goalward.world.protocol import WorldModel as WorldModel
    from goalward.world.protocol import register_encoder as register_encoder
    from goalward.world.train import WorldConfig as WorldConfig


def __getattr__(name: str) -> Any:
    if name in NOUNS or name in VERBS:
        found = getattr(import_module(NOUNS.get(name, "goalward.api")), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'goalward' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

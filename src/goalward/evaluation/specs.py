"""Controllers by name, path, place or object: what an evaluation runs.

What a name may stand for is in `evaluation/controllers.py`.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from goalward.bundle import controller_path
from goalward.control.checkpoint import TrainedIDM, load_trained_idm, model_id
from goalward.control.controller import Controller, WholeBatch, chooses_environments
from goalward.control.networks import HorizonConfig, PairwiseIDM
from goalward.core.checks import format_value
from goalward.core.config import from_json, override
from goalward.core.machine import choose_device
from goalward.data.splits import SplitConfig
from goalward.evaluation.controllers import (
    CONTROLLERS,
    AnyController,
    ControllerInputs,
    ControllerKind,
    NoConfig,
    acts,
    controller_kind,
)
from goalward.evaluation.simulators import SimulatorController, scripted_policy
from goalward.runtime.onnx import SUFFIX, OnnxController
from goalward.tasks import get_task
from goalward.tasks.task import Task
from goalward.world.checkpoint import World, load_world
from goalward.world.frozen import device_of
from goalward.world.protocol import Encoder

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

BUNDLED = "bundled"
ONNX_NAME = "gc-idm-onnx"
WORLD_FILES = ("model.json", "weights.pt")  # one of which a world model's folder has
NEEDS = {"idm": "trained controller", "pairwise": "pairwise model", "world": "world model"}


@dataclass(frozen=True, kw_only=True)
class ControllerSpec:
    """A controller to evaluate, with one seed."""

    name: str  # as it is shown, with its settings
    config: DataclassInstance  # all that its actions depend on, except the model and the seed
    model_id: str | None  # of the weights that it uses
    make: Callable[[int], AnyController]  # from a seed to a new controller
    encoder: Encoder | None = None  # that it sees with
    draws: bool = True
    seed: int = 0

    def controller(self) -> AnyController:
        """A new controller."""
        made = self.make(self.seed)
        if not isinstance(made, SimulatorController) and not acts(made):
            raise ValueError(
                f"{self.name} must make an object with reset and act, got {format_value(made)}"
            )
        if isinstance(made, SimulatorController) or chooses_environments(made):
            return made
        return WholeBatch(made)

    @property
    def device(self) -> str:
        """Where it computes."""
        return "cpu" if self.encoder is None else str(device_of(self.encoder))


def resolve_controllers(
    task: Task,
    controllers: Sequence[Any],
    *,
    seeds: Sequence[int] = (0,),
    device: str = "auto",
    split: SplitConfig | None = None,
    model: Path | TrainedIDM | None = None,
) -> tuple[list[ControllerSpec], Encoder | None]:
    """Every controller with each of its seeds, and the encoder to measure latent distances with.

    A controller that draws nothing has the first seed alone. Several of the same name with other
    models (`gc-idm:model=PATH`) are one controller, and have a seed each.

    Args:
        task: What they act in.
        controllers: Names with settings, paths, places such as package.module:NAME, or objects.
        seeds: Of those that draw at random.
        device: Where to compute.
        split: Refuses models that may have been trained on what it holds out (None: does not).
        model: Of names that need one (default: the first one among `controllers`).
    """
    for what, given in (("controllers", controllers), ("seeds", seeds)):
        if not given:
            raise ValueError(f"{what} are missing; give at least one")
    context = Context(task=task, device=choose_device(device), split=split)
    wanted = [_read(one, context) for one in controllers]
    first = () if model is None else (_read(model, context),)
    models = [one.model for one in (*first, *wanted) if isinstance(one, _Wanted)]
    known = [found for found in models if isinstance(found, TrainedIDM)]
    specs = [*_with_seeds([_complete(one, known, task) for one in wanted], seeds)]
    for spec in specs:
        spec.controller()  # refuses unusable settings before anything runs
    encoders = (*(spec.encoder for spec in specs), *(found.encoder for found in known))
    return specs, next((found for found in encoders if found is not None), None)


def require_known(controllers: Sequence[Any], task: Task) -> None:
    """Refuse unknown names and paths, before hours are spent on what comes first."""
    for name in (_split(str(one))[0] for one in controllers if isinstance(one, str | Path)):
        if _path(name, task) is None:
            _kind(name, task)


def load_controller(
    what: Any, *, task: str | Task | None = None, device: str = "auto"
) -> Controller:
    """One controller, to act with. `task` is needed for what is not trained on one."""
    known = None if task is None else get_task(task)
    found = resolve(what, Context(task=known, device=choose_device(device))).controller()
    if isinstance(found, SimulatorController):
        raise ValueError(f"{what} acts on a simulator's state, not on frames; evaluate it instead")
    return found


def resolve(what: Any, context: Context) -> ControllerSpec:
    """The controller that a text or an object stands for, with seed 0."""
    known = [] if context.model is None else [context.model]
    return _complete(_read(what, context), known, context.task)


def first_seeds(specs: Sequence[ControllerSpec]) -> list[ControllerSpec]:
    """Of several seeds of one controller, the first."""
    return [*{spec.name: spec for spec in reversed(specs)}.values()][::-1]


def _with_seeds(specs: Sequence[ControllerSpec], seeds: Sequence[int]) -> Iterator[ControllerSpec]:
    """Each with its seeds; see `resolve_controllers`."""
    for spec in specs:
        ids = [other.model_id for other in specs if other.name == spec.name]
        if len(ids) == 1:
            yield from (replace(spec, seed=s) for s in (seeds if spec.draws else seeds[:1]))
            continue
        if len(set(ids)) < len(ids) or "@" in spec.name:
            raise ValueError(
                f"{spec.name} is given twice; give it once, or rename one of the folders"
            )
        if len(seeds) not in (1, len(ids)):
            raise ValueError(f"{len(ids)} models need as many seeds, got {len(seeds)}")
        own = ids.index(spec.model_id)
        yield replace(spec, seed=own if len(seeds) == 1 else seeds[own])


@dataclass(kw_only=True)
class Context:
    """What texts and objects are resolved in; it loads each model once.

    Attributes:
        task: What controllers act in; None: what their model was trained on.
        device: Where to compute.
        split: Refuses models that may have been trained on what it holds out (None: does not).
        model: Of names that need one and do not say which.
    """

    task: Task | None
    device: torch.device
    split: SplitConfig | None = None
    model: TrainedIDM | None = None
    _loaded: dict[Path, TrainedIDM] = field(default_factory=dict)

    def load(self, path: Path) -> TrainedIDM:
        """A trained model, if it fits."""
        if path not in self._loaded:
            self._loaded[path] = load_trained_idm(path, device=self.device)
        return self.fitting(path, self._loaded[path])

    def load_world(self, path: Path) -> World:
        """A world model's folder, or the one in a controller's file."""
        if not any((path / name).exists() for name in WORLD_FILES):
            return self.load(path).world
        world = load_world(path, device=self.device)
        self.require_fit(path, None, world.model.config.action_dim, world.split)
        return world

    def fitting(self, where: object, model: TrainedIDM) -> TrainedIDM:
        """The model, if it fits."""
        about = model.metadata
        self.require_fit(where, about.task, about.network.action_dim, about.split)
        return model

    def require_fit(
        self, where: object, task: str | None, action_dim: int, split: SplitConfig
    ) -> None:
        """Refuse a model of another task, or one that may have been trained on the pairs."""
        own = self.task
        if own is not None and task not in (None, own.name):
            raise ValueError(f"{where}: trained on task {task}, not on {own.name}")
        if own is not None and action_dim != own.action_dim:
            raise ValueError(
                f"{where}: trained for actions of {action_dim} numbers; task {own.name} has "
                f"{own.action_dim}"
            )
        if self.split not in (None, split):
            raise ValueError(
                f"{where}: its training held out other episodes ({split}) than the pairs come from "
                f"({self.split}); use --split all, which the results then state"
            )


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """A registered controller that was asked for, with the model that it names."""

    name: str
    kind: ControllerKind
    settings: Sequence[str] = ()  # key=value
    model: TrainedIDM | World | None = None
    label: str = ""  # at the end of its name


def _read(what: Any, context: Context) -> ControllerSpec | _Wanted:
    """What a text or an object stands for; the models that texts name are loaded."""
    if isinstance(what, ControllerSpec):
        return what
    if isinstance(what, TrainedIDM):
        return _of_model(context.fitting("this model", what))
    if not isinstance(what, str | Path):
        return _of_object(what, type(what).__name__)
    name, settings = _split(str(what))
    path = _path(name, context.task)
    if path is not None:
        label = path.parent.name if path.stem in ("best", "last") else path.stem
        label = "" if name.partition(":")[0] == BUNDLED else f"@{label}"
        if path.suffix == SUFFIX:
            return _of_onnx(path, ONNX_NAME + label, context)
        return replace(_of_model(context.load(path)), settings=settings, label=label)
    kind = _kind(name, context.task)
    if not isinstance(kind, ControllerKind):
        return _of_object(kind, name)
    loaders: dict[str, Callable[[Path], TrainedIDM | World]] = {}
    if kind.needs is not None:
        loaders["model"] = context.load
    if kind.needs == "world":
        loaders["world"] = context.load_world
    model: TrainedIDM | World | None = None
    for key, load in loaders.items():
        for setting in [one for one in settings if one.startswith(f"{key}=")]:
            settings.remove(setting)
            model = load(Path(setting.partition("=")[2]))
    return _Wanted(name=name, kind=kind, settings=settings, model=model)


def _split(text: str) -> tuple[str, list[str]]:
    """Take `NAME[:key=value,...]` apart, where NAME may be a path or a place with colons."""
    name, _, rest = text.partition(":")
    if name not in CONTROLLERS:
        before, _, last = text.rpartition(":")
        name, rest = (before, last) if "=" in last and before else (text, "")
    return name, [part for part in re.split(r",(?=[\w.]+=)", rest) if part]


def _path(name: str, task: Task | None) -> Path | None:
    """The file or folder that a name stands for; None for what is registered, and for a place."""
    first, _, of_task = name.partition(":")
    if first == BUNDLED:
        if not of_task and task is None:
            raise ValueError(f"{BUNDLED}: write {BUNDLED}:TASK, or say which task it is")
        return controller_path(of_task if task is None else of_task or task.name)
    if name not in CONTROLLERS and Path(name).exists():
        return Path(name)
    if ":" not in name and ("/" in name or name.endswith((".safetensors", SUFFIX))):
        raise ValueError(f"{name}: no such file; give a controller's path or name")
    return None


def _kind(name: str, task: Task | None) -> Any:
    """What is registered under a name or lies at a place, or a scripted baseline of the task."""
    if task is None or name not in task.scripted_baselines:
        return controller_kind(name)
    policy = SimulatorController(policy=partial(scripted_policy, name))
    return ControllerKind(make=lambda *_: policy, draws=False)


def _of_model(model: TrainedIDM) -> _Wanted:
    """The controller that a trained model is for."""
    name = "waypoints" if isinstance(model.network, PairwiseIDM) else "gc-idm"
    return _Wanted(name=name, kind=CONTROLLERS.get(name), model=model)


def _complete(
    wanted: ControllerSpec | _Wanted, known: Sequence[TrainedIDM], task: Task | None
) -> ControllerSpec:
    """A controller with its model: the one that it names, or the first known one of its kind."""
    if isinstance(wanted, ControllerSpec):
        return wanted
    name, kind = wanted.name, wanted.kind
    model = wanted.model or _first(name, kind, known)
    trained, encoder = (model, model.encoder) if isinstance(model, TrainedIDM) else (None, model)
    if trained is not None and kind.needs == "world":
        encoder = trained.world  # refuses an encoder that predicts nothing
    if trained is not None:
        low, high = trained.metadata.action_low, trained.metadata.action_high
    elif task is not None:
        low, high = (-1.0,) * task.action_dim, (1.0,) * task.action_dim
    else:
        raise ValueError(f"{name} can act in any task; say in which one")
    inputs = ControllerInputs(
        action_dim=len(low), action_low=low, action_high=high, model=trained, world=encoder
    )
    default = kind.config() if isinstance(kind.config, type) else kind.config(trained)
    chosen = override(default, wanted.settings)
    # Most planners take the world model alone out of a controller's file, whichever it is.
    uses_all = trained is not None and kind.uses_model(chosen)
    weights = model_id(trained) if trained is not None and uses_all else None
    return ControllerSpec(
        name=(f"{name}:{','.join(wanted.settings)}" if wanted.settings else name) + wanted.label,
        config=chosen,
        model_id=weights or (None if encoder is None else encoder.id),
        make=lambda seed: kind.make(chosen, replace(inputs, seed=seed)),
        encoder=encoder,
        draws=kind.draws,
    )


def _first(name: str, kind: ControllerKind, known: Sequence[TrainedIDM]) -> TrainedIDM | None:
    """The first model of the kind that a controller needs; planners take a goal-conditioned one."""
    if kind.needs is None:
        return None
    for model in known:
        if isinstance(model.network, PairwiseIDM) == (kind.needs == "pairwise"):
            return model
    key = "world" if kind.needs == "world" else "model"
    raise ValueError(f"{name} needs a {NEEDS[kind.needs]}: write {name}:{key}=PATH")


def _of_onnx(path: Path, name: str, context: Context) -> ControllerSpec:
    """An exported controller, with the number of threads that the other controllers have."""
    about = OnnxController(path).metadata
    split = from_json(SplitConfig, about.split)
    context.require_fit(path, about.task, about.action_dim, split)
    return ControllerSpec(
        name=name,
        config=from_json(HorizonConfig, about.horizon),
        model_id=hashlib.sha256(path.read_bytes()).hexdigest()[:16],
        make=lambda _: OnnxController(path, threads=torch.get_num_threads()),
        draws=False,
    )


def _of_object(what: Any, name: str) -> ControllerSpec:
    """A user's controller, or function from a seed to one.

    Nobody knows what it depends on, so that its results are never those of an earlier evaluation.
    """
    if not acts(what) and not callable(what):
        raise ValueError(
            f"{format_value(what)} is no controller: expected an object with reset and act, a "
            "function from a seed to one, a name, or a path"
        )
    return ControllerSpec(
        name=name,
        config=NoConfig(),
        model_id=secrets.token_hex(8),
        make=(lambda _: what) if acts(what) else what,
        draws=not acts(what),
    )

"""The verbs of goalward: each is a function here, and a command of the same name.

An input is a path, or the object that an earlier verb returned. Every verb finds what it already
made, and resumes what was interrupted. Arguments are checked at this door and nowhere further in.
Heavy libraries are imported inside the functions, so that `goalward --help` is quick.
"""

from __future__ import annotations

import builtins
import inspect as _inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, ParamSpec, TypeVar, get_type_hints

import goalward
from goalward import defaults
from goalward.core import console
from goalward.core.checks import as_path
from goalward.core.config import NonNegative, NonNegativeFloat, Positive, check_values, override
from goalward.core.curves import LogTarget
from goalward.core.machine import choose_device, choose_devices, usable_cpus, use_threads
from goalward.defaults import ExperimentPreset, ModelKind, PresetName, SplitPart

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from goalward.control.checkpoint import TrainedIDM
    from goalward.control.controller import Controller
    from goalward.control.metrics import ControllerMetrics
    from goalward.control.train import ControllerConfig
    from goalward.core.console import Update
    from goalward.core.verify import FileCheck
    from goalward.data.episodes import Episodes
    from goalward.data.summary import EpisodesSummary
    from goalward.diagnostics import Finding
    from goalward.evaluation.results import Results
    from goalward.experiments.experiment import Analysis, Experiment
    from goalward.experiments.run import Job, State
    from goalward.experiments.tables import Table
    from goalward.tasks.task import Task
    from goalward.world.checkpoint import World
    from goalward.world.latents import Latents
    from goalward.world.metrics import WorldMetrics
    from goalward.world.train import WorldConfig

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound="DataclassInstance")

StrPath = str | PathLike[str]
Weights = Literal["best", "last"]


@dataclass(frozen=True)
class Flag:
    """How a parameter looks on the command line, where it is not as its name and type say."""

    name: str | None = None
    metavar: str | None = None
    hidden: bool = False  # for Python only
    repeated: bool = False  # given once for every value


Overrides = Annotated[Sequence[str], Flag(name="set", metavar="NAME=VALUE", repeated=True)]
TaskLike = Annotated["str | Task", Flag(metavar="TASK")]
EpisodesLike = Annotated["StrPath | Episodes", Flag(metavar="EPISODES")]
WorldLike = Annotated["StrPath | World", Flag(metavar="WORLD")]
LatentsLike = Annotated["StrPath | Latents", Flag(metavar="LATENTS")]
ModelLike = Annotated["StrPath | TrainedIDM", Flag(metavar="CONTROLLER")]
Progress = Annotated[bool, Flag(hidden=True)]

VERBS: dict[str, Callable[..., Any]] = {}  # by command


def verb(function: Callable[P, R]) -> Callable[P, R]:
    """Makes a function a verb: its arguments are checked, and it is a command."""
    signature = _inspect.signature(function)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        given = signature.bind(*args, **kwargs).arguments
        check_values(_accepted_types(function), given)
        return function(*args, **kwargs)

    VERBS[function.__name__.replace("_", "-")] = checked
    return checked


class _Names(dict[str, Any]):
    """What annotations name; `find` gives what this module imports for type checkers only."""

    def __init__(self, find: Callable[[str], Any]) -> None:
        super().__init__({**vars(builtins), **globals()})
        self._find = find

    def __missing__(self, name: str) -> Any:
        return self._find(name)


def types_of(verb: Callable[..., Any], find: Callable[[str], Any]) -> dict[str, Any]:
    """The annotations of a verb; `find` gives the types that are imported when they are used."""
    return get_type_hints(verb, localns=_Names(find), include_extras=True)


@cache
def _accepted_types(verb: Callable[..., Any]) -> dict[str, Any]:
    return types_of(verb, lambda name: getattr(goalward, name, Any))


@verb
def collect(
    task: TaskLike,
    out: StrPath | None = None,
    *,
    preset: PresetName = "cpu",
    num_episodes: Positive | None = None,
    demonstrator: str | None = None,
    overrides: Overrides = (),
    episode_steps: Positive | None = None,
    image_size: Positive | None = None,
    rendering: Literal["fast", "environment"] = "fast",
    seed: NonNegative = defaults.SEED,
    workers: Positive | None = None,
    progress: Progress = False,
) -> Episodes:
    """Collect demonstrations into an episode file; run again to resume.

    Args:
        task: A task: see `goalward list-tasks`. Your own is package.module:NAME or file.py:NAME.
        out: Folder to write (default: runs/TASK/episodes).
        preset: Number of episodes, demonstrator and frame size that this preset trains with.
        num_episodes: Number of episodes (default: the preset's).
        demonstrator: Policy that is recorded (default: the preset's).
        overrides: A value of the collection in place of the usual one, such as recipe.noise=0.2.
        episode_steps: Actions in an episode (default: the task's).
        image_size: Pixels a side of the frames (default: the preset's).
        rendering: Fast frames, or the environment's own slow ones, as in the public datasets.
        seed: Seed of every random draw; the same seed gives the same file.
        workers: Simulator processes (default: one for every CPU). They do not change the result.
        progress: Show a progress bar.

    Returns:
        The episodes, open for reading.
    """
    from goalward.data.collect import CollectConfig
    from goalward.data.collect import collect as run_collect
    from goalward.data.episodes import open_episodes
    from goalward.tasks import get_task
    from goalward.tasks.task import RenderConfig

    found = get_task(task)
    sizes = found.preset(preset)
    config = CollectConfig.for_task(
        found.name,
        episodes=num_episodes or sizes.episodes,
        seed=seed,
        demonstrator=demonstrator or sizes.demonstrator,
        episode_steps=episode_steps,
        render=RenderConfig(image_size=image_size or sizes.image_size, rendering=rendering),
    )
    config = override(config, overrides)
    folder = _out(out, found.name, "episodes")
    with _bar(f"collect {found.name}", config.episodes, "frames", progress) as update:
        run_collect(config, folder, workers=workers or usable_cpus(), on_progress=update)
    return open_episodes(folder)


@verb
def inspect(
    episodes: EpisodesLike, *, task: str | None = None, sheet: StrPath | None = None
) -> EpisodesSummary:
    """Summarise an episode file, and draw a contact sheet of its frames.

    Args:
        episodes: An episode file (.h5, .lance), or a folder with one.
        task: The task of a file that does not name it (default: what the file says).
        sheet: Contact sheet to write (default: beside the episode file).

    Returns:
        Numbers about the file, and the reasons why training would refuse it.
    """
    from goalward.data.summary import save_contact_sheet, summarise, task_name
    from goalward.evaluation.baselines import solved_at_start
    from goalward.tasks import find_task

    with _opened(episodes) as opened:
        known = find_task(task_name(opened, task))
        solved = {} if known is None else solved_at_start(opened, known)
        summary = summarise(opened, task, solved_pairs=solved)
        target = opened.path.parent / "contact_sheet.png" if sheet is None else Path(sheet)
        try:
            save_contact_sheet(opened, target)
        except OSError:
            if sheet is not None:
                raise
            return summary  # recordings of others may be read only
    return replace(summary, contact_sheet=str(target))


@verb
def train_world(
    episodes: EpisodesLike,
    out: StrPath | None = None,
    *,
    preset: PresetName = "cpu",
    train_steps: Positive | None = None,
    overrides: Overrides = (),
    config: Annotated[WorldConfig | None, Flag(hidden=True)] = None,
    task: str | None = None,
    seed: NonNegative = defaults.SEED,
    device: str = "auto",
    threads: Positive | None = None,
    log: LogTarget | None = None,
    save_seconds: NonNegativeFloat = defaults.SAVE_SECONDS,
    progress: Progress = False,
) -> World:
    """Train a world model (LeWM) on an episode file; run again to resume. Works under torchrun.

    Args:
        episodes: An episode file (.h5, .lance), or a folder with one.
        out: Folder to write: weights, curves.png, metrics.json (default: runs/TASK/world).
        preset: Size and length of the training.
        train_steps: Optimiser steps (default: the preset's).
        overrides: A value in place of the preset's, such as schedule.lr=1e-4.
        config: The whole configuration, in place of `preset`, `train_steps`, `overrides`, `seed`.
        task: The task of a file that does not name it (default: what the file says).
        seed: Seed of every random draw; the same seed gives the same weights.
        device: cpu, cuda or mps; auto takes a CUDA GPU where there is one.
        threads: CPU threads; the same number repeats a training exactly (default: torch's choice).
        log: Where to show the curves while they grow (default: nowhere but in the folder).
        save_seconds: Time between two checkpoints.
        progress: Show a progress bar.

    Returns:
        The world model, with the weights of the lowest held-out loss.
    """
    from goalward.core.distributed import is_first_process
    from goalward.data.summary import task_name
    from goalward.presets import world_config
    from goalward.world.checkpoint import load_world
    from goalward.world.train import train_world as run_training

    use_threads(threads)
    chosen = choose_device(device)
    with _opened(episodes) as opened:
        name = task_name(opened, task)
        usual = config or world_config(preset, opened, task=name, seed=seed)
    final = config or _changed(usual, train_steps, overrides)
    folder = _out(out, name or _name(episodes), "world")
    show = progress and is_first_process()
    with _bar(f"train-world {name or ''}", final.schedule.steps, "frames", show) as update:
        run_training(
            final,
            _path(episodes),
            folder,
            device=chosen,
            task=task,
            save_seconds=save_seconds,
            log=log,
            on_progress=update,
        )
    return load_world(folder, device=chosen)


@verb
def validate_world(
    world: WorldLike,
    episodes: EpisodesLike,
    *,
    weights: Weights = "best",
    frameskip: Positive = defaults.FRAMESKIP,
    task: str | None = None,
    pairs: NonNegative = defaults.OUTCOME_PAIRS,
    plans: NonNegative = defaults.OUTCOME_PLANS,
    seed: NonNegative = defaults.SEED,
    device: str = "auto",
    workers: Positive | None = None,
) -> WorldMetrics:
    """Measure a world model on held-out episodes: prediction errors, and probes of its latents.

    A task's simulator also shows whether search can work in it: recorded actions, white noise and
    CEM's own plans are executed, and compared with what the world model predicts.

    Args:
        world: Folder of a world model: ours, or in the public LeWM layout.
        episodes: An episode file (.h5, .lance), or a folder with one.
        weights: Which weights of the folder.
        frameskip: Environment steps in a model step, which public files do not store.
        task: The task of a file that does not name it (default: what the file says).
        pairs: Held-out pairs whose starts the simulator continues from (0: simulate nothing).
        plans: On how many of them CEM plans.
        seed: Seed of the choice of frames, pairs and noise, and of the probe that is a network.
        device: cpu, cuda or mps; auto takes a CUDA GPU where there is one.
        workers: Simulator processes (default: one for every CPU). They do not change the result.

    Returns:
        The errors.
    """
    from goalward.evaluation.prediction import simulated_outcomes
    from goalward.world.checkpoint import load_world
    from goalward.world.metrics import validate_world as measure

    folder, chosen = _path(world), choose_device(device)
    loaded = load_world(folder, weights=weights, device=chosen, frameskip=frameskip)
    found = measure(loaded, _path(episodes), task=task, seed=seed)
    outcomes = simulated_outcomes(
        loaded,
        _path(episodes),
        task,
        pairs=pairs,
        plans=plans,
        workers=workers or usable_cpus(),
        seed=seed,
    )
    return replace(found, outcomes=outcomes)


@verb
def convert_world(
    source: Annotated[StrPath, Flag(metavar="SOURCE")],
    out: StrPath,
    *,
    layout: Literal["goalward", "public"] = "goalward",
    weights: Weights = "best",
    frameskip: Positive = defaults.FRAMESKIP,
    names: Literal["transformers-4", "transformers-5"] = "transformers-4",
    episodes: StrPath | None = None,
    download: bool = False,
) -> World:
    """Read a world model and write it in another layout.

    Args:
        source: Folder of a world model, or OWNER/NAME of a repository on Hugging Face.
        out: Folder to write.
        layout: Ours (safetensors), or the public LeWM one (config.json, weights.pt).
        weights: Which weights of a folder in our layout.
        frameskip: Environment steps in a model step, which public files do not store.
        names: Tensor names that a public file gets.
        episodes: Episodes that it was trained on. Planners need the mean and standard deviation of
            their actions, which public files lack (default: none).
        download: Fetch `source` from Hugging Face. Nothing is ever downloaded without it.

    Returns:
        The world model as it was written.
    """
    from goalward.world.checkpoint import convert_world as convert
    from goalward.world.checkpoint import load_world

    folder = Path(out)
    convert(
        str(source),
        folder,
        to=layout,
        weights=weights,
        frameskip=frameskip,
        names=names,
        download=download,
        episodes=None if episodes is None else Path(episodes),
    )
    return load_world(folder, frameskip=frameskip)


@verb
def embed(
    world: WorldLike,
    episodes: EpisodesLike,
    out: StrPath | None = None,
    *,
    weights: Weights = "best",
    batch: Positive = defaults.EMBED_BATCH,
    frameskip: Positive = defaults.FRAMESKIP,
    task: str | None = None,
    device: str = "auto",
    progress: Progress = False,
) -> Latents:
    """Encode every frame of an episode file with a frozen world model; run again to resume.

    Args:
        world: Folder of a world model, ours or in the public LeWM layout; or the name of a
            registered encoder.
        episodes: An episode file (.h5, .lance), or a folder with one.
        out: Folder to write: latents, actions, the world model (default: runs/TASK/latents).
        weights: Which weights of the world model.
        batch: Frames in a call of the encoder; several GPUs share them.
        frameskip: Environment steps in a model step, which public files do not store.
        task: The task of a file that does not name it (default: what the file says).
        device: cpu, cuda or mps; auto takes every CUDA GPU there is.
        progress: Show a progress bar.

    Returns:
        The latents, memory-mapped.
    """
    from goalward.data.summary import task_name
    from goalward.world.latents import EmbedConfig
    from goalward.world.latents import embed as run_embed

    with _opened(episodes) as opened:
        rows, name = opened.num_rows, task_name(opened, task)
    folder = _out(out, name or _name(episodes), "latents")
    with _bar(f"embed {name or ''}", rows, "frames", progress) as update:
        return run_embed(
            _path(world),
            _path(episodes),
            folder,
            EmbedConfig(batch=batch),
            weights=weights,
            task=task,
            frameskip=frameskip,
            devices=choose_devices(device),
            on_progress=update,
        )


@verb
def train(
    latents: LatentsLike,
    out: StrPath | None = None,
    *,
    kind: ModelKind = "gc-idm",
    preset: PresetName = "cpu",
    train_steps: Positive | None = None,
    overrides: Overrides = (),
    config: Annotated[ControllerConfig | None, Flag(hidden=True)] = None,
    seed: NonNegative = defaults.SEED,
    device: str = "auto",
    threads: Positive | None = None,
    log: LogTarget | None = None,
    save_seconds: NonNegativeFloat = defaults.SAVE_SECONDS,
    progress: Progress = False,
) -> TrainedIDM:
    """Train a controller on latents; run again to resume.

    Args:
        latents: Folder that `goalward embed` wrote.
        out: Folder to write; its best.safetensors is all that acting needs
            (default: runs/TASK/controller).
        kind: gc-idm is a controller; pairwise predicts the action between two consecutive frames.
        preset: Size and length of the training.
        train_steps: Optimiser steps (default: the preset's).
        overrides: A value in place of the preset's, such as schedule.lr=1e-4.
        config: The whole configuration, in place of `preset`, `train_steps`, `overrides`, `seed`.
        seed: Seed of every random draw; the same seed gives the same weights.
        device: cpu, cuda or mps; auto takes a CUDA GPU where there is one.
        threads: CPU threads; the same number repeats a training exactly (default: torch's choice).
        log: Where to show the curves while they grow (default: nowhere but in the folder).
        save_seconds: Time between two checkpoints.
        progress: Show a progress bar.

    Returns:
        The model, with the weights of the lowest validation error.
    """
    from goalward.control.checkpoint import load_trained_idm
    from goalward.control.train import train_controller
    from goalward.presets import controller_config
    from goalward.world.latents import open_latents

    use_threads(threads)
    chosen, found = choose_device(device), open_latents(_path(latents))
    usual = config or controller_config(preset, found, kind=kind, seed=seed)
    final = config or _changed(usual, train_steps, overrides)
    name = found.metadata.task
    stage = "controller" if kind == "gc-idm" else kind
    folder = _out(out, name or found.folder.parent.name, stage)
    with _bar(f"train {kind} {name or ''}", final.schedule.steps, "examples", progress) as update:
        train_controller(
            final,
            found.folder,
            folder,
            device=chosen,
            save_seconds=save_seconds,
            log=log,
            on_progress=update,
        )
    return load_trained_idm(folder, device=chosen)


@verb
def validate(
    controller: ModelLike,
    latents: LatentsLike,
    *,
    weights: Weights = "best",
    split: Literal["test", "validation"] = "test",
    noise: Sequence[NonNegativeFloat] = (),
    seed: NonNegative = defaults.SEED,
    device: str = "auto",
) -> ControllerMetrics:
    """Measure a controller's actions and its time-to-go on episodes it was not trained on.

    Args:
        controller: A controller file, or the folder of a training.
        latents: Folder that `goalward embed` wrote, with the controller's own world model.
        weights: Which weights of the folder.
        split: Episodes for results (test), or those that chose the best weights (validation).
        noise: Noise on both latents, in standard deviations: errors under each of these.
        seed: Seed of the examples and of the noise.
        device: cpu, cuda or mps; auto takes a CUDA GPU where there is one.

    Returns:
        The errors by distance to the goal.
    """
    from goalward.control.metrics import validate_controller

    return validate_controller(
        _path(controller),
        _path(latents),
        weights=weights,
        split=split,
        sigmas=noise,
        seed=seed,
        device=choose_device(device),
    )


@verb
def export(
    controller: ModelLike,
    out: Annotated[StrPath, Flag(metavar="FILE.onnx")],
    *,
    weights: Weights = "best",
) -> Path:
    """Write a controller as one ONNX file: uint8 frames in, actions out. It acts without torch.

    Args:
        controller: A controller file, or the folder of a training.
        out: File to write, such as controller.onnx.
        weights: Which weights of the folder.

    Returns:
        The file.
    """
    from goalward.control.checkpoint import load_trained_idm
    from goalward.control.export import export_onnx

    export_onnx(load_trained_idm(_path(controller), weights=weights), Path(out))
    return Path(out)


def load(what: StrPath, *, task: str | Task | None = None, device: str = "auto") -> Controller:
    """Load a controller: anything that has `reset(goals, budget)` and `act(frames)`.

    Args:
        what: An exported file (.onnx, which needs no torch), a controller file (.safetensors), the
            folder of a training, `bundled:TASK`, or a registered name with settings, such as
            `random` (`task` says for which task).
        task: The task to act in, for what is not trained on one.
        device: cpu, cuda or mps; auto takes a CUDA GPU where there is one. ONNX runs on the CPU.

    Returns:
        The controller.
    """
    if as_path(what, "what").suffix == ".onnx":
        from goalward.runtime.onnx import OnnxController

        return OnnxController(Path(what))
    from goalward.evaluation.specs import load_controller

    return load_controller(what, task=task, device=device)


@verb
def evaluate(
    task: TaskLike,
    controllers: Annotated[Sequence[Any], Flag(metavar="CONTROLLER")],
    out: StrPath | None = None,
    *,
    episodes: StrPath | Episodes | None = None,
    pairs: Positive = defaults.PAIRS,
    protocol: str | None = None,
    budget: Positive = defaults.BUDGET,
    goal_offset: Positive = defaults.GOAL_OFFSET,
    split: SplitPart = "test",
    pair_seed: NonNegative = defaults.SEED,
    seeds: Sequence[NonNegative] = (defaults.SEED,),
    num_envs: Positive = defaults.NUM_ENVS,
    workers: Positive | None = None,
    device: str = "auto",
    threads: Positive | None = None,
    videos: Sequence[NonNegative] = (),
    progress: Progress = False,
) -> Results:
    """Compare controllers on the same start and goal pairs; run again to resume, or to add some.

    Args:
        task: A task: see `goalward list-tasks`.
        controllers: A controller's path (.safetensors, .onnx, folder), `bundled`, or a name:
            gc-idm, cem, icem, mppi, gradient, hybrid, waypoints, random, zero. Settings follow a
            colon: cem:solver.num_samples=100. Names use the models of the first path.
        out: Folder to keep the pairs and every episode's result in (default: runs/TASK/evaluation).
        episodes: Episode file to draw the pairs from (default: the pairs bundled with goalward).
        pairs: Number of start and goal pairs.
        protocol: When an episode counts as a success: see `goalward list-tasks` (default: the
            task's first).
        budget: Steps that an episode may take.
        goal_offset: Recorded steps from start to goal.
        split: Episodes that the pairs come from; `all` includes training episodes, as in the paper.
        pair_seed: Seed of the choice of pairs.
        seeds: Seeds of the controllers that draw at random; others run once.
        num_envs: Environments that run side by side.
        workers: Simulator processes (default: one for every CPU). They do not change the result.
        device: cpu, cuda or mps; auto takes a CUDA GPU where there is one.
        threads: CPU threads of the controllers (default: torch's choice).
        videos: Numbers of pairs to draw: a filmstrip and a GIF of each, controllers side by side.
        progress: Show a progress bar.

    Returns:
        One row an episode, with `.summary()`, `.compare(a, b)` and `.latency`.
    """
    from goalward.evaluation.pairs import PairsConfig
    from goalward.evaluation.run import evaluate as run_evaluation
    from goalward.evaluation.run import prepare_pairs
    from goalward.evaluation.specs import resolve_controllers
    from goalward.evaluation.video import require_pairs, save_comparison
    from goalward.tasks import get_task

    use_threads(threads)
    found = get_task(task)
    config = PairsConfig(
        task=found.name,
        protocol=protocol or found.default_protocol,
        count=pairs,
        goal_offset=goal_offset,
        seed=pair_seed,
        split=split,
    )
    require_pairs(videos, pairs)
    specs, observer = resolve_controllers(
        found,
        controllers,
        seeds=seeds,
        device=device,
        split=None if split == "all" else config.split_config,
    )
    folder = _out(out, found.name, "evaluation")
    drawn = prepare_pairs(folder, config, None if episodes is None else _path(episodes))
    with _bar(f"evaluate {found.name}", len(specs) * pairs, "episodes", progress) as update:
        results = run_evaluation(
            folder,
            drawn,
            specs,
            observer=observer,
            budget=budget,
            num_envs=num_envs,
            workers=workers or usable_cpus(),
            on_progress=update,
        )
    save_comparison(folder, drawn, specs, numbers=videos, budget=budget)
    return results


@verb
def baselines(
    episodes: EpisodesLike,
    out: StrPath | None = None,
    *,
    task: TaskLike | None = None,
    pairs: Positive = defaults.PAIRS,
    protocol: str | None = None,
    budget: Positive = defaults.BUDGET,
    goal_offset: Positive = defaults.GOAL_OFFSET,
    split: SplitPart = "test",
    pair_seed: NonNegative = defaults.SEED,
    workers: Positive | None = None,
    progress: Progress = False,
) -> Results:
    """Measure what policies that learn nothing achieve, and what replayed demonstrations achieve.

    Args:
        episodes: An episode file (.h5, .lance), or a folder with one.
        out: Folder to keep the results in (default: runs/TASK/baselines).
        task: The task of a file that does not name it (default: what the file says).
        pairs: Number of start and goal pairs.
        protocol: When an episode counts as a success (default: the task's first).
        budget: Steps that an episode may take.
        goal_offset: Recorded steps from start to goal.
        split: Episodes that the pairs come from.
        pair_seed: Seed of the choice of pairs.
        workers: Simulator processes (default: one for every CPU). They do not change the result.
        progress: Show a progress bar.

    Returns:
        One row an episode, with `.summary()`.
    """
    from goalward.evaluation.baselines import baseline_names
    from goalward.tasks import get_task

    known = get_task(_task_of(episodes, task))
    return evaluate(
        known,
        baseline_names(known),
        _out(out, known.name, "baselines"),
        episodes=_path(episodes),
        pairs=pairs,
        protocol=protocol,
        budget=budget,
        goal_offset=goal_offset,
        split=split,
        pair_seed=pair_seed,
        workers=workers,
        progress=progress,
    )


@verb
def run(
    task: TaskLike,
    out: StrPath | None = None,
    *,
    preset: PresetName = "cpu",
    controllers: Sequence[str] = ("gc-idm", "cem", "random"),
    pairs: Positive = defaults.QUICK_PAIRS,
    seed: NonNegative = defaults.SEED,
    workers: Positive | None = None,
    device: str = "auto",
    threads: Positive | None = None,
    progress: Progress = False,
) -> Results:
    """From nothing to a comparison: collect, train-world, embed, train, evaluate; resumable.

    Args:
        task: A task: see `goalward list-tasks`. Your own is package.module:NAME or file.py:NAME.
        out: Folder for the stages: episodes, world, latents, controller, evaluation
            (default: runs/TASK).
        preset: Size and length of everything.
        controllers: Controllers to compare: see `goalward evaluate`.
        pairs: Number of held-out start and goal pairs.
        seed: Seed of every stage.
        workers: Simulator processes (default: one for every CPU). They do not change the result.
        device: cpu, cuda or mps; auto takes a CUDA GPU where there is one.
        threads: CPU threads (default: torch's choice).
        progress: Show progress bars.

    Returns:
        The comparison: one row an episode, with `.summary()`, `.compare(a, b)` and `.latency`.
    """
    from goalward.pipeline import Pipeline, run_pipeline
    from goalward.tasks import get_task

    choose_device(device)  # an unknown one is refused before anything is made
    use_threads(threads)
    found = get_task(task)
    pipeline = Pipeline(
        task=found,
        preset=preset,
        folder=Path("runs", found.name) if out is None else Path(out),
        seed=seed,
        device=device,
        workers=workers or usable_cpus(),
        bar=partial(_bar, show=progress),
    )
    return run_pipeline(pipeline, controllers, pairs=pairs)


@verb
def list_tasks() -> list[Task]:
    """List the tasks: what they are, who demonstrates them, when an episode is a success.

    Returns:
        Every registered task.
    """
    from goalward.tasks import TASKS, get_task

    return [get_task(name) for name in TASKS.names()]


@verb
def list_experiments() -> list[Experiment | Analysis]:
    """List the experiments: the paper's tables and figures, and ours.

    Returns:
        Every experiment that `goalward reproduce` can measure.
    """
    from goalward.experiments.catalog import find_experiments

    return [*find_experiments(())]


@verb
def reproduce(
    experiments: Annotated[Sequence[str], Flag(metavar="ID")],
    out: StrPath = Path("runs", "experiments", "tables"),
    *,
    preset: ExperimentPreset = "cpu",
    tasks: Sequence[str] = (),
    pairs: Positive | None = None,
    run_dir: StrPath = Path("runs", "experiments"),
    workers: Positive | None = None,
    jobs: Positive | None = None,
    device: str = "auto",
    threads: Positive | None = None,
    progress: Progress = False,
) -> list[Table]:
    """Measure the paper's tables and figures, beside the paper's numbers; run again to resume.

    Args:
        experiments: Which ones: see `goalward list-experiments`; `all` for every one.
        out: Folder for tables and figures, one folder a preset.
        preset: Size and length of everything that is trained; `bundled`: the bundled controllers.
        tasks: Only these tasks (default: every task of the experiment).
        pairs: Start and goal pairs of every run (default: the preset's).
        run_dir: Folder where everything is trained and run; what is there is used.
        workers: Simulator processes of a run that runs alone (default: one for every CPU).
        jobs: Trainings and runs at a time (default: one for every CPU; 1 with a GPU).
        device: cpu, cuda or mps; auto takes a CUDA GPU where there is one.
        threads: CPU threads (default: torch's choice).
        progress: Show progress bars.

    Returns:
        The tables, as they are stored.
    """
    from goalward.experiments.reproduce import reproduce as measure

    return measure(
        () if [*experiments] == ["all"] else experiments,
        preset=preset,
        tasks=tasks,
        pairs=pairs,
        runs=Path(run_dir),
        out=Path(out),
        workers=workers,
        jobs=jobs,
        device=device,
        threads=threads,
        bar=partial(_bar, show=progress),
        on_state=_show_state if progress else None,
    )


@verb
def report(
    tables: Annotated[StrPath, Flag(metavar="TABLES")], out: StrPath = Path("runs", "report")
) -> Path:
    """Write the tables of `reproduce` as one HTML page, Markdown and CSV.

    Args:
        tables: Folder with tables, such as runs/experiments/tables/cpu.
        out: Folder for report.html, report.md and report.csv.

    Returns:
        The HTML page.
    """
    from goalward.experiments.report import report as write

    return write(Path(tables), Path(out))


@verb
def verify(path: Annotated[StrPath, Flag(metavar="PATH")]) -> list[FileCheck]:
    """Check the content of files against their stored checksums.

    Args:
        path: The folder of a stage, a folder with several of them, or one file.

    Returns:
        Every file with what is wrong with it, if anything is.
    """
    from goalward.core.verify import verify as check

    return check(Path(path))


@verb
def doctor(out: StrPath = Path("runs")) -> list[Finding]:
    """Examine this machine: what is there, what is missing, and the command that fixes it.

    Args:
        out: Folder whose disk is examined.

    Returns:
        The findings.
    """
    from goalward.diagnostics import examine

    return [*examine(Path(out))]


def _out(out: StrPath | None, task: str, stage: str) -> Path:
    """Where a stage goes: the folder that was asked for, or the usual one."""
    return Path("runs", task, stage) if out is None else Path(out)


def _path(source: Any) -> Path:
    """The path that a source is, or that an object was read from."""
    if isinstance(source, str | PathLike):
        return Path(source)
    found = getattr(source, "folder", None) or getattr(source, "path", None)
    if found is None:
        raise ValueError(f"this {type(source).__name__} was not read from a file; give its path")
    return Path(found)


def _name(episodes: Any) -> str:
    """What recordings of no known task are called in the usual folder."""
    path = _path(episodes)
    return path.parent.name if path.name == "episodes.h5" else path.stem


def _task_of(episodes: Any, given: str | Task | None) -> str | Task:
    """The task of an episode file, which it names or the caller gives."""
    from goalward.data.summary import task_name
    from goalward.tasks import get_task

    with _opened(episodes) as opened:
        name = task_name(opened, None if given is None else get_task(given).name)
    if name is None:
        raise ValueError(f"{_path(episodes)}: does not name its task; give it with --task")
    return name


def _opened(episodes: Any) -> AbstractContextManager[Episodes]:
    from goalward.data.episodes import open_episodes

    return open_episodes(_path(episodes))


def _changed(config: T, train_steps: int | None, overrides: Sequence[str]) -> T:
    """A preset's configuration with what was asked for in its place."""
    steps = () if train_steps is None else (f"schedule.steps={train_steps}",)
    return override(config, (*steps, *overrides))


def _show_state(state: State, job: Job) -> None:
    """One line about the work of an experiment, on standard error."""
    seconds = state.seconds_left
    left = "" if seconds is None else f", about {console.duration(seconds)} left"
    numbers = f"{state.done} done, {state.running} running, {state.waiting} waiting{left}"
    console.show_status(f"[{numbers}] {'finished: ' if state.finished else ''}{job}")


def _bar(title: str, total: int, unit: str, show: bool) -> AbstractContextManager[Update]:
    return console.progress(title.strip(), total, unit=unit, quiet=not show)

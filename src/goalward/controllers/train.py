"""Training an inverse dynamics model on latents: resumable to the bit.

The examples, the noise and the dropout of a step depend on nothing but the seed and the step's
number, as in the world model's training. The time-to-go head learns from the same examples beside
the network; neither changes the other's weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from goalward.config import read_json, write_json
from goalward.controllers.backbone import PairBackbone
from goalward.controllers.goals import Examples, GoalSampler
from goalward.controllers.judge import (
    ActionError,
    TimeToGoQuality,
    action_errors,
    balanced_error,
    time_to_go_quality,
)
from goalward.controllers.time_to_go import TimeToGo
from goalward.controllers.train_config import ControllerConfig
from goalward.data.episodes import Index
from goalward.embed import Latents
from goalward.seeding import generator
from goalward.world.checkpoint import read_tensors, write_tensors
from goalward.world.tensors import fill
from goalward.world.train_state import make_optimiser, restore_state, save_state

HISTORY = "history.json"
STATE, BEST = ".state.safetensors", ".best.{}.{}.safetensors"  # hidden: dropped at the end
LOG_EVERY = 50  # steps; losses are shown, noted and checked so often
NETWORK, TIME_TO_GO = "network", "time_to_go"
# The figure of the history by which each part's best weights are chosen: the lower, the better.
CHOSEN_BY = {NETWORK: "validation/balanced", TIME_TO_GO: f"validation/{TIME_TO_GO}"}

Row = dict[str, float]
OnProgress = Callable[[int, int, str], None]  # (steps done, examples of this sitting, losses)


class Training:
    """One training under way.

    Args:
        config: What the result depends on.
        latents: What to train on.
        network: With initial weights, which are trained in place.
        folder: Where the history and the state to resume from are kept.
        device: Where to compute; the latents are put there whole.
        time_to_go: The head that learns from the same examples.

    Attributes:
        modules: What is trained: the network, and the time-to-go head if there is one.
        history: Rows of losses and validation errors, by step.
        done: Steps done.
    """

    def __init__(
        self,
        config: ControllerConfig,
        latents: Latents,
        network: nn.Module,
        folder: Path,
        *,
        device: torch.device,
        time_to_go: TimeToGo | None = None,
    ) -> None:
        self.config, self.latents, self.folder, self.device = config, latents, folder, device
        self._z_ND = torch.from_numpy(latents.z).to(device)
        self._actions_NA = torch.from_numpy(latents.actions).to(device)
        self.std_D = torch.tensor(latents.card.std, device=device)
        chosen = training_episodes(latents, config)
        self.num_episodes, self.sampler = len(chosen), self.goal_sampler(chosen)
        self.validation = validation_examples(self.goal_sampler(latents.split.validation), config)
        parts = {NETWORK: network, TIME_TO_GO: time_to_go}
        self.modules = nn.ModuleDict({k: part for k, part in parts.items() if part is not None})
        self.modules.to(device)
        self._standardise()
        schedule = config.schedule
        self.optimiser = make_optimiser(
            self.modules, lr=schedule.lr, weight_decay=schedule.weight_decay
        )
        self.done = restore_state(folder / STATE, self.modules, self.optimiser, is_first=True)
        self.history = self._read_history()

    def goal_sampler(self, episodes: Index) -> GoalSampler:
        """Examples of the chosen episodes."""
        network = self.config.network
        return GoalSampler(
            self._z_ND,
            self._actions_NA,
            self.latents.lengths,
            episodes,
            min_horizon=network.min_horizon,
            max_horizon=network.max_horizon,
            block=network.block,
        )

    def run(self, *, save_seconds: float, on_progress: OnProgress | None = None) -> None:
        """Train to the end, saving the state every `save_seconds`.

        Raises:
            ValueError: the loss is no longer finite.
        """
        steps, first, saved = self.config.schedule.steps, self.done, time.monotonic()
        times = min(self.config.schedule.validations, steps)
        marks = {max(1, round(steps * k / times)) for k in range(1, times + 1)}
        earlier = self.history[-1]["seconds"] if self.history else 0.0
        started, judged = time.perf_counter(), 0.0
        losses: list[Tensor] = []
        for step in range(first, steps):
            losses.append(self._step(step))
            self.done = step + 1
            seconds = earlier + time.perf_counter() - started - judged
            if self.done % LOG_EVERY == 0 or self.done == steps:
                row = self._note(torch.stack(losses).mean(dim=0), seconds)
                losses.clear()
                if on_progress is not None:
                    examples = (self.done - first) * self.config.schedule.batch
                    on_progress(self.done, examples, f"error {row[NETWORK]:.3g}")
            if self.done in marks:
                before = time.perf_counter()
                self._validate(seconds)
                judged += time.perf_counter() - before
            due = time.monotonic() - saved >= save_seconds and self.done % LOG_EVERY == 0
            if due or self.done == steps:
                write_json(self.folder / HISTORY, self.history)
                save_state(self.folder / STATE, self.modules, self.optimiser, self.done)
                self._drop_worse()
                saved = time.monotonic()

    def best_row(self, part: str) -> Row | None:
        """The validation in which a part did best; None before the first."""
        name = CHOSEN_BY[part]
        judged = [row for row in self.history if name in row]
        return min(judged, key=lambda row: row[name]) if judged else None

    def _best_path(self, part: str, step: int) -> Path:
        """By step: what a killed process wrote beyond its saved state is never mistaken."""
        return self.folder / BEST.format(part, step)

    def errors(self) -> tuple[ActionError, ...]:
        """Validation errors of the network as it is."""
        return action_errors(self.modules[NETWORK], self.validation)

    def time_to_go(self) -> TimeToGoQuality | None:
        """Validation errors of the time-to-go head as it is."""
        if TIME_TO_GO not in self.modules:
            return None
        return time_to_go_quality(self.modules[TIME_TO_GO], self.validation)  # type: ignore[arg-type]

    def restore_best(self) -> None:
        """Fill every part with its best weights."""
        for part, module in self.modules.items():
            row = self.best_row(part)
            assert row is not None
            path = self._best_path(part, int(row["step"]))
            fill(module.state_dict(), read_tensors(path)[0], path)

    def _drop_worse(self) -> None:
        """Delete weights that are no longer the best, once a state that says so is saved."""
        for part in self.modules:
            row = self.best_row(part)
            kept = None if row is None else self._best_path(part, int(row["step"]))
            for path in self.folder.glob(BEST.format(part, "*")):
                if path != kept:
                    path.unlink()

    def _standardise(self) -> None:
        if self.config.standardise:
            for module in self.modules.modules():
                if isinstance(module, PairBackbone):
                    module.standardise.fit(self.latents.card.mean, self.latents.card.std)

    def _step(self, step: int) -> Tensor:
        """One step of the optimiser; returns the losses, in the order of the modules."""
        config, schedule = self.config, self.config.schedule
        rng = torch.Generator(self.device).manual_seed(_draw("examples", config.seed, step))
        examples = self._noisy(self.sampler.draw(schedule.batch, rng), rng)
        for group in self.optimiser.param_groups:
            group["lr"] = schedule.lr_at(step)
        self.modules.train()
        self.optimiser.zero_grad()
        losses = []
        for part, module in self.modules.items():
            torch.manual_seed(_draw(f"dropout-{part}", config.seed, step))
            losses.append(_loss(part, module, examples))
            losses[-1].backward()
            nn.utils.clip_grad_norm_(module.parameters(), schedule.clip)
        self.optimiser.step()
        return torch.stack(losses).detach()

    def _noisy(self, examples: Examples, rng: torch.Generator) -> Examples:
        noise = self.config.noise
        if not noise.sigma:
            return examples
        sigma = torch.tensor(noise.sigma, device=self.device)
        if noise.schedule == "uniform":
            sigma = sigma * torch.rand((), generator=rng, device=self.device)
        return examples.noisy(sigma * self.std_D, rng)

    def _note(self, losses: Tensor, seconds: float) -> Row:
        row: Row = {"step": self.done, "seconds": seconds}
        row["lr"] = self.config.schedule.lr_at(self.done - 1)
        row.update(zip(self.modules, losses.tolist(), strict=True))
        self._require_finite(row)
        self.history.append(row)
        return row

    def _require_finite(self, row: Row) -> None:
        if not np.isfinite(list(row.values())).all():
            raise ValueError(
                f"the loss is no longer finite at step {self.done} of "
                f"{self.config.schedule.steps}; start anew with a lower schedule.lr and another "
                f"--out, or delete {self.folder}"
            )

    def _validate(self, seconds: float) -> None:
        """Judge on validation episodes, and keep each part that is the best yet."""
        errors = self.errors()
        row: Row = {"step": self.done, "seconds": seconds, "validation/r2": errors[0].r2}
        row[f"validation/{NETWORK}"] = errors[0].mse
        row[CHOSEN_BY[NETWORK]] = balanced_error(errors)
        quality = self.time_to_go()
        if quality is not None:
            row[CHOSEN_BY[TIME_TO_GO]] = quality.loss
            row["validation/median_error"] = quality.median_error
        self._require_finite(row)
        for part, module in self.modules.items():
            best = self.best_row(part)
            if best is None or row[CHOSEN_BY[part]] < best[CHOSEN_BY[part]]:
                write_tensors(self._best_path(part, self.done), module.state_dict())
        self.history.append(row)

    def _read_history(self) -> list[Row]:
        """The rows up to the restored step: a later one may have been noted before a kill."""
        path = self.folder / HISTORY
        rows = read_json(path) if path.exists() and self.done else []
        return [row for row in rows if row["step"] <= self.done]


def training_episodes(latents: Latents, config: ControllerConfig) -> Index:
    """The training episodes, or the share of them that the config asks for."""
    train = latents.split.train
    number = max(1, round(config.data_fraction * len(train)))
    # The draw does not depend on the training's seed: a share holds the smaller shares.
    order = generator("data-fraction", 0).permutation(len(train))
    return np.sort(train[order[:number]])


def validation_examples(sampler: GoalSampler, config: ControllerConfig) -> Examples:
    """The examples that a training is judged by, the same whatever its seed."""
    device = sampler.device
    rng = torch.Generator(device).manual_seed(_draw("validation", 0, config.network.max_horizon))
    return sampler.draw(config.schedule.validation_examples, rng)


def _loss(part: str, module: nn.Module, examples: Examples) -> Tensor:
    if part == TIME_TO_GO:
        logits_BH = module(examples.z, examples.z_goal)
        return F.cross_entropy(logits_BH, examples.steps - 1)
    predicted_BA = module(examples.z, examples.z_goal, examples.steps)
    # Eq. (7), as a mean over an action's numbers: that is what the paper's errors are told in.
    return F.mse_loss(predicted_BA, examples.actions)


def _draw(purpose: str, seed: int, *index: int) -> int:
    """A seed for torch's generators."""
    return int(generator(f"controller-{purpose}", seed, *index).integers(2**63))

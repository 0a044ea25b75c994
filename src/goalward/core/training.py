"""The one training loop: deterministic, resumable to the bit, best weights by validation.

Every draw is a function of the seed and the step. So a training that is killed at any moment and
resumed ends in the weights of an uninterrupted one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from typing import Generic, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from goalward.core.config import NonNegativeFloat, Positive, PositiveFloat, config
from goalward.core.curves import Curves, Row, SendRow
from goalward.core.distributed import ALONE, Replica
from goalward.core.tensors import read_tensors, write_tensors

LOG_EVERY = 20  # steps between two rows of losses; checkpoints are written at such steps
CHECKPOINT = ".checkpoint.safetensors"  # hidden: no payload, deleted at the end
MOMENTS = ("step", "exp_avg", "exp_avg_sq")

Batch = TypeVar("Batch")
Tensors = dict[str, Tensor]
OnProgress = Callable[[int, int, str], None]  # (steps done, examples of this session, losses)


@config
class Schedule:
    """Length and pace of an optimisation: AdamW, linear warm-up, then half a cosine."""

    steps: Positive  # optimiser steps
    batch: Positive  # examples a step, over all replicas
    lr: PositiveFloat  # the highest learning rate
    weight_decay: NonNegativeFloat
    clip: PositiveFloat = 1.0  # largest norm of a step's gradient, for each part

    def lr_at(self, step: int) -> float:
        """The learning rate of step 0, 1, ..."""
        return cosine_lr(step, self.steps, self.lr)


def cosine_lr(step: int, steps: int, lr: float, *, warmup: int = 0, final: float = 0.0) -> float:
    """Linear warm-up over some steps, then half a cosine down to a share of the rate."""
    if step < warmup:
        return lr * (step + 1) / warmup
    share = 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))
    return lr * (final + (1 - final) * share)


@dataclass(frozen=True, kw_only=True)
class Part(Generic[Batch]):
    """A network that is trained by its own loss, and of which the best weights are kept."""

    module: nn.Module
    losses: Callable[[Batch, int], Mapping[str, Tensor]]  # at a step; the first is minimised
    best_by: str  # the validation metric that is lowest for the best weights


class Trainer(Generic[Batch]):
    """Trains parts side by side on the same batches.

    Args:
        parts: By name. Gradients are clipped for each by itself.
        schedule: Length and pace.
        folder: Where the checkpoint is, if there is one, and where curves are written.
        replica: This process among those that train together.

    Attributes:
        done: Steps done.
        history: Rows of losses and of validation metrics, by step.
    """

    def __init__(
        self,
        parts: Mapping[str, Part[Batch]],
        schedule: Schedule,
        folder: Path,
        *,
        replica: Replica = ALONE,
    ) -> None:
        self.parts, self.schedule, self.folder, self.replica = parts, schedule, folder, replica
        self.modules = nn.ModuleDict({name: part.module for name, part in parts.items()})
        self.done = 0
        self.history: list[Row] = []
        self._best: Tensors = {}  # weights of all parts, on the CPU
        self._optimiser = _adamw(self.modules, schedule)
        self._restore()

    def fit(
        self,
        batches: Callable[[range], Iterable[Batch]],
        validate: Callable[[], Row],
        *,
        validate_at: Collection[int],
        save_seconds: float,
        note: Callable[[Row], str],
        on_progress: OnProgress | None = None,
        frames: int = 1,
        send: SendRow | None = None,
    ) -> None:
        """Train to the end.

        Args:
            batches: Gives the batches of a range of steps, in order.
            validate: Gives the validation metrics of the current weights.
            validate_at: Numbers of steps after which to validate.
            save_seconds: Between two checkpoints.
            note: Sums a row of losses up in a few words; it may raise.
            on_progress: Receives the steps done, the examples of this session, and the note.
            frames: That an example counts as.
            send: Where curves go beside the folder.

        Refuses to continue when a loss, a validation metric or a weight is not finite.
        """
        curves = Curves(self.folder, self.history, send) if self.replica.is_first else None
        last = self.history[-1] if self.history else {"seconds": 0.0, "data_seconds": 0.0}
        started, waited = perf_counter() - last["seconds"], last["data_seconds"]
        losses, saved = list[Tensors](), perf_counter()
        first, steps = self.done, range(self.done, self.schedule.steps)
        coming = iter(batches(steps))
        for step in steps:
            asked = perf_counter()
            batch = next(coming)
            waited += perf_counter() - asked
            losses.append(self.step(batch, step))
            self.done = step + 1
            is_last = self.done == self.schedule.steps
            may_save = is_last or self.done % LOG_EVERY == 0
            means = _means(losses) if may_save else {}
            clock = {"step": self.done, "seconds": perf_counter() - started, "data_seconds": waited}
            if may_save:
                losses.clear()
                row = self._finite({**clock, "lr": self.schedule.lr_at(step), **means})
                text = note(row)
                if on_progress is not None:
                    on_progress(self.done, (self.done - first) * self.schedule.batch * frames, text)
                if curves is not None:
                    curves.add(row)
            if self.done in validate_at and curves is not None:
                paused = perf_counter()
                row = self._finite({**clock, **validate()})
                self._keep_best(row)
                curves.add(row)
                started += perf_counter() - paused
            if is_last or (may_save and perf_counter() - saved >= save_seconds):
                self._save()
                saved = perf_counter()

    def best_row(self, part: str) -> Row | None:
        """The validation with the best metric of a part; None before the first."""
        name = self.parts[part].best_by
        return min((row for row in self.history if name in row), key=itemgetter(name), default=None)

    def restore_best(self) -> None:
        """Give every part its best weights."""
        self.modules.load_state_dict(self._best)

    def step(self, batch: Batch, number: int) -> Tensors:
        """One step of the optimiser; returns the losses."""
        for group in self._optimiser.param_groups:
            group["lr"] = self.schedule.lr_at(number)
        self.modules.train()
        self._optimiser.zero_grad()
        found: Tensors = {}
        for part in self.parts.values():
            losses = part.losses(batch, number)
            next(iter(losses.values())).backward()
            nn.utils.clip_grad_norm_(part.module.parameters(), self.schedule.clip)
            found |= {name: loss.detach().float() for name, loss in losses.items()}
        self._optimiser.step()
        return found

    def _keep_best(self, row: Row) -> None:
        """Copy the weights of the parts whose validation metric is the best so far."""
        for name, part in self.parts.items():
            best = self.best_row(name)
            if best is None or row[part.best_by] < best[part.best_by]:
                state = part.module.state_dict(prefix=f"{name}.")
                self._best |= {key: value.cpu().clone() for key, value in state.items()}

    def _finite(self, row: Row) -> Row:
        if not all(map(math.isfinite, row.values())):
            raise self._diverged()
        return row

    def _diverged(self) -> ValueError:
        return ValueError(
            f"training diverged: a loss or a weight is no longer finite at step {self.done} of "
            f"{self.schedule.steps}; train again with a lower schedule.lr into another folder, or "
            f"delete {self.folder} first"
        )

    def _save(self) -> None:
        """Write the checkpoint; it never holds NaN or infinity."""
        tensors = self._state()
        if not all(tensor.isfinite().all() for tensor in tensors.values()):
            raise self._diverged()
        if self.replica.is_first:
            best = {f"best.{name}": tensor for name, tensor in self._best.items()}
            metadata = {"step": str(self.done), "history": json.dumps(self.history)}
            write_tensors(self.folder / CHECKPOINT, {**tensors, **best}, metadata)

    def _restore(self) -> None:
        """Resume from the checkpoint, if there is one; the first replica reads it for all."""
        tensors = self._state()
        if self.replica.is_first:
            self._read(tensors)
        if self.replica.count > 1:
            done = torch.tensor(self.done, device=self.replica.device)
            for tensor in (done, *tensors.values()):
                dist.broadcast(tensor, src=0)
            self.done = int(done)

    def _read(self, tensors: Tensors) -> None:
        path = self.folder / CHECKPOINT
        if not path.exists():
            return
        found, metadata = read_tensors(path)
        best = [name for name in found if name.startswith("best.")]
        self._best = {name.removeprefix("best."): found.pop(name) for name in best}
        if found.keys() != tensors.keys():
            raise ValueError(
                f"{self.folder}: holds an unfinished training of another version; delete the "
                "folder to train again from the start"
            )
        for name, tensor in found.items():
            tensors[name].copy_(tensor)
        self.done, self.history = int(metadata["step"]), json.loads(metadata["history"])

    def _state(self) -> Tensors:
        """Weights and moments, not copied, in a fixed order."""
        tensors = {name: tensor.detach() for name, tensor in self.modules.state_dict().items()}
        for name, parameter in self.modules.named_parameters():
            for moment in MOMENTS:
                tensors[f"{name}.{moment}"] = self._optimiser.state[parameter][moment]
        return tensors


def _means(losses: Sequence[Tensors]) -> Row:
    return {name: torch.stack([f[name] for f in losses]).mean().item() for name in losses[0]}


def _adamw(module: nn.Module, schedule: Schedule) -> torch.optim.AdamW:
    """AdamW whose moments exist from the start, so that a checkpoint can fill them."""
    parameters = list(module.parameters())
    weight_decay = schedule.weight_decay
    optimiser = torch.optim.AdamW(parameters, lr=schedule.lr, weight_decay=weight_decay, fused=True)
    for parameter in parameters:
        optimiser.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return optimiser

"""Training speed of GC-IDM: goalward and an ordinary Dataset with a DataLoader.

Both train the same network, at the paper's size, on the same latents with the same loss, clipping
and batch. The ordinary side draws each example in `Dataset.__getitem__`, collates, and takes AdamW
with torch's own settings; goalward's side is the real `Training`.

On a CPU the network's arithmetic, which both sides share, bounds the ratio of whole steps.
"""

from __future__ import annotations

import copy
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
import tyro
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.setting import (
    Work,
    matrix_product,
    rates_in_turns,
    show_arithmetic,
    show_rates,
)
from goalward.control.metrics import NETWORK
from goalward.control.networks import GCIDM
from goalward.control.train import Training
from goalward.core.arrays import Array
from goalward.core.machine import use_threads
from goalward.data.splits import SplitConfig
from goalward.presets import controller_config
from goalward.world.latents import Latents, LatentsMetadata

WANTED = 10.0  # drawing examples, goalward over the fastest DataLoader
ROWS, LATENT, ACTION = 101, 192, 2  # rows of an episode; numbers of a latent and of an action
PREFETCH = 2  # batches of each worker, DataLoader's own choice

DRAW, STEP, PRODUCT = "draw", "step", "product"
OURS, WITHOUT_TABLE = "goalward", "goalward, a horizon for every example"

Item = tuple[Tensor, Tensor, int, Tensor]
NextBatch = Callable[[], list[Tensor]]


class OrdinaryExamples(Dataset[Item]):
    """(z_t, z_{t+h}, h, a_t) as one writes it down first, with the fastest calls."""

    def __init__(self, latents: Latents, max_horizon: int) -> None:
        self._z, self._actions = latents.z, latents.actions
        last = np.cumsum(latents.lengths) - 1
        starts = [range(last[e] - latents.lengths[e] + 1, last[e]) for e in latents.split.train]
        self._rows = [(row, min(max_horizon, rows.stop - row)) for rows in starts for row in rows]
        self._rng = random.Random(0)  # noqa: S311 - a third of the time of NumPy's

    def __len__(self) -> int:
        """Rows that examples start from."""
        return len(self._rows)

    def __getitem__(self, number: int) -> Item:
        """One example."""
        t, most = self._rows[number]
        h = self._rng.randint(1, most)
        z, z_goal, action = self._z[t], self._z[t + h], self._actions[t]
        return torch.from_numpy(z), torch.from_numpy(z_goal), h, torch.from_numpy(action)


class WithoutTable(GCIDM):
    """The same network, whose modulation is computed for every example, not for every horizon."""

    def forward(self, z_BD: Tensor, z_goal_BD: Tensor, steps_left_B: Tensor) -> Tensor:
        """Actions (B, A)."""
        assert self.modulation is not None
        h_BF = self.backbone(z_BD, z_goal_BD)
        gamma_BF, beta_BF = self.modulation.compute(steps_left_B)
        return self.head(h_BF * (1 + gamma_BF) + beta_BF)


def random_latents(episodes: int) -> Latents:
    """Latents that no encoder made."""
    rng, rows = np.random.default_rng(0), episodes * ROWS
    metadata = LatentsMetadata(
        world_id="none",
        episodes_id="none",
        task=None,
        split=SplitConfig(),
        rows=rows,
        mean=(0.0,) * LATENT,
        std=(1.0,) * LATENT,
        action_low=(-1.0,) * ACTION,
        action_high=(1.0,) * ACTION,
    )
    return Latents(
        folder=Path("random"),
        id="none",
        metadata=metadata,
        z=rng.standard_normal((rows, LATENT), dtype=np.float32),
        actions=rng.uniform(-1, 1, (rows, ACTION)).astype(np.float32),
        lengths=np.full(episodes, ROWS, dtype=np.int64),
    )


def make_training(latents: Latents, network: type[GCIDM], folder: Path) -> Training:
    """The real training, with the paper's configuration."""
    config = controller_config("paper", latents)
    return Training(config, latents, network(config.network), folder)  # type: ignore[arg-type]


def our_draws(training: Training) -> Work:
    """Draws the batch of the next step."""
    steps = count()
    return lambda: training.draw(next(steps))


def our_steps(training: Training) -> Work:
    """Trains the next step."""
    steps = count()

    def step() -> None:
        number = next(steps)
        training.trainer.step(training.draw(number), number)

    return step


def ordinary_draws(dataset: OrdinaryExamples, batch: int, workers: int) -> NextBatch:
    """The next batch of a DataLoader, epoch after epoch."""
    loader = DataLoader(
        dataset,
        batch_size=batch,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    batches: Iterator[list[Tensor]] = (items for _ in count() for items in loader)
    return lambda: next(batches)


def ordinary_steps(next_batch: NextBatch, training: Training) -> Work:
    """Trains the next step of a copy of the network, with batches of a DataLoader."""
    network = copy.deepcopy(training.trainer.modules[NETWORK]).train()
    schedule = training.config.schedule
    parameters = list(network.parameters())
    adamw = torch.optim.AdamW(parameters, lr=schedule.lr, weight_decay=schedule.weight_decay)

    def step() -> None:
        z, z_goal, steps, actions = next_batch()
        adamw.zero_grad()
        F.mse_loss(network(z, z_goal, steps), actions).backward()
        nn.utils.clip_grad_norm_(parameters, schedule.clip)
        adamw.step()

    return step


def step_operations(training: Training) -> float:
    """Floating-point operations of the matrix products of one step, forward and backward."""
    with FlopCounterMode(display=False) as counter:
        our_steps(training)()
    return float(counter.get_total_flops())


def works_of(
    trainings: dict[str, Training], latents: Latents, workers: tuple[int, ...]
) -> dict[tuple[str, str], Work]:
    """Draws and whole steps of every side."""
    ours = trainings[OURS]
    batch = ours.config.schedule.batch
    dataset = OrdinaryExamples(latents, ours.config.network.max_horizon)
    loaders = {
        f"DataLoader, {number} workers": ordinary_draws(dataset, batch, number)
        for number in workers
    }
    return {
        (DRAW, OURS): our_draws(ours),
        **{(DRAW, side): draw for side, draw in loaders.items()},
        **{(STEP, side): our_steps(training) for side, training in trainings.items()},
        **{(STEP, side): ordinary_steps(draw, ours) for side, draw in loaders.items()},
    }


def show(title: str, rates: dict[str, Array], *, wanted: float | None = None) -> bool:
    """Print the rates of all sides; whether ours reach the ratio that is wanted."""
    ours = {side: rates.pop(side) for side in (OURS, WITHOUT_TABLE) if side in rates}
    return show_rates(title, rates, ours, wanted=wanted)


def main(
    episodes: int = 540,
    repeats: int = 9,
    seconds: float = 1.0,
    workers: tuple[int, ...] = (0, 2),
    threads: int | None = None,
) -> int:
    """Measure training speed; exit code 1 if examples are drawn slower than is wanted.

    Args:
        episodes: Episodes of random latents.
        repeats: Turns of each side.
        seconds: Length of a turn.
        workers: Settings of DataLoader's num_workers; the fastest one is compared with.
        threads: CPU threads of torch (default: torch's choice).
    """
    use_threads(threads)
    latents, networks = random_latents(episodes), {OURS: GCIDM, WITHOUT_TABLE: WithoutTable}
    with tempfile.TemporaryDirectory() as folder:
        trainings = {
            side: make_training(latents, network, Path(folder))
            for side, network in networks.items()
        }
        config = trainings[OURS].config
        batch, width = config.schedule.batch, config.network.hidden_dim
        product, operations = matrix_product(batch, width, width)
        works = works_of(trainings, latents, workers) | {(PRODUCT, PRODUCT): product}
        # The first calls of a turn use up what workers prefetched while others had their turn.
        calls = rates_in_turns(works, repeats, seconds, uncounted=PREFETCH * max(workers))
        step_flops = {side: step_operations(training) for side, training in trainings.items()}
    draws, steps = (
        {side: batch * found for (kind, side), found in calls.items() if kind == what}
        for what in (DRAW, STEP)
    )
    enough = show(f"Examples drawn per second, batches of {batch}", draws, wanted=WANTED)
    show(f"Examples trained per second, batches of {batch}", steps)
    show_arithmetic(
        "training step",
        operations * float(np.median(calls[PRODUCT, PRODUCT])),
        {
            side: (flops, 1 / float(np.median(calls[STEP, side])))
            for side, flops in step_flops.items()
        },
    )
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(tyro.cli(main))

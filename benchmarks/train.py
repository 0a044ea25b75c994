"""Training speed of GC-IDM: goalward beside the ordinary Dataset and DataLoader, in one run.

Both train the same network, at the paper's size, on the same latents with the same loss, clipping
and batch. The ordinary side draws each example in `Dataset.__getitem__`, collates, and takes AdamW
with torch's own settings; goalward's side is the real `Training`. Sides take turns, so that other
load on the machine meets both; start-up and what workers have prefetched before are left out.
"""

from __future__ import annotations

import copy
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
import tyro
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.flop_counter import FlopCounterMode

from goalward.control.metrics import NETWORK
from goalward.control.networks import GCIDM
from goalward.control.train import Training
from goalward.core.arrays import Array
from goalward.core.console import show_line, show_table
from goalward.core.machine import use_threads
from goalward.data.splits import SplitConfig
from goalward.presets import controller_config
from goalward.world.latents import Latents, LatentsMetadata

WANTED = 10.0  # data path, goalward over the better DataLoader
ROWS, LATENT, ACTION = 101, 192, 2  # rows of an episode; numbers of a latent and of an action
PREFETCH = 2  # batches a worker, DataLoader's own choice
CPU = torch.device("cpu")

DATA, STEP, PRODUCT = "data path", "whole step", "product"
OURS, ONE_BY_ONE = "goalward", "goalward, no table of horizons"

Item = tuple[Tensor, Tensor, int, Tensor]
Work = Callable[[], object]  # makes one batch, one training step or one product
Setup = Callable[[], AbstractContextManager[Work]]
Rates = dict[tuple[str, str], Array]  # calls a second of all turns, by what and on which side


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Measure the speed of training."""

    episodes: int = 540
    """Episodes of random latents."""
    repeats: int = 9
    """Turns of each side; medians are shown, of ratios those of each turn."""
    seconds: float = 1.0
    """Length of each turn."""
    workers: tuple[int, ...] = (0, 2)
    """Settings of DataLoader's num_workers; the best one is compared with."""
    threads: int | None = None
    """CPU threads of torch; its own choice where this is left out."""


class OrdinaryExamples(Dataset[Item]):
    """(z_t, z_{t+h}, h, a_t) as one writes it down first, with what is quickest a call."""

    def __init__(self, latents: Latents, max_horizon: int) -> None:
        self._z, self._actions = latents.z, latents.actions
        last = np.cumsum(latents.lengths) - 1
        starts = [range(last[e] - latents.lengths[e] + 1, last[e]) for e in latents.split.train]
        self._rows = [(row, min(max_horizon, rows.stop - row)) for rows in starts for row in rows]
        self._rng = random.Random(0)  # noqa: S311 - a third of the time of NumPy's, a draw

    def __len__(self) -> int:
        """Rows that examples start from."""
        return len(self._rows)

    def __getitem__(self, number: int) -> Item:
        """One example."""
        t, most = self._rows[number]
        h = self._rng.randint(1, most)
        z, z_goal, action = self._z[t], self._z[t + h], self._actions[t]
        return torch.from_numpy(z), torch.from_numpy(z_goal), h, torch.from_numpy(action)


class OneByOne(GCIDM):
    """The same network without the table of horizons: a modulation is computed an example."""

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
    return Training(config, latents, network(config.network), folder, device=CPU)  # type: ignore[arg-type]


def our_draws(training: Training) -> Work:
    """Batches as a step of `Training` draws them, its generator included."""
    steps = count()
    return lambda: training.draw(next(steps))


def our_steps(training: Training) -> Work:
    """Whole steps of `Training`."""
    steps = count()
    return lambda: one_step(training, next(steps))


def one_step(training: Training, number: int) -> object:
    """One whole step of `Training`."""
    return training.trainer.step(training.draw(number), number)


@contextmanager
def ready(work: Work) -> Iterator[Work]:
    """Work that needs nothing set up."""
    yield work


@contextmanager
def ordinary_batches(
    dataset: OrdinaryExamples, batch: int, workers: int
) -> Iterator[Callable[[], list[Tensor]]]:
    """DataLoader's batches, epoch after epoch; its processes end with the context."""
    loader = DataLoader(
        dataset,
        batch_size=batch,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    batches: Iterator[list[Tensor]] = (items for _ in count() for items in loader)
    yield lambda: next(batches)


@contextmanager
def ordinary_steps(
    dataset: OrdinaryExamples, training: Training, workers: int
) -> Iterator[Callable[[], None]]:
    """Whole steps of the ordinary training, of a copy of the network."""
    network = copy.deepcopy(training.trainer.modules[NETWORK]).train()
    schedule = training.config.schedule
    parameters = list(network.parameters())
    adamw = torch.optim.AdamW(parameters, lr=schedule.lr, weight_decay=schedule.weight_decay)
    with ordinary_batches(dataset, schedule.batch, workers) as next_batch:

        def step() -> None:
            z, z_goal, steps, actions = next_batch()
            adamw.zero_grad()
            F.mse_loss(network(z, z_goal, steps), actions).backward()
            nn.utils.clip_grad_norm_(parameters, schedule.clip)
            adamw.step()

        yield step


def hidden_product(training: Training) -> tuple[Work, float]:
    """A matrix product of a hidden layer's size, and its floating-point operations."""
    config = training.config
    batch, width = config.schedule.batch, config.network.hidden_dim
    left, right, out = (
        torch.rand(batch, width),
        torch.rand(width, width),
        torch.empty(batch, width),
    )
    return lambda: torch.mm(left, right, out=out), 2.0 * batch * width * width


def step_operations(training: Training) -> float:
    """Floating-point operations of the matrix products of one step, forward and backward."""
    with FlopCounterMode(display=False) as counter:
        one_step(training, 0)
    return float(counter.get_total_flops())


def calls_per_second(setup: Setup, seconds: float, uncounted: int) -> float:
    """Call the work for some seconds, after some calls that are not counted."""
    with setup() as work:
        for _ in range(uncounted):
            work()
        begin, calls = time.perf_counter(), 0
        while (now := time.perf_counter()) - begin < seconds or not calls:
            work()
            calls += 1
    return calls / (now - begin)


def turns(setups: dict[tuple[str, str], Setup], arguments: Arguments) -> Rates:
    """The rates of each, taking turns."""
    # A first call warms up; the others use up what workers prefetched while nobody waited.
    uncounted = 1 + PREFETCH * max(arguments.workers)
    rates = [
        {
            key: calls_per_second(setup, arguments.seconds, uncounted)
            for key, setup in setups.items()
        }
        for _ in range(arguments.repeats)
    ]
    return {key: np.array([rate[key] for rate in rates]) for key in setups}


def loader_name(workers: int) -> str:
    """How a setting of DataLoader is called in the table."""
    return f"DataLoader, {workers} workers"


def measure(latents: Latents, ours: Training, one_by_one: Training, arguments: Arguments) -> Rates:
    """Data paths and whole steps of all sides, and the bare product."""
    dataset = OrdinaryExamples(latents, ours.config.network.max_horizon)
    batch = ours.config.schedule.batch
    setups: dict[tuple[str, str], Setup] = {
        (DATA, OURS): partial(ready, our_draws(ours)),
        **{
            (DATA, loader_name(workers)): partial(ordinary_batches, dataset, batch, workers)
            for workers in arguments.workers
        },
        (STEP, ONE_BY_ONE): partial(ready, our_steps(one_by_one)),
        (PRODUCT, OURS): partial(ready, hidden_product(ours)[0]),
        (STEP, OURS): partial(ready, our_steps(ours)),
        **{
            (STEP, loader_name(workers)): partial(ordinary_steps, dataset, ours, workers)
            for workers in arguments.workers
        },
    }
    return turns(setups, arguments)


def ratio(rates: Rates, what: str, side: str, loaders: Sequence[str]) -> float:
    """A side's rate over that of the best DataLoader, turn by turn."""
    best = max(loaders, key=lambda loader: float(np.median(rates[what, loader])))
    return float(np.median(rates[what, side] / rates[what, best]))


def show_rates(rates: Rates, loaders: Sequence[str], batch: int) -> None:
    """Print examples a second, and ratios to the best DataLoader."""
    rows = []
    for side in (*loaders, OURS, ONE_BY_ONE):
        row = [side]
        for what in (DATA, STEP):
            known = (what, side) in rates
            row.append(f"{batch * np.median(rates[what, side]):,.0f}" if known else "as above")
            row.append(f"{ratio(rates, what, side, loaders):.2f}x" if known else "")
        rows.append(row)
    title = f"Examples a second, batches of {batch} (ratios to the best DataLoader)"
    show_table(title, ("training", DATA, "ratio", STEP, "ratio"), rows)


def show_arithmetic(rates: Rates, ours: Training, one_by_one: Training) -> None:
    """Print how much of a step is matrix products."""
    speeds = rates[PRODUCT, OURS] * hidden_product(ours)[1]
    rows = []
    for name, training in ((OURS, ours), (ONE_BY_ONE, one_by_one)):
        operations = step_operations(training)
        bounds, seconds = operations / speeds, 1 / rates[STEP, name]
        times = (f"{1e3 * np.median(part):.1f}" for part in (bounds, seconds))
        rows.append((name, f"{operations / 1e9:.2f}", *times, f"{np.median(bounds / seconds):.0%}"))
    speed = np.median(speeds) / 1e9
    title = f"Matrix products at this machine's {speed:.0f} GFLOP/s (float32, measured)"
    header = ("training", "GFLOP a step", "that takes, ms", "whole step, ms", "share")
    show_table(title, header, rows)


def main(arguments: Arguments) -> int:
    """Measure and print; exit code 1 when the data path's ratio is below what is wanted."""
    use_threads(arguments.threads)
    latents = random_latents(arguments.episodes)
    with tempfile.TemporaryDirectory() as folder:
        ours, one_by_one = (
            make_training(latents, network, Path(folder)) for network in (GCIDM, OneByOne)
        )
        rates = measure(latents, ours, one_by_one, arguments)
    loaders = [loader_name(workers) for workers in arguments.workers]
    show_rates(rates, loaders, ours.config.schedule.batch)
    show_arithmetic(rates, ours, one_by_one)
    data, step = (ratio(rates, what, OURS, loaders) for what in (DATA, STEP))
    verdict = "ok" if data >= WANTED else "below"
    show_line(f"Data path: {data:.1f}x, wanted {WANTED:.0f}x: {verdict}. Whole step: {step:.2f}x.")
    saved = np.median(rates[STEP, OURS] / rates[STEP, ONE_BY_ONE])
    show_line(f"The table of horizons makes a whole step {saved:.2f}x as fast.")
    show_line(
        "On a CPU the whole step's ratio is bound by the network's arithmetic, which both sides "
        "share: a data path that cost nothing would save no more than the ordinary one takes."
    )
    return 0 if data >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Arguments)))

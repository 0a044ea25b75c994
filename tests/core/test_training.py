"""The training loop on a small regression: what it computes, and how it resumes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from goalward.core.curves import Row, read_curves
from goalward.core.training import CHECKPOINT, LOG_EVERY, Part, Schedule, Trainer, cosine_lr

SCHEDULE = Schedule(steps=3 * LOG_EVERY + 5, batch=8, lr=0.02, weight_decay=0.01, clip=0.1)
TRUE = torch.tensor([[1.0], [-2.0], [0.5]])
VALIDATE_AT = frozenset({7, 30, 41, SCHEDULE.steps})


def batch(step: int) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(step)
    x = torch.randn(SCHEDULE.batch, 3, generator=rng)
    return x, x @ TRUE


def error(network: nn.Module, data: tuple[Tensor, Tensor]) -> Tensor:
    return (network(data[0]) - data[1]).square().mean()


class Regression:
    """Two networks that learn the same map, one with dropout, from different losses."""

    def __init__(self, folder: Path, schedule: Schedule = SCHEDULE) -> None:
        torch.manual_seed(0)
        self.networks = {"plain": nn.Linear(3, 1), "drop": nn.Sequential(nn.Linear(3, 1))}
        self.networks["drop"].insert(0, nn.Dropout(0.2))  # type: ignore[operator]
        parts = {
            name: Part(module=network, losses=self.losses(name), best_by=f"validation/{name}")
            for name, network in self.networks.items()
        }
        self.trainer = Trainer(parts, schedule, folder)
        self.rows: list[Row] = []

    def losses(self, name: str):  # type: ignore[no-untyped-def]
        def losses(data: tuple[Tensor, Tensor], step: int) -> Mapping[str, Tensor]:
            torch.manual_seed(step)
            found = error(self.networks[name], data)
            return {name: found * (3 if name == "drop" else 1), f"{name} twice": 2 * found}

        return losses

    def validate(self) -> Row:
        # Worse in the end, so that the best weights are not the last.
        late = 100.0 * (self.trainer.done > 50)
        with torch.no_grad():
            return {
                f"validation/{name}": late + error(network.eval(), batch(10_000)).item()
                for name, network in self.networks.items()
            }

    def note(self, row: Row) -> str:
        self.rows.append(row)
        return ""

    def fit(self, stop_at: int = 10**9, save_seconds: float = 0.0) -> Regression:
        def batches(steps: range) -> Iterable[tuple[Tensor, Tensor]]:
            for step in steps:
                if step == stop_at:
                    raise KeyboardInterrupt
                yield batch(step)

        self.trainer.fit(
            batches,
            self.validate,
            validate_at=VALIDATE_AT,
            save_seconds=save_seconds,
            note=self.note,
        )
        return self


def weights(regression: Regression) -> dict[str, Tensor]:
    return {k: v.clone() for k, v in regression.trainer.modules.state_dict().items()}


def test_parts_are_trained_as_if_each_were_alone_with_its_own_clipping(tmp_path: Path) -> None:
    found = weights(Regression(tmp_path).fit())
    for name, factor in (("plain", 1), ("drop", 3)):
        alone = Regression(tmp_path / "unused").networks[name].train()
        adamw = torch.optim.AdamW(alone.parameters(), weight_decay=0.01, fused=True)
        for step in range(SCHEDULE.steps):
            adamw.param_groups[0]["lr"] = SCHEDULE.lr_at(step)
            torch.manual_seed(step)
            adamw.zero_grad()
            (factor * error(alone, batch(step))).backward()
            nn.utils.clip_grad_norm_(alone.parameters(), SCHEDULE.clip)
            adamw.step()
        for key, value in alone.state_dict().items():
            assert torch.equal(found[f"{name}.{key}"], value)


def test_learning_rates_warm_up_and_fall_along_half_a_cosine() -> None:
    rates = [cosine_lr(step, 10, 2.0, warmup=2) for step in range(11)]
    assert rates[:3] == [1.0, 2.0, 2.0]
    assert rates[6] == pytest.approx(1.0) and rates[10] == pytest.approx(0.0)
    assert [cosine_lr(step, 4, 1.0, final=0.5) for step in (0, 2, 4)] == pytest.approx(
        [1.0, 0.75, 0.5]
    )
    assert cosine_lr(0, 1, 3.0, warmup=1) == 3.0


@pytest.mark.parametrize("stops", [(5,), (20,), (33,), (21, 61), (40, 41, 42)])
def test_a_training_stopped_anywhere_ends_in_the_same_weights(
    tmp_path: Path, stops: tuple[int, ...]
) -> None:
    whole, broken = Regression(tmp_path / "a_whole"), tmp_path / "broken"
    (tmp_path / "a_whole").mkdir()
    broken.mkdir()
    whole.fit()
    for stop in stops:
        with pytest.raises(KeyboardInterrupt):
            Regression(broken).fit(stop)
    resumed = Regression(broken)
    assert resumed.trainer.done == stops[-1] // LOG_EVERY * LOG_EVERY
    resumed.fit()
    last = weights(whole)
    assert all(torch.equal(value, last[key]) for key, value in weights(resumed).items())
    for one in (whole, resumed):
        one.trainer.restore_best()
    best = weights(whole)
    assert all(torch.equal(value, best[key]) for key, value in weights(resumed).items())
    assert not torch.equal(best["plain.weight"], last["plain.weight"])

    def figures(folder: Path) -> list[Row]:
        rows = read_curves(folder)
        return [{k: v for k, v in row.items() if not k.endswith("seconds")} for row in rows]

    assert figures(broken) == figures(tmp_path / "a_whole")
    row = resumed.trainer.best_row("plain")
    assert row is not None and row["step"] == 41


def test_rows_are_means_of_the_losses_since_the_row_before(tmp_path: Path) -> None:
    regression = Regression(tmp_path).fit()
    assert [row["step"] for row in regression.rows] == [20, 40, 60, SCHEDULE.steps]
    row = regression.rows[-1]
    assert row["plain twice"] == pytest.approx(2 * row["plain"])
    assert row["lr"] == SCHEDULE.lr_at(SCHEDULE.steps - 1)
    assert [row["seconds"] for row in regression.rows] == sorted(
        row["seconds"] for row in regression.rows
    )
    assert 0 < row["data_seconds"] < row["seconds"]


def test_divergence_stops_with_one_clear_line(tmp_path: Path) -> None:
    wild = replace(SCHEDULE, lr=1e30, clip=1e30)
    with pytest.raises(ValueError, match=r"no longer finite at step 7 of 65; train .* lower sched"):
        Regression(tmp_path, wild).fit()
    assert not (tmp_path / CHECKPOINT).exists()


def test_an_unfinished_training_of_another_version_is_refused(tmp_path: Path) -> None:
    Regression(tmp_path).fit()
    part: Part[object] = Part(module=nn.Linear(3, 2), losses=lambda *_: {}, best_by="none")
    with pytest.raises(ValueError, match="unfinished training of another version; delete"):
        Trainer({"other": part}, SCHEDULE, tmp_path)

"""The loss and its regularisers: known values, plain formulas, several replicas against one."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn
from world_helpers import SIDE, numbers, tiny_model

from goalward.core.distributed import as_only_replica, mean_over_replicas, num_replicas
from goalward.world.lewm import LeWM
from goalward.world.objective import (
    Objective,
    ObjectiveConfig,
    ReconstructionHead,
    sample_directions,
    sigreg,
    vicreg,
)

TIME, BATCH, DIM, PROJECTIONS, KNOTS = 2, 12, 6, 16, 17


def plain_sigreg(z_TBD: Tensor, directions_DP: Tensor) -> Tensor:
    """The formula of the docstring, written out."""
    t = torch.linspace(0, 3, KNOTS, dtype=z_TBD.dtype)
    normal = torch.exp(-t.square() / 2)
    angle = (z_TBD @ directions_DP)[..., None] * t
    error = (angle.cos().mean(1) - normal).square() + angle.sin().mean(1).square()
    return 2 * z_TBD.shape[1] * torch.trapezoid(error * normal, t).mean()


def sample(seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    latents = 1.5 * torch.randn(TIME, BATCH, DIM, generator=rng) + 0.3
    return latents, sample_directions(DIM, PROJECTIONS, rng)


def test_sigreg_is_the_epps_pulley_integral_in_value_and_gradient() -> None:
    latents, directions = sample()
    ours = latents.clone().requires_grad_()
    theirs = latents.double().requires_grad_()
    value, expected = sigreg(ours, directions), plain_sigreg(theirs, directions.double())
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=0)
    (gradient,) = torch.autograd.grad(value, ours)
    (expected_gradient,) = torch.autograd.grad(expected, theirs)
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=1e-4, atol=1e-7)


def test_sigreg_of_gaussian_latents_is_the_known_expectation() -> None:
    # E|1/B Σ exp(itx) - N(t)|² = (1 - exp(-t²)) / B, so that B cancels.
    t = torch.linspace(0, 3, KNOTS)
    normal = torch.exp(-t.square() / 2)
    expected = float(2 * torch.trapezoid((1 - normal.square()) * normal, t))
    rng = torch.Generator().manual_seed(1)
    latents = torch.randn(4, 256, 8, generator=rng)
    value = float(sigreg(latents, sample_directions(8, 2048, rng)))
    assert value == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("spoil", [lambda z: 0.1 * z, lambda z: z + 2, lambda z: z.sign()])
def test_sigreg_grows_when_latents_are_not_standard_normal(spoil: object) -> None:
    assert callable(spoil)
    rng = torch.Generator().manual_seed(2)
    latents = torch.randn(1, 256, 4, generator=rng)
    directions = sample_directions(4, 256, rng)
    assert sigreg(spoil(latents), directions) > 3 * sigreg(latents, directions)


def test_vicreg_is_zero_for_white_latents_and_punishes_collapse_and_correlation() -> None:
    white = math.sqrt(8) * torch.linalg.qr(torch.eye(8) - 1 / 8)[0][:, :7] * (1 + 1e-3)
    assert float(vicreg((white - white.mean(0))[None])) < 1e-3
    assert float(vicreg(torch.zeros(1, 8, 4))) == pytest.approx(25 * (1 - 0.01), rel=1e-3)
    one = white[:, :1].expand(-1, 4)
    assert float(vicreg(one[None])) > 2.5


def test_the_objective_is_the_weighted_sum_of_its_terms_and_trains_both_sides() -> None:
    config = ObjectiveConfig(
        regulariser_weight=0.5, projections=8, inverse_dynamics_weight=2, reconstruction_weight=3
    )
    torch.manual_seed(0)
    objective = Objective(LeWM(tiny_model()), config)
    head = objective.reconstruction
    assert isinstance(head, ReconstructionHead)
    pixels, actions = numbers(4, 4, 3, SIDE, SIDE), numbers(4, 3, 4)
    head.fit(pixels.flatten(0, 1))
    found = objective(pixels, actions, numbers(16, 8))
    weights = {"prediction": 1, "regulariser": 0.5, "inverse_dynamics": 2, "reconstruction": 3}
    expected = sum(weight * found[name] for name, weight in weights.items())
    torch.testing.assert_close(found["loss"], expected)
    found["loss"].backward()
    assert all(p.grad is not None for p in objective.model.encoder.parameters())
    # Pictures are in standard deviations from the mean picture: guessing it costs 1.
    with torch.no_grad():
        for parameter in head.read.parameters():
            parameter.zero_()
        mean = head(numbers(16, 16), pixels.flatten(0, 1))
    assert float(mean) == pytest.approx(1.0, rel=0.05)


def test_the_papers_objective_has_no_auxiliary() -> None:
    objective = Objective(LeWM(tiny_model()), ObjectiveConfig(projections=8))
    assert [name for name, _ in objective.named_children()] == ["model"]
    found = objective(numbers(4, 4, 3, SIDE, SIDE), numbers(4, 3, 4), numbers(16, 8))
    absent = ("open_loop", "inverse_dynamics", "reconstruction")
    assert [float(found[name]) for name in absent] == [0.0, 0.0, 0.0]


def test_the_open_loop_term_weighs_the_errors_of_a_rollout_from_the_first_latent() -> None:
    torch.manual_seed(0)
    config = ObjectiveConfig(projections=8, open_loop_weights=(0.0, 0.5, 2.0))
    objective = Objective(LeWM(tiny_model()), config).eval()
    pixels, actions = numbers(4, 4, 3, SIDE, SIDE), numbers(4, 3, 4)
    found = objective(pixels, actions, numbers(16, 8))
    model = objective.model
    z = model.encode(pixels.flatten(0, 1)).unflatten(0, (4, 4))
    second = model.rollout(z[:, :1], actions)[:, 1] - z[:, 2]
    third = model.rollout(z[:, :1], actions)[:, 2] - z[:, 3]
    expected = 0.5 * second.square().mean() + 2.0 * third.square().mean()
    torch.testing.assert_close(found["open_loop"], expected)
    others = found["prediction"] + config.regulariser_weight * found["regulariser"]
    torch.testing.assert_close(found["loss"], others + expected)


def replicas_worker(rank: int, port: int, folder: str) -> None:
    """One of two processes: its half of the batch, its value and its gradient."""
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    latents, directions = sample()
    found: dict[str, Tensor] = {}
    for name, regulariser in REGULARISERS.items():
        weight = torch.tensor(1.3, requires_grad=True)
        mine = latents[:, rank * BATCH // 2 : (rank + 1) * BATCH // 2]
        value = regulariser(weight * mine, directions)
        value.backward()
        assert weight.grad is not None
        dist.all_reduce(weight.grad)
        found[name] = torch.stack([value.detach(), weight.grad / 2])  # as DDP averages gradients
    with as_only_replica():
        assert num_replicas() == 1
        assert float(mean_over_replicas(torch.tensor(float(rank)))) == rank
    torch.save(found, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


REGULARISERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sigreg": sigreg,
    "vicreg": lambda z, directions: vicreg(z),
}


def test_two_replicas_of_half_a_batch_equal_one_of_a_whole(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    spawn(replicas_worker, args=(port, str(tmp_path)), nprocs=2)
    latents, directions = sample()
    for name, regulariser in REGULARISERS.items():
        weight = torch.tensor(1.3, requires_grad=True)
        value = regulariser(weight * latents, directions)
        (gradient,) = torch.autograd.grad(value, weight)
        for rank in range(2):
            found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)[name]
            torch.testing.assert_close(found, torch.stack([value.detach(), gradient]))

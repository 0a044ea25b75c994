"""The inverse dynamics networks: their sizes, their initial weights, and what they can learn."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from controller_helpers import made_latents, wake
from goalward.control.metrics import NETWORK
from goalward.control.networks import (
    GCIDM,
    GCIDMConfig,
    PairwiseConfig,
    PairwiseIDM,
    encode_horizon,
    horizon_frequencies,
    quantile_steps,
)
from goalward.control.train import ControllerConfig, IDMSchedule, NoiseConfig, Training
from goalward.world.lewm import num_parameters

PAPER = GCIDMConfig(latent_dim=192, action_dim=2)
SMALL = GCIDMConfig(latent_dim=4, action_dim=2, hidden_dim=64, max_horizon=8, dropout=0.0)


def new(config: GCIDMConfig) -> GCIDM:
    torch.manual_seed(0)
    return config.build().eval()


def test_networks_have_the_papers_sizes() -> None:
    assert num_parameters(new(PAPER)) == 1_547_778  # "~1.5M"
    assert num_parameters(PairwiseConfig(latent_dim=192, action_dim=2).build()) == 726_530  # ~730K
    assert num_parameters(new(replace(PAPER, action_dim=5))) == 1_547_778 + 3 * 513
    deep = new(replace(PAPER, num_layers=5))
    assert num_parameters(deep) == 1_547_778 + 2 * (512 * 512 + 512 + 1024)


def test_a_new_network_ignores_the_horizon_exactly_and_hardly_acts() -> None:
    network = new(PAPER)
    z, goal = torch.randn(64, 192), torch.randn(64, 192)
    near = network(z, goal, torch.full((64,), 1))
    far = network(z, goal, torch.full((64,), 50))
    assert torch.equal(near, far)
    assert near.abs().mean() < 0.2
    wake(network, 0.1)
    assert not torch.equal(
        network(z, goal, torch.full((64,), 1)), network(z, goal, torch.full((64,), 50))
    )


def test_hidden_weights_are_kaiming_normal() -> None:
    first = new(PAPER).backbone.layers[0]
    assert isinstance(first, torch.nn.Linear)
    assert float(first.weight.detach().std()) == pytest.approx(math.sqrt(2 / 384), rel=0.02)
    assert not first.bias.any()


@pytest.mark.parametrize("max_horizon", [5, 10, 25, 50, 100])
def test_any_two_horizons_have_different_codes(max_horizon: int) -> None:
    config = replace(PAPER, max_horizon=max_horizon)
    share = torch.arange(1, max_horizon + 1) / max_horizon

    def least_distance(frequencies: torch.Tensor) -> float:
        code = encode_horizon(share, frequencies)
        distance = torch.cdist(code, code) + 10 * torch.eye(max_horizon)
        return float(distance.min())

    assert least_distance(horizon_frequencies(config)) > 1.0
    usual = 10_000 ** -(torch.arange(32) / 32)  # made for 0, 1, 2, ..., not for shares of 1
    assert least_distance(usual) < 2.5 / max_horizon


def test_steps_beyond_the_maximum_count_as_the_maximum() -> None:
    network = new(SMALL)
    wake(network, 0.1)
    z, goal = torch.randn(3, 4), torch.randn(3, 4)
    most = network(z, goal, torch.tensor([8, 8, 8]))
    assert torch.equal(network(z, goal, torch.tensor([9, 50, 1000])), most)


def test_large_batches_are_modulated_as_small_ones_are() -> None:
    network = new(SMALL)
    wake(network, 0.1)
    z, goal, steps = torch.randn(40, 4), torch.randn(40, 4), torch.arange(40) % 10 + 1
    parts = [network(z[k : k + 5], goal[k : k + 5], steps[k : k + 5]) for k in range(0, 40, 5)]
    torch.testing.assert_close(network(z, goal, steps), torch.cat(parts))


def test_a_frozen_copy_acts_as_the_network_did_when_it_was_made() -> None:
    network = new(PAPER)
    wake(network, 0.1)
    z, z_goal, steps = torch.randn(3, 192), torch.randn(3, 192), torch.tensor([1, 30, 80])
    with torch.inference_mode():
        expected = network(z, z_goal, steps)
        frozen = network.frozen()
        torch.testing.assert_close(frozen(z, z_goal, steps), expected)
        wake(network, 0.1)
        torch.testing.assert_close(frozen(z, z_goal, steps), expected)
        assert not torch.allclose(network(z, z_goal, steps), expected)


def test_a_network_without_horizon_embedding_does_not_see_the_horizon() -> None:
    network = new(replace(SMALL, horizon_embedding=False))
    assert network.modulation is None
    z, goal = torch.randn(3, 4), torch.randn(3, 4)
    one, eight = torch.ones(3, dtype=torch.int64), torch.full((3,), 8)
    assert torch.equal(network(z, goal, one), network(z, goal, eight))


def test_an_odd_encoding_of_the_horizon_is_refused() -> None:
    with pytest.raises(ValueError, match="horizon_dim must be even, got 63"):
        replace(PAPER, horizon_dim=63)


def test_quantiles_are_the_least_steps_that_are_enough() -> None:
    logits = torch.log(torch.tensor([[0.2, 0.3, 0.5], [0.9, 0.05, 0.05]]))
    assert quantile_steps(logits, 0.1).tolist() == [1, 1]
    assert quantile_steps(logits, 0.45).tolist() == [2, 1]
    assert quantile_steps(logits, 0.95 + 1e-3).tolist() == [3, 3]


def straight_lines(seed: int = 0, episodes: int = 200) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Episodes with one action each: z moves by B a a step, so a = B⁺ (z_goal - z) / h."""
    rng = np.random.default_rng(seed)
    effect_AD = rng.normal(size=(2, 4))
    start, action = rng.normal(size=(episodes, 1, 4)), rng.uniform(-1, 1, (episodes, 1, 2))
    z = start + np.arange(9)[None, :, None] * (action @ effect_AD)
    actions = np.repeat(action, 9, axis=1)
    return z.reshape(-1, 4), actions.reshape(-1, 2), effect_AD


def trained(config: ControllerConfig, tmp_path: Path, steps: int) -> Training:
    z, actions, _ = straight_lines()
    latents = made_latents(z, actions, [9] * 200)
    torch.manual_seed(0)
    network = config.network.build()
    config = replace(config, schedule=IDMSchedule(steps=steps, batch=256, lr=3e-3))
    tmp_path.mkdir(exist_ok=True)
    training = Training(config, latents, network, tmp_path, device=torch.device("cpu"))
    training.run(save_seconds=60.0)
    return training


def test_the_closed_form_inverse_of_a_linear_system_is_recovered(tmp_path: Path) -> None:
    config = ControllerConfig(network=SMALL, schedule=IDMSchedule(steps=1))
    training = trained(config, tmp_path, steps=700)
    rng = np.random.default_rng(1)
    _, _, effect_AD = straight_lines()
    steps = rng.integers(1, 9, size=500)
    z = rng.normal(size=(500, 4))
    action = rng.uniform(-1, 1, (500, 2))
    goal = z + steps[:, None] * (action @ effect_AD)
    closed_form = ((goal - z) / steps[:, None]) @ np.linalg.pinv(effect_AD)
    np.testing.assert_allclose(closed_form, action, atol=1e-9)
    network = training.trainer.modules[NETWORK].eval()
    with torch.inference_mode():
        found = network(
            torch.tensor(z, dtype=torch.float32),
            torch.tensor(goal, dtype=torch.float32),
            torch.tensor(steps),
        ).numpy()
    error = np.square(found - action).mean() / action.var()
    assert error < 0.02


def test_without_the_horizon_the_same_system_is_recovered_far_worse(tmp_path: Path) -> None:
    aware = ControllerConfig(network=SMALL, schedule=IDMSchedule(steps=1))
    blind = replace(aware, network=replace(SMALL, horizon_embedding=False))
    missing = [
        1 - trained(config, tmp_path / name, steps=400).measure().errors[0].r2
        for config, name in ((aware, "aware"), (blind, "blind"))
    ]
    assert missing[1] > 2 * missing[0]


def test_a_pairwise_model_gives_the_actions_between_two_latents(tmp_path: Path) -> None:
    network = PairwiseConfig(latent_dim=4, action_dim=2, hidden_dim=64, dropout=0.0, frameskip=3)
    config = ControllerConfig(network=network, schedule=IDMSchedule(steps=1))
    training = trained(config, tmp_path, steps=400)
    assert isinstance(training.trainer.modules[NETWORK], PairwiseIDM)
    assert training.validation.actions.shape[1] == 6
    assert set(training.validation.steps.tolist()) == {3}
    assert training.measure().errors[0].r2 > 0.95


def test_noise_on_latents_is_scaled_by_their_spread_and_only_in_training(tmp_path: Path) -> None:
    config = ControllerConfig(network=SMALL, schedule=IDMSchedule(steps=1))
    clean = trained(config, tmp_path / "a", steps=300).measure().errors[0].mse
    noisy = replace(config, noise=NoiseConfig(sigma=1.0))
    uniform = replace(config, noise=NoiseConfig(sigma=1.0, schedule="uniform"))
    errors = [
        trained(c, tmp_path / name, steps=300).measure().errors[0].mse
        for c, name in ((noisy, "b"), (uniform, "c"))
    ]
    assert clean < errors[1] < errors[0]

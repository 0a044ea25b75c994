"""LeWM's parts on sizes that take no time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from public_helpers import randomised
from world_helpers import numbers, tiny_model

from goalward.world.encoders import ConvConfig, Keypoints, ViTConfig
from goalward.world.lewm import LeWM, LeWMConfig


def test_a_new_predictor_ignores_actions_and_history() -> None:
    torch.manual_seed(0)
    model = LeWM(tiny_model()).eval()
    z, actions = numbers(3, 3, 16), numbers(3, 3, 4)
    plain = model.predict(z, actions)
    assert torch.equal(model.predict(z, numbers(3, 3, 4, seed=1)), plain)
    torch.testing.assert_close(model.predict(z[:, :1], actions[:, :1]), plain[:, :1])


def test_a_prediction_depends_on_its_past_and_not_on_its_future() -> None:
    model = randomised(tiny_model())
    z, actions = numbers(2, 3, 16), numbers(2, 3, 4)
    before = model.predict(z, actions)
    for later in (z, actions):
        later[:, 2] += 1.0
    after = model.predict(z, actions)
    assert torch.equal(after[:, :2], before[:, :2])
    assert not torch.allclose(after[:, 2], before[:, 2])


def test_a_rollout_is_one_prediction_after_the_other_over_the_last_steps() -> None:
    model = randomised(tiny_model())
    z, actions = numbers(2, 2, 16), numbers(2, 5, 4)
    rolled = model.rollout(z, actions)
    latents = list(z.unbind(1))
    for t in range(2, 6):
        seen = slice(max(0, t - 3), t)
        last = model.predict(torch.stack(latents[seen], 1), actions[:, seen])[:, -1]
        latents.append(last)
    torch.testing.assert_close(rolled, torch.stack(latents[2:], 1))
    assert rolled.shape == (2, 4, 16)


def test_a_keypoint_follows_a_bright_spot() -> None:
    keypoints = Keypoints(1, 1, grid=9)
    with torch.no_grad():
        keypoints.heights.weight.fill_(50.0)
        keypoints.heights.bias.zero_()  # type: ignore[union-attr]
    maps = torch.zeros(2, 1, 9, 9)
    maps[0, 0, 4, 8] = 1.0  # middle row, last column
    maps[1, 0, 0, 4] = maps[1, 0, 0, 6] = 1.0  # first row, between two columns
    places = keypoints(maps)
    torch.testing.assert_close(places, torch.tensor([[2.0, 0.0], [0.5, -2.0]]))


@pytest.mark.parametrize("encoder", [ConvConfig(), ViTConfig(image_size=28, depth=1)])
def test_an_encoder_gives_the_promised_number_of_features(encoder: ConvConfig | ViTConfig) -> None:
    size = encoder.image_size
    assert encoder.build()(numbers(2, 3, size, size)).shape == (2, encoder.features)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ConvConfig(image_size=60),
        lambda: ConvConfig(channels=()),
        lambda: ViTConfig(patch_size=15),
        lambda: ViTConfig(heads=5),
        lambda: LeWMConfig(action_dim=0),
        lambda: replace(tiny_model(), history=0),
        lambda: replace(tiny_model(), latent_dim=2**17),
    ],
)
def test_impossible_sizes_are_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match="must be"):
        make()

"""LeWM's parts: what they promise, on sizes that take no time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from goalward.core.config import from_json, override, to_json
from goalward.core.machine import choose_device, use_threads
from goalward.data.episodes import open_episodes
from goalward.presets import PRESETS, world_config
from goalward.world.encoders import ConvConfig, Keypoints, ViTConfig
from goalward.world.frozen import MEAN, STD, normalise
from goalward.world.lewm import LeWM, LeWMConfig
from goalward.world.objective import Objective, ObjectiveConfig
from goalward.world.train import ScheduleConfig, WorldConfig
from world_helpers import SIDE, dots_fixture, tiny_model  # noqa: F401


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def lively_model() -> LeWM:
    """A model in evaluation mode whose zero-initialised gates are open."""
    torch.manual_seed(0)
    model = LeWM(tiny_model()).eval()
    with torch.no_grad():
        for parameter in model.predictor.parameters():
            parameter.copy_(0.3 * torch.randn_like(parameter))
    return model


def test_a_new_predictor_ignores_actions_and_history() -> None:
    torch.manual_seed(0)
    model = LeWM(tiny_model()).eval()
    z, actions = numbers(3, 3, 16), numbers(3, 3, 4)
    plain = model.predict(z, actions)
    assert torch.equal(model.predict(z, numbers(3, 3, 4, seed=1)), plain)
    torch.testing.assert_close(model.predict(z[:, :1], actions[:, :1]), plain[:, :1])


def test_a_prediction_sees_its_past_and_not_its_future() -> None:
    model = lively_model()
    z, actions = numbers(2, 3, 16), numbers(2, 3, 4)
    before = model.predict(z, actions)
    for later in (z, actions):
        later[:, 2] += 1.0
    after = model.predict(z, actions)
    assert torch.equal(after[:, :2], before[:, :2])
    assert not torch.allclose(after[:, 2], before[:, 2])


def test_a_rollout_is_one_prediction_after_the_other_over_the_last_steps() -> None:
    model = lively_model()
    z, actions = numbers(2, 2, 16), numbers(2, 5, 4)
    rolled = model.rollout(z, actions)
    latents = list(z.unbind(1))
    for t in range(2, 6):
        seen = slice(max(0, t - 3), t)
        last = model.predict(torch.stack(latents[seen], 1), actions[:, seen])[:, -1]
        latents.append(last)
    torch.testing.assert_close(rolled, torch.stack(latents[2:], 1))
    assert rolled.shape == (2, 4, 16)
    with pytest.raises(ValueError, match="6 latents need at least as many actions, got 5"):
        model.rollout(numbers(2, 6, 16), actions)


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
def test_an_encoder_gives_as_many_features_as_it_says(encoder: ConvConfig | ViTConfig) -> None:
    size = encoder.image_size
    assert encoder.build()(numbers(2, 3, size, size)).shape == (2, encoder.features)


def test_the_objective_is_the_weighted_sum_of_its_terms_and_trains_both_sides() -> None:
    config = ObjectiveConfig(
        regulariser_weight=0.5, projections=8, inverse_weight=2.0, thumbnail_weight=3.0
    )
    torch.manual_seed(0)
    objective = Objective(LeWM(tiny_model()), config)
    assert objective.thumbnail is not None
    pixels, actions = numbers(4, 4, 3, SIDE, SIDE), numbers(4, 3, 4)
    objective.thumbnail.fit(pixels.flatten(0, 1))
    terms = objective(pixels, actions, numbers(16, 8))
    expected = terms.prediction + 0.5 * terms.regulariser + 2 * terms.inverse + 3 * terms.thumbnail
    torch.testing.assert_close(terms.loss, expected)
    terms.loss.backward()
    assert all(p.grad is not None for p in objective.model.encoder.parameters())
    # Thumbnails are in standard deviations from the mean picture: guessing it costs 1.
    with torch.no_grad():
        for parameter in objective.thumbnail.read.parameters():
            parameter.zero_()
        mean = objective.thumbnail(numbers(16, 16), pixels.flatten(0, 1))
    assert float(mean) == pytest.approx(1.0, rel=0.05)


def test_the_papers_objective_has_no_auxiliary() -> None:
    objective = Objective(LeWM(tiny_model()), ObjectiveConfig(projections=8))
    assert objective.inverse is None and objective.thumbnail is None
    terms = objective(numbers(4, 4, 3, SIDE, SIDE), numbers(4, 3, 4), numbers(16, 8))
    assert float(terms.inverse) == 0.0 == float(terms.thumbnail)


def test_frames_are_normalised_as_in_public_checkpoints_and_resized_when_asked() -> None:
    frames = torch.full((2, 8, 8, 3), 255, dtype=torch.uint8)
    expected = (1 - torch.tensor(MEAN)) / torch.tensor(STD)
    torch.testing.assert_close(normalise(frames)[0, :, 3, 4], expected)
    assert normalise(frames, 4).shape == (2, 3, 4, 4)
    for bad in (frames.float(), frames[0], frames[..., :2]):
        with pytest.raises(ValueError, match="frames must be uint8 of shape"):
            normalise(bad)
    with pytest.raises(ValueError, match=r"in a torch tensor, not .* \(ndarray\)"):
        normalise(frames.numpy())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_configuration_that_survives_json(name: str, dots: Path) -> None:
    with open_episodes(dots) as episodes:
        for task in ("two-room", None):
            config = world_config(name, episodes, task=task)  # type: ignore[arg-type]
            assert from_json(WorldConfig, to_json(config)) == config
            assert config.model.action_dim == 2


def test_the_paper_preset_is_the_public_configuration(dots: Path) -> None:
    with open_episodes(dots) as episodes:
        config = world_config("paper", episodes, task=None)
        windows = len(episodes.window_starts(16)) // 12 * 11  # one of the twelve is held out
    assert to_json(config.model) == {
        "action_dim": 2,
        "encoder": {
            "kind": "vit",
            "image_size": 224,
            "patch_size": 14,
            "dim": 192,
            "depth": 12,
            "heads": 3,
        },
        "frameskip": 5,
        "history": 3,
        "latent_dim": 192,
        "projector_dim": 2048,
        "predictor": {"depth": 6, "heads": 16, "dim_head": 64, "mlp_dim": 2048, "dropout": 0.1},
    }
    assert (config.schedule.batch, config.schedule.lr) == (128, 5e-5)
    assert config.schedule.weight_decay == 1e-3
    assert config.schedule.steps == 10 * (windows // 128)
    assert (config.schedule.warmup, config.schedule.clip) == (0.01, 1.0)
    objective = config.objective
    assert objective.regulariser == "sigreg" and objective.regulariser_weight == 0.09
    assert (objective.projections, objective.knots) == (1024, 17)
    assert objective.inverse_weight == 0.0 == objective.thumbnail_weight
    assert not config.uses_bfloat16(torch.device("cpu"))
    assert config.uses_bfloat16(torch.device("cuda"))


def test_the_learning_rate_warms_up_and_falls_to_nothing() -> None:
    for steps in (1, 7, 99, 150, 12_345):
        odd = ScheduleConfig(steps=steps, lr=1.0, warmup=0.07)
        assert max(odd.lr_at(step) for step in range(steps)) == 1.0
    schedule = ScheduleConfig(steps=100, lr=1.0, warmup=0.1)
    rates = [schedule.lr_at(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1) and rates[9] == 1.0 == max(rates)
    assert rates[9:] == sorted(rates[9:], reverse=True) and rates[-1] < 1e-3


@pytest.mark.parametrize(
    "make",
    [
        lambda: ScheduleConfig(steps=0),
        lambda: ScheduleConfig(steps=1, batch=1),
        lambda: ScheduleConfig(steps=1, warmup=1.0),
        lambda: ObjectiveConfig(inverse_weight=-1.0),
        lambda: ObjectiveConfig(knots=1),
        lambda: ConvConfig(image_size=60),
        lambda: ConvConfig(channels=()),
        lambda: ViTConfig(patch_size=15),
        lambda: LeWMConfig(action_dim=0),
        lambda: replace(tiny_model(), history=0),
    ],
)
def test_impossible_configurations_are_refused_at_birth(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match="must be"):
        make()


def test_overrides_take_json_or_text_and_keep_the_rest() -> None:
    config = ObjectiveConfig()
    changed = override(config, ["regulariser=vicreg", "projections=7", "inverse_weight=1"])
    assert changed == replace(config, regulariser="vicreg", projections=7, inverse_weight=1.0)
    with pytest.raises(ValueError, match="projection: no such value, did you mean projections"):
        override(config, ["projection=7"])


def test_a_device_that_is_not_there_is_refused_in_one_line() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    with pytest.raises(ValueError, match="is not available here; use --device cpu"):
        choose_device("cuda:77")
    for name in ("gpu", "meta", "xpu:7"):
        with pytest.raises(ValueError, match="is not one of cpu, cuda, mps"):
            choose_device(name)
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        use_threads(0)

"""The frozen encoder: frames as public checkpoints take them, fused, on several devices."""

from __future__ import annotations

import torch
from public_helpers import randomised

from goalward.core.machine import choose_devices
from goalward.world.checkpoint import world_id
from goalward.world.encoders import ConvConfig
from goalward.world.frozen import MEAN, STD, FrameEncoder, normalise
from goalward.world.lewm import LeWM, LeWMConfig

CPU = torch.device("cpu")


def a_model() -> LeWM:
    """Its BatchNorms do something."""
    return randomised(LeWMConfig(action_dim=2, encoder=ConvConfig(image_size=32, channels=(8, 16))))


def test_frames_are_normalised_as_in_public_checkpoints_and_resized_when_asked() -> None:
    frames = torch.full((2, 8, 8, 3), 255, dtype=torch.uint8)
    expected = (1 - torch.tensor(MEAN)) / torch.tensor(STD)
    torch.testing.assert_close(normalise(frames)[0, :, 3, 4], expected)
    assert normalise(frames, 4).shape == (2, 3, 4, 4)


def test_a_frame_encoder_gives_the_models_latents_and_does_not_change_the_model() -> None:
    model = a_model()
    before = world_id(model, None)
    frames = torch.randint(0, 256, (5, 32, 32, 3), dtype=torch.uint8)
    encode = FrameEncoder(model.train())
    assert model.training and world_id(model, None) == before
    with torch.inference_mode():
        expected = model.eval().encode(normalise(frames, 32))
    torch.testing.assert_close(encode(frames), expected, rtol=1e-4, atol=1e-5)
    torch.nn.init.zeros_(next(model.parameters()))
    torch.testing.assert_close(encode(frames), expected, rtol=1e-4, atol=1e-5)  # frozen


def test_several_devices_share_a_batch_and_agree() -> None:
    model, frames = a_model(), torch.randint(0, 256, (7, 16, 16, 3), dtype=torch.uint8)
    alone, shared = FrameEncoder(model)(frames), FrameEncoder(model, (CPU, CPU, CPU))
    torch.testing.assert_close(shared(frames), alone)
    torch.testing.assert_close(shared(frames[:1]), alone[:1])
    assert choose_devices("cpu") == (CPU,)

"""Foreign encoders: any function or torch module embeds a dataset, by an object or by its name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from world_helpers import SIDE

import goalward as gw
from goalward.core.tensors import read_tensors
from goalward.data.episodes import open_episodes
from goalward.evaluation.specs import resolve_controllers
from goalward.tasks import get_task
from goalward.world.checkpoint import load_world
from goalward.world.frozen import normalise
from goalward.world.latents import embed, open_latents
from goalward.world.protocol import ENCODERS, Encoder, FunctionEncoder, WorldModel, register_encoder


def mean_colours(pixels_NCHW: Tensor) -> Tensor:
    return pixels_NCHW.mean(dim=(2, 3))


COLOURS = FunctionEncoder(mean_colours, id="mean-colours", latent_dim=3, image_size=SIDE)


def test_a_stored_world_is_an_encoder_and_a_world_model(tiny_world: Path) -> None:
    world = load_world(tiny_world)
    assert isinstance(world, Encoder) and isinstance(world, WorldModel)
    assert (world.image_size, world.latent_dim, world.frameskip, world.history) == (SIDE, 16, 2, 3)
    assert isinstance(COLOURS, Encoder) and not isinstance(COLOURS, WorldModel)
    z, actions = torch.randn(2, 1, 16), torch.randn(2, 4, 4)
    assert torch.equal(world.rollout(z, actions), world.model.rollout(z, actions))


def test_a_registered_function_embeds_a_dataset(dots: Path, tmp_path: Path) -> None:
    gw.register_encoder("mean-colours", lambda: COLOURS)
    latents = gw.embed("mean-colours", dots, tmp_path / "z")
    assert latents.metadata.world_id == "mean-colours"
    with open_episodes(dots) as episodes:
        frames = torch.from_numpy(episodes.read("pixels", 0, episodes.num_rows))
    np.testing.assert_allclose(latents.z, mean_colours(normalise(frames)), rtol=1e-5)
    assert latents.id == open_latents(tmp_path / "z").id == embed(COLOURS, dots, tmp_path / "z").id


def test_a_controller_is_trained_on_a_registered_encoder_and_acts_with_it(
    many_dots: Path, tmp_path: Path
) -> None:
    gw.register_encoder("my-colours", lambda: COLOURS)
    latents = gw.embed("my-colours", many_dots, tmp_path / "z")
    model = gw.train(latents, tmp_path / "controller", preset="smoke", train_steps=20)
    path = tmp_path / "controller" / "best.safetensors"
    frames = np.random.default_rng(0).integers(0, 256, (2, SIDE, SIDE, 3), dtype=np.uint8)
    controller = gw.load(path)
    controller.reset(frames, 5)
    actions = controller.act(frames[::-1].copy())
    assert actions.shape == (2, 2) and np.isfinite(actions).all()
    assert gw.validate(path, latents).errors[0].count > 0
    assert not [name for name in read_tensors(path)[0] if name.startswith("world")]
    with pytest.raises(ValueError, match="planning and export need a world model"):
        gw.export(model, tmp_path / "controller.onnx")
    specs, observer = resolve_controllers(get_task("two-room"), [str(path)], seeds=(0,))
    assert observer is not None and observer.id == "mean-colours"
    assert [spec.device for spec in specs] == ["cpu"]
    with pytest.raises(ValueError, match="planning and export need a world model"):
        resolve_controllers(get_task("two-room"), ["cem"], seeds=(0,), model=path)


def test_a_place_stands_for_an_encoder_wherever_its_latents_are_used(
    dots: Path, tmp_path: Path
) -> None:
    file = tmp_path / "colour_encoder.py"
    file.write_text(
        "from goalward.world.protocol import FunctionEncoder\n"
        "def load():\n"
        "    mean = lambda pixels: pixels.mean(dim=(2, 3))\n"
        f"    return FunctionEncoder(mean, id='by-place', latent_dim=3, image_size={SIDE})\n"
    )
    latents = gw.embed(f"{file}:load", dots, tmp_path / "z")
    assert latents.encoder().id == latents.metadata.world_id == "by-place"
    with pytest.raises(ValueError, match="planning and export need a world model"):
        latents.world()


def test_an_encoder_that_changed_or_is_gone_is_refused_by_its_name(
    many_dots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gw.register_encoder("changing", lambda: COLOURS)
    latents = gw.embed("changing", many_dots, tmp_path / "z")
    other = FunctionEncoder(mean_colours, id="other", latent_dim=3, image_size=SIDE)
    gw.register_encoder("changing", lambda: other)
    with pytest.raises(ValueError, match="changing is other now, but mean-colours is needed"):
        gw.train(latents, tmp_path / "controller", preset="smoke")
    monkeypatch.delitem(ENCODERS._found, "changing")
    with pytest.raises(ValueError, match="unknown encoder 'changing'"):
        gw.train(latents, tmp_path / "controller", preset="smoke")
    nameless = embed(COLOURS, many_dots, tmp_path / "nameless")
    with pytest.raises(ValueError, match="an encoder without a name; register it"):
        gw.train(nameless, tmp_path / "controller", preset="smoke")


def test_a_torch_module_is_copied_in_evaluation_mode(dots: Path, tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.LazyLinear(4))
    net(torch.zeros(1, 3, SIDE, SIDE))
    encoder = FunctionEncoder(net, id="net", latent_dim=4, image_size=SIDE)
    latents = embed(encoder, dots, tmp_path / "z")
    assert encoder.training
    with open_episodes(dots) as episodes, torch.no_grad():
        frames = torch.from_numpy(episodes.read("pixels", 0, 8))
    expected = net.eval()(normalise(frames)).detach()
    np.testing.assert_allclose(latents.z[:8], expected, rtol=1e-4, atol=1e-5)


def test_what_is_no_encoder_or_gives_other_latents_is_refused(dots: Path, tmp_path: Path) -> None:
    register_encoder("three", lambda: 3)  # type: ignore[arg-type,return-value]
    with pytest.raises(ValueError, match="encoder three: its function made a int, expected"):
        embed("three", dots, tmp_path / "z")
    wrong = FunctionEncoder(mean_colours, id="wrong", latent_dim=5, image_size=SIDE)
    with pytest.raises(ValueError, match=r"have shape \(256, 3\), expected \(256, 5\)"):
        embed(wrong, dots, tmp_path / "z")

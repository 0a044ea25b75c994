"""Our LeWM and SIGReg compute what stable-worldmodel's compute, through public checkpoints."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from public_helpers import PAPER, SMALL, randomise, write_public
from torch import Tensor, nn

from artifact_helpers import names
from goalward.world.checkpoint import load_world
from goalward.world.lewm import LeWM, LeWMConfig, num_parameters
from goalward.world.objective import sample_directions, sigreg
from goalward.world.public import Names, load_public, public_json, save_public

# stable-worldmodel misses a game library that nothing here uses.
pytestmark = pytest.mark.filterwarnings("ignore:ale-py not found:UserWarning")

# Parts of the encoder's tensor names in the releases 4 and 5 of transformers.
RELEASES = (
    ("encoder.encoder.layer.", "encoder.layers."),
    ("attention.attention.query", "attention.q_proj"),
    ("attention.attention.key", "attention.k_proj"),
    ("attention.attention.value", "attention.v_proj"),
    ("attention.output.dense", "attention.o_proj"),
    ("intermediate.dense", "mlp.fc1"),
    ("output.dense", "mlp.fc2"),
)


def renamed(state: dict[str, Tensor], release: Names) -> dict[str, Tensor]:
    result = {}
    for name, tensor in state.items():
        for four, five in RELEASES:
            old, new = (five, four) if release == "transformers-4" else (four, five)
            name = name.replace(old, new)
        result[name] = tensor
    return result


def build(config: dict[str, Any]) -> Any:
    """What hydra would build of the file, by stable-worldmodel and transformers."""
    import transformers
    from stable_worldmodel.wm.lewm import module
    from stable_worldmodel.wm.lewm.lewm import LeWM as TheirLeWM

    def arguments(part: str) -> dict[str, Any]:
        given = {key: value for key, value in config[part].items() if key != "_target_"}
        return given | ({"norm_fn": nn.BatchNorm1d} if "norm_fn" in given else {})

    assert config["encoder"]["size"] == "tiny" and config["predictor"]["emb_dropout"] == 0
    sizes = {key: config["encoder"][key] for key in ("image_size", "patch_size")}
    vit = transformers.ViTConfig(
        hidden_size=192, num_hidden_layers=12, num_attention_heads=3, intermediate_size=768, **sizes
    )
    mask = config["encoder"]["use_mask_token"]
    return TheirLeWM(
        transformers.ViTModel(vit, add_pooling_layer=False, use_mask_token=mask),
        module.Predictor(**arguments("predictor")),
        module.Embedder(**arguments("action_encoder")),
        module.MLP(**arguments("projector")),
        module.MLP(**arguments("pred_proj")),
    )


def assert_close(ours: Tensor, theirs: Tensor) -> None:
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()


@pytest.fixture(scope="module")
def theirs() -> Any:
    """stable-worldmodel's LeWM of the paper's size, with random weights."""
    return randomise(build(PAPER))


@pytest.fixture(scope="module")
def ours(theirs: Any, tmp_path_factory: pytest.TempPathFactory) -> LeWM:
    folder = tmp_path_factory.mktemp("public") / "world"
    return load_world(write_public(folder, PAPER, theirs.state_dict())).model


def test_the_paper_model_has_the_papers_parameters() -> None:
    model = LeWM(LeWMConfig(action_dim=2))
    millions = {name: round(num_parameters(part) / 1e6, 2) for name, part in model.named_children()}
    assert millions == {
        "encoder": 5.50,
        "projector": 0.79,
        "action_encoder": 0.16,
        "predictor": 10.79,
        "pred_proj": 0.79,
    }
    assert round(num_parameters(model) / 1e6, 2) == 18.03


def test_both_namings_give_the_same_world_of_303_tensors(
    theirs: Any, ours: LeWM, tmp_path: Path
) -> None:
    assert len(theirs.state_dict()) == 303
    assert ours.config == LeWMConfig(action_dim=2)
    for release in ("transformers-4", "transformers-5"):
        state = renamed(theirs.state_dict(), release)
        folder = write_public(tmp_path / release, PAPER, state)
        loaded = load_public(folder).state_dict()
        assert all(torch.equal(loaded[name], tensor) for name, tensor in ours.state_dict().items())
        assert any(name.startswith("encoder.layers.") for name in state) == (release[-1] == "5")


@torch.no_grad()
def test_latents_are_upstreams(theirs: Any, ours: LeWM) -> None:
    pixels = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    assert_close(ours.encode(pixels), theirs.encode({"pixels": pixels[:, None]})["emb"][:, 0])


@torch.no_grad()
@pytest.mark.parametrize("steps", [1, 3])
def test_predictions_are_upstreams(theirs: Any, ours: LeWM, steps: int) -> None:
    rng = torch.Generator().manual_seed(2)
    z = torch.randn(4, steps, 192, generator=rng)
    actions = torch.randn(4, steps, 10, generator=rng)
    assert_close(ours.predict(z, actions), theirs.predict(z, theirs.action_encoder(actions)))


@torch.no_grad()
@pytest.mark.parametrize("given", [1, 3])
def test_rollouts_of_five_steps_are_upstreams(theirs: Any, ours: LeWM, given: int) -> None:
    rng = torch.Generator().manual_seed(3)
    pixels = torch.randn(1, given, 3, 224, 224, generator=rng)
    actions = torch.randn(1, 2, given + 4, 10, generator=rng)  # two candidate plans
    info = theirs.rollout({"pixels": pixels[:, None].expand(-1, 2, -1, -1, -1, -1)}, actions)
    z = ours.encode(pixels[0]).expand(2, -1, -1)
    assert_close(ours.rollout(z, actions[0]), info["predicted_emb"][0, :, given:])


@torch.no_grad()
def test_upstream_reads_what_we_export(theirs: Any, ours: LeWM, tmp_path: Path) -> None:
    installed: Names = "transformers-4"
    if any(name.startswith("encoder.layers.") for name in theirs.state_dict()):
        installed = "transformers-5"
    save_public(tmp_path / "world", ours, names=installed)
    assert names(tmp_path) == {"world"}
    assert names(tmp_path / "world") == {"config.json", "weights.pt"}
    reader = build(json.loads((tmp_path / "world" / "config.json").read_text()))
    reader.load_state_dict(torch.load(tmp_path / "world" / "weights.pt"))
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(reader.state_dict()[name], tensor), name


@torch.no_grad()
def test_actions_of_more_than_ten_numbers_are_embedded_as_upstreams(tmp_path: Path) -> None:
    # As in the public Cube checkpoint: 25 numbers a block, of which upstream's default makes 10.
    config = copy.deepcopy(public_json(SMALL))
    config["action_encoder"] |= {"input_dim": 25}
    del config["action_encoder"]["smoothed_dim"]
    theirs = randomise(build(config))
    assert theirs.state_dict()["action_encoder.patch_embed.weight"].shape == (10, 25, 1)
    ours = load_public(write_public(tmp_path / "cube", config, theirs.state_dict()))
    assert ours.config.action_dim == 5
    z, actions = torch.randn(4, 3, 8), torch.randn(4, 3, 25)
    assert_close(ours.predict(z, actions), theirs.predict(z, theirs.action_encoder(actions)))
    save_public(tmp_path / "again", ours)
    assert load_world(tmp_path / "again").id == load_world(tmp_path / "cube").id


def test_sigreg_is_upstreams_in_value_and_gradient() -> None:
    from stable_worldmodel.wm.loss import SIGReg

    results = []
    latents = torch.randn(3, 32, 16, generator=torch.Generator().manual_seed(4)) * 1.5 + 0.2
    with torch.random.fork_rng():
        torch.manual_seed(5)  # upstream draws its directions from the global generator
        their = SIGReg(num_proj=64)
        directions = sample_directions(16, 64, torch.Generator().manual_seed(5))
        for statistic in (lambda z: sigreg(z, directions), their):
            z = latents.clone().requires_grad_()
            value = statistic(z)
            value.backward()
            assert z.grad is not None
            results.append((value.detach(), z.grad))
    assert_close(results[0][0], results[1][0])
    assert_close(results[0][1], results[1][1])

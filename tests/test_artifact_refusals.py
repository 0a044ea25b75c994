"""A folder that is not the stage's own, or no longer as it was written, is refused by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from artifact_helpers import Config, Model, a_stage, names, refusal, write
from goalward.core.artifacts import load_manifest
from goalward.core.config import content_id, read_json, write_json


def test_writing_a_complete_stage_again_is_refused(tmp_path: Path) -> None:
    stage = a_stage(tmp_path / "run")
    write(stage, data="first")
    assert "already complete" in refusal(lambda: write(stage, data="second"))
    assert (stage.folder / "data").read_text() == "first"
    assert names(tmp_path) == {"run"}


@pytest.mark.parametrize("where", ["folder", "partial"])
def test_another_configuration_is_refused_naming_what_differs(tmp_path: Path, where: str) -> None:
    old = a_stage(tmp_path / "run", inputs={"world": "0123"})
    with suppress(RuntimeError), old.writing():
        if where == "partial":
            raise RuntimeError
    new = replace(old, config=Config(seed=1, model=Model(rate=0.2)), inputs={"world": "4567"})
    message = refusal(lambda: write(new))
    assert message.startswith(f"{getattr(old, where)}: holds another configuration (")
    assert 'input.world: "0123" -> "4567", seed: 0 -> 1, model.rate: 0.1 -> 0.2)' in message
    assert "delete the folder or choose another one" in message
    assert getattr(old, where).is_dir()
    later = replace(old, version=2)
    assert "(stage version: 1 -> 2)" in refusal(lambda: write(later))


def test_another_stage_is_refused_by_name(tmp_path: Path) -> None:
    write(a_stage(tmp_path / "run"))
    other = a_stage(tmp_path / "run", name="embed")
    assert "holds stage 'collect', not 'embed'" in refusal(other.is_complete)
    assert "holds stage 'collect', not 'train'" in refusal(
        lambda: load_manifest(tmp_path / "run", stage="train")
    )


@pytest.mark.parametrize("name", ["notes.txt", "manifest.json", "config.json"])
def test_a_foreign_folder_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    stage = a_stage(tmp_path / "run")
    for folder in (stage.folder, stage.partial):
        folder.mkdir()
        (folder / name).write_text("{}")
        message = refusal(lambda: write(stage))
        assert message.startswith(str(folder))
        assert "choose another" in message
        assert names(folder) == {name}
        assert names(tmp_path) == {folder.name}
        (folder / name).unlink()
        folder.rmdir()


def test_a_file_or_dangling_link_in_the_folders_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "link"):
        assert "not a complete stage" in refusal(a_stage(tmp_path / name).is_complete)


def damage_config(folder: Path) -> None:
    data = read_json(folder / "config.json")
    data["config"]["seed"] = 7
    write_json(folder / "config.json", data)


def replace_config(folder: Path) -> None:
    data = read_json(folder / "config.json")
    data["config"]["seed"] = 7
    identity = {key: value for key, value in data.items() if key != "id"}
    write_json(folder / "config.json", {**identity, "id": content_id(identity)})


def damage_manifest(folder: Path) -> None:
    data = read_json(folder / "manifest.json")
    write_json(folder / "manifest.json", {**data, "id": "0" * 16})


def truncate_manifest(folder: Path) -> None:
    os.truncate(folder / "manifest.json", 30)


def strip_manifest(folder: Path) -> None:
    data = read_json(folder / "manifest.json")
    del data["files"]
    write_json(folder / "manifest.json", data)


def truncate_payload(folder: Path) -> None:
    os.truncate(folder / "data", 2)


def remove_payload(folder: Path) -> None:
    (folder / "data").unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_config, "config.json: changed after it was written"),
        (replace_config, "manifest.json: belongs to another config.json"),
        (damage_manifest, "manifest.json: belongs to another config.json"),
        (truncate_manifest, "manifest.json: not valid JSON"),
        (strip_manifest, "manifest.json: files: missing key"),
        (truncate_payload, "data: payload has 2 bytes instead of 7"),
        (remove_payload, "data: payload is missing"),
    ],
)
def test_a_damaged_stage_is_refused_naming_the_file(
    tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    stage = a_stage(tmp_path / "run")
    write(stage)
    damage(stage.folder)
    for action in (stage.is_complete, lambda: load_manifest(stage.folder), lambda: write(stage)):
        said = refusal(action)
        assert said.startswith(f"{stage.folder}/{message}")
        assert said.endswith("; restore it, or delete the folder or choose another one")


def test_payload_may_not_take_the_names_of_our_own_files(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"manifest.json is no name for payload"):
        write(a_stage(tmp_path / "a"), **{"manifest.json": "{}"})
    with pytest.raises(ValueError, match="not the config of a goalward stage"):
        write(a_stage(tmp_path / "b"), **{"config.json": "{}"})
    assert names(tmp_path) == {"a.partial", "b.partial"}


@pytest.mark.parametrize("folder", ["/", "..", "run.partial", "run.lock"])
def test_a_folder_that_cannot_name_a_stage_is_refused(folder: str) -> None:
    assert refusal(lambda: a_stage(Path(folder))).startswith(f"folder: '{folder}' cannot name")

"""Tensor files, a file's tensors as those of a module, and the id that tensors give a module."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from goalward.core.array_files import read_arrays, write_arrays
from goalward.core.config import canonical
from goalward.core.config_errors import key_name

Module = TypeVar("Module", bound=nn.Module)


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes tensors and texts about them, atomically."""
    write_arrays(path, {n: t.detach().cpu().numpy() for n, t in tensors.items()}, metadata)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and texts of a file that `write_tensors` wrote; refuses any changed byte."""
    arrays, metadata = read_arrays(path)
    return {name: torch.from_numpy(array) for name, array in arrays.items()}, metadata


def make_module(make: Callable[[], Module], found: Mapping[str, object], where: object) -> Module:
    """A module whose tensors are those of a file.

    Args:
        make: Makes the module. It is called on the meta device first, so that a configuration with
            other sizes than the file's is refused before it can ask for memory.
        found: The content of the file; other float types are converted.
        where: The file, put in front of every message.
    """
    try:
        with torch.device("meta"):
            wanted = make().state_dict()
    except RuntimeError as error:  # more numbers than 64 bits can count
        raise ValueError(f"{where}: its configuration asks for impossible sizes") from error
    fitting = _fitting(wanted, found, where)
    with torch.random.fork_rng(devices=[]):  # initial weights are drawn, and overwritten
        module = make()
    module.load_state_dict(fitting)
    return module


def fill(targets: Mapping[str, Tensor], found: Mapping[str, object], where: object) -> None:
    """Copies the content of a file into the targets of the same names; see `make_module`."""
    for name, value in _fitting(targets, found, where).items():
        targets[name].copy_(value)


def require_finite(tensors: Mapping[str, Tensor], where: object) -> None:
    """Refuses tensors with NaN or infinity by the name of the first one."""
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ValueError(f"{where}: tensor {name} holds NaN or infinity; train again")


def tensors_id(about: object, tensors: Mapping[str, Tensor]) -> str:
    """16 hex digits that change with `about` (plain JSON) and with any bit of any tensor."""
    digest = hashlib.sha256(canonical(about).encode())
    for name, tensor in sorted(tensors.items()):
        kind = str(tensor.dtype).removeprefix("torch.")
        digest.update(canonical([name, kind, list(tensor.shape)]).encode())
        digest.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _fitting(
    targets: Mapping[str, Tensor], found: Mapping[str, object], where: object
) -> dict[str, Tensor]:
    """The content of a file in the types of the targets, whose values do not matter."""
    fitting: dict[str, Tensor] = {}
    for name in dict.fromkeys([*targets, *found]):
        target, value = targets.get(name), found.get(name)
        if problem := _misfit(target, value):
            hint = "use the weights of this configuration"
            raise ValueError(f"{where}: tensor {key_name(name)} {problem}; {hint}")
        assert target is not None and isinstance(value, Tensor)
        fitting[name] = value.to(target.dtype)  # a large float64 becomes infinite here
    require_finite(fitting, where)
    return fitting


def _misfit(target: Tensor | None, value: object) -> str:
    """Why a file's tensor cannot take the place of the target; empty if it can."""
    if value is None:
        return "is missing"
    if target is None:
        return "is not part of this configuration"
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        return f"is a {type(value).__name__}, not a plain tensor"
    if value.shape != target.shape:
        return f"has shape {tuple(value.shape)} instead of {tuple(target.shape)}"
    if value.is_floating_point() != target.is_floating_point() or value.is_complex():
        return f"has type {value.dtype} instead of {target.dtype}".replace("torch.", "")
    return ""

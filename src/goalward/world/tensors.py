"""Stored tensors into a model's, each accounted for; and the id that a model's tensors give it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

from goalward.config import canonical


def fill(targets: Mapping[str, Tensor], found: Mapping[str, object], where: object) -> None:
    """Copies what was found in a file into the targets of the same names.

    Args:
        targets: tensors that share their memory with a model's.
        found: the content of the file; other float types are converted.
        where: the file, put in front of every message.

    Raises:
        ValueError: one line about the first tensor that is missing, unexpected or unfit.
    """
    for name in targets:
        if name not in found:
            raise _refusal(where, name, "is missing")
    for name, value in found.items():
        if name not in targets:
            raise _refusal(where, name, "is not part of this configuration")
        targets[name].copy_(_fitting(name, value, targets[name], where))


def require_finite(tensors: Mapping[str, Tensor], where: object) -> None:
    """Refuses tensors with a NaN or an infinity, by the name of the first."""
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{where}: tensor {name} holds NaN or infinity; train anew")


def tensors_id(about: object, tensors: Mapping[str, Tensor]) -> str:
    """16 hex digits that change with `about` (plain JSON) and with any bit of any tensor."""
    digest = hashlib.sha256(canonical(about).encode())
    for name, tensor in sorted(tensors.items()):
        kind = str(tensor.dtype).removeprefix("torch.")
        digest.update(canonical([name, kind, list(tensor.shape)]).encode())
        digest.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _fitting(name: str, value: object, target: Tensor, where: object) -> Tensor:
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        raise _refusal(where, name, f"is a {type(value).__name__}, not a plain tensor")
    if value.shape != target.shape:
        shapes = f"{tuple(value.shape)} instead of {tuple(target.shape)}"
        raise _refusal(where, name, f"has shape {shapes}")
    if value.is_floating_point() != target.is_floating_point() or value.is_complex():
        kinds = f"{value.dtype} instead of {target.dtype}".replace("torch.", "")
        raise _refusal(where, name, f"has type {kinds}")
    fitting = value.to(target.dtype)  # before the check: a large float64 becomes infinite here
    require_finite({name: fitting}, where)
    return fitting


def _refusal(where: object, name: object, problem: str) -> ValueError:
    shown = name if isinstance(name, str) and name.isprintable() else repr(name)
    return ValueError(f"{where}: tensor {shown} {problem}; use the weights of this configuration")

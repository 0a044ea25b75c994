"""Stored tensors into a model's, each accounted for; and the id that a model's tensors give it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor
from torch.overrides import TorchFunctionMode

from goalward.core.checks import describe
from goalward.core.config import canonical
from goalward.core.files import atomic_write

SPARE = 2**24  # numbers that a model may have beside those of its file


def require_tensor(
    value: object, name: str, *shape: int | str, dtype: torch.dtype = torch.float32
) -> None:
    """Refuses what is no tensor of this type and shape; a letter stands for any size."""
    if (
        not isinstance(value, Tensor)
        or value.dtype != dtype
        or value.ndim != len(shape)
        or any(w != s for w, s in zip(shape, value.shape, strict=True) if isinstance(w, int))
    ):
        kind, sizes = str(dtype).removeprefix("torch."), ", ".join(map(str, shape))
        raise ValueError(f"{name} must be {kind} of shape ({sizes}), got {describe(value)}")


class Allowance(TorchFunctionMode):
    """While a model is made for the tensors of a file: refuses sizes that are not theirs.

    A damaged size would otherwise ask for any amount of memory before `fill` could refuse it.
    """

    def __init__(self, found: Iterable[Tensor], where: object) -> None:
        super().__init__()
        self._left = SPARE + sum(tensor.numel() for tensor in found)
        self._where = where

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Called in place of every torch function."""
        if func in (torch.empty, torch.zeros, torch.ones, torch.randn) and args:
            self._left -= math.prod(args if isinstance(args[0], int) else args[0])
            if self._left < 0:
                raise ValueError(
                    f"{self._where}: its configuration asks for larger tensors than it has; "
                    "restore it or train anew"
                )
        return func(*args, **(kwargs or {}))


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


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, str] | None = None
) -> None:
    """Writes a safetensors file so that `path` holds either the old content or all of the new."""
    plain = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_write(path) as temporary:
        # Bytes first: writing them plainly keeps the system's own error when the disk is full.
        temporary.write_bytes(serialise(plain, dict(facts or {})))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Reads a file that `write_tensors` wrote: its tensors and its facts.

    Raises:
        ValueError: the file is damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            names, facts = file.keys(), file.metadata() or {}
            return {name: file.get_tensor(name) for name in names}, facts
    except SafetensorError as error:
        raise ValueError(f"{path}: damaged or cut short; restore it or train anew") from error

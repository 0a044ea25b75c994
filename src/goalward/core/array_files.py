"""Named arrays in one file: the safetensors format, with a checksum in the header.

Imports no torch; `core.tensors` reads and writes tensors through it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from goalward.core.arrays import Array
from goalward.core.files import (
    CHECKSUM,
    EMPTY_SEAL,
    atomic_write,
    how_to_remake,
    require_sealed,
    sealed,
)


def write_arrays(
    path: Path, arrays: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes arrays and texts about them, atomically."""
    # np.asarray keeps arrays without dimensions as they are; np.ascontiguousarray does not.
    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    data = sealed(save(plain, {CHECKSUM: EMPTY_SEAL, **(metadata or {})}))
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)


def read_arrays(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays and texts of a file that `write_arrays` wrote; refuses any changed byte."""
    data, remedy = path.read_bytes(), how_to_remake(path)
    try:
        arrays = load(data)
    except (SafetensorError, KeyError) as error:  # such as sizes that the file does not have
        raise ValueError(f"{path}: damaged or cut short; {remedy}") from error
    require_sealed(data, path, remedy)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    metadata: dict[str, str] = header.get("__metadata__", {})
    return arrays, {name: text for name, text in metadata.items() if name != CHECKSUM}

"""Checksums show any changed byte."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from goalward.core.files import EMPTY_SEAL, checksum, file_checksum, require_sealed, sealed


def test_a_checksum_is_the_known_one_of_xxh3_and_a_file_has_that_of_its_content(
    tmp_path: Path,
) -> None:
    assert checksum(b"") == "2d06800538d394c2"  # of the specification
    assert checksum(b"goalward") == checksum(b"goal", b"ward")
    (tmp_path / "file").write_bytes(b"x" * 10_000_000)
    assert file_checksum(tmp_path / "file") == checksum(b"x" * 10_000_000)


def test_any_changed_byte_of_sealed_content_is_refused_by_the_name_of_the_file() -> None:
    data = sealed(b'{"weights": "' + bytes(range(128)) + f'", "seal": "{EMPTY_SEAL}"}}'.encode())
    require_sealed(data, "a.json", "train again")
    rng = random.Random(0)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= rng.randrange(1, 256)
        with pytest.raises(ValueError, match=r"^a\.json: .*train again$"):
            require_sealed(bytes(changed), "a.json", "train again")

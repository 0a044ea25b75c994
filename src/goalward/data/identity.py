"""What an episode file is known by, so that results can name what they came from."""

from __future__ import annotations

import hashlib

import numpy as np

from goalward.artifacts import Manifest, load_manifest
from goalward.config import canonical
from goalward.data.episodes import Episodes

SAMPLED_FRAMES = 64


def episodes_id(episodes: Episodes) -> str:
    """The id of the stage that wrote the file or, for a foreign file, a digest of its content.

    The digest covers the columns, the episodes' lengths, all actions and some of the frames:
    hashing gigabytes of frames at every start would cost more than it protects.
    """
    if (manifest := _manifest(episodes)) is not None:
        return manifest.id
    digest = hashlib.sha256()
    columns = [[c.name, list(c.shape), str(c.dtype)] for c in episodes.columns.values()]
    digest.update(canonical(sorted(columns)).encode())
    digest.update(episodes.lengths.tobytes())
    if "action" in episodes.columns:
        digest.update(np.ascontiguousarray(episodes.read("action", 0, episodes.num_rows)).tobytes())
    if "pixels" in episodes.columns:
        rows = np.linspace(0, episodes.num_rows - 1, SAMPLED_FRAMES).astype(np.int64)
        digest.update(np.ascontiguousarray(episodes.rows("pixels", rows)).tobytes())
    return digest.hexdigest()[:16]


def _manifest(episodes: Episodes) -> Manifest | None:
    """The manifest of the stage that the file is payload of, if it is."""
    try:
        manifest = load_manifest(episodes.path.parent)
    except ValueError:
        return None  # some other folder
    return manifest if episodes.path.name in manifest.files else None

"""Downloading a public checkpoint, and only when the user asks for it."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from goalward.checks import one_line
from goalward.world.public_layout import CONFIG, WEIGHTS, new_folder

HUB = "https://huggingface.co"
TIMEOUT = 30.0  # seconds without an answer
LARGEST_FILE = 2 * 10**9  # bytes
CHUNK = 2**20  # bytes
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


def is_repo_id(text: str) -> bool:
    """Whether the text has the form OWNER/NAME."""
    return _REPO_ID.fullmatch(text) is not None


def fetch_public(
    repo_id: str, folder: str | os.PathLike[str], *, endpoint: str | None = None
) -> None:
    """Downloads `config.json` and `weights.pt` of a public checkpoint into a new folder.

    Args:
        repo_id: such as `quentinll/lewm-pusht`.
        folder: must not exist yet, or be empty; it appears when both files are complete.
        endpoint: the hub; by default that of the environment variable HF_ENDPOINT, or else HUB.

    Raises:
        ValueError: one line about what is wrong with the arguments or with the download.
    """
    if not is_repo_id(repo_id):
        raise ValueError(f"{repo_id!r} is no repository; give it as OWNER/NAME")
    base = (endpoint or os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")
    _require_safe(base)
    with new_folder(Path(folder)) as partial:
        for name in (CONFIG, WEIGHTS):
            _download(f"{base}/{repo_id}/resolve/main/{name}", partial / name)


class _SafeRedirects(HTTPRedirectHandler):
    """Follows redirections, as hubs send to their storage, but to safe addresses only."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        with fp:
            _require_safe(newurl)
            return super().redirect_request(req, fp, code, msg, headers, newurl)


def _require_safe(url: str) -> None:
    parts = urlsplit(url)
    local = parts.scheme == "http" and parts.hostname in LOOPBACK
    if not parts.hostname or not (parts.scheme == "https" or local):
        raise ValueError(f"{url}: not downloaded, since it is not https; check HF_ENDPOINT")


def _download(url: str, path: Path) -> None:
    opener = build_opener(_SafeRedirects())
    with _network_errors(url), opener.open(url, timeout=TIMEOUT) as response:
        promised = int(response.headers.get("Content-Length") or -1)
        _require_small(url, promised)
        received = 0
        with path.open("xb") as stream:
            while chunk := response.read(CHUNK):
                received += len(chunk)
                _require_small(url, received)
                stream.write(chunk)
    if promised >= 0 and received != promised:
        raise ValueError(f"{url}: only {received} of {promised} bytes arrived; try again")


def _require_small(url: str, size: int) -> None:
    if size > LARGEST_FILE:
        raise ValueError(f"{url}: larger than {LARGEST_FILE / 1e9:g} GB, so no LeWM checkpoint")


@contextmanager
def _network_errors(url: str) -> Iterator[None]:
    try:
        yield
    except (URLError, HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
        if isinstance(error, URLError) and hasattr(error, "close"):
            error.close()  # the answer of the server that an HTTPError carries
        reason = one_line(str(error)) or type(error).__name__
        hint = "check the name and the connection"
        raise ValueError(f"{url}: not downloaded ({reason}); {hint}") from error

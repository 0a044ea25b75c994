"""Downloads of public checkpoints arrive whole or not at all, from safe addresses only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from artifact_helpers import names, refusal
from goalward.world import public as fetch
from goalward.world.public import fetch_public, is_repo_id

WEIGHTS = "/owner/name/resolve/main/weights.pt"


@dataclass
class Hub:
    """A server on this machine: what it answers, and what it was asked."""

    url: str
    answers: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def serve(self, path: str, body: bytes = b"", status: int = 200, **headers: str) -> None:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        self.answers[path] = (status, {"Content-Length": str(len(body))} | named, body)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append(self.path)
            status, headers, body = made.answers.get(self.path, (404, {}, b""))
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    monkeypatch.setenv("no_proxy", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made = Hub(f"http://127.0.0.1:{server.server_port}")
        made.serve("/owner/name/resolve/main/config.json", b"{}")
        made.serve(WEIGHTS, b"tensors")
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        server.shutdown()
        thread.join()


def test_both_files_are_fetched_into_a_new_folder(hub: Hub, tmp_path: Path) -> None:
    fetch_public("owner/name", tmp_path / "new" / "world", endpoint=hub.url + "/")
    assert names(tmp_path / "new") == {"world"}
    assert names(tmp_path / "new" / "world") == {"config.json", "weights.pt"}
    assert (tmp_path / "new" / "world" / "weights.pt").read_bytes() == b"tensors"


def test_the_environment_names_the_hub(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    fetch_public("owner/name", tmp_path / "world")
    assert hub.asked == ["/owner/name/resolve/main/config.json", WEIGHTS]


def test_a_redirection_is_followed(hub: Hub, tmp_path: Path) -> None:
    hub.serve(WEIGHTS, status=302, Location=f"{hub.url}/storage")
    hub.serve("/storage", b"from the storage")
    fetch_public("owner/name", tmp_path / "world", endpoint=hub.url)
    assert (tmp_path / "world" / "weights.pt").read_bytes() == b"from the storage"


@pytest.mark.parametrize("target", ["http://example.com/weights.pt", "file:///etc/hostname"])
def test_a_redirection_to_an_unsafe_address_is_refused(
    hub: Hub, tmp_path: Path, target: str
) -> None:
    hub.serve(WEIGHTS, status=302, Location=target)
    message = refusal(lambda: fetch_public("owner/name", tmp_path / "world", endpoint=hub.url))
    assert target in message and names(tmp_path) == set()


@pytest.mark.parametrize(
    "endpoint", ["http://huggingface.co", "ftp://127.0.0.1", "file:///tmp", "huggingface.co"]
)
def test_an_endpoint_without_encryption_is_refused(tmp_path: Path, endpoint: str) -> None:
    message = refusal(lambda: fetch_public("owner/name", tmp_path / "world", endpoint=endpoint))
    assert "not https" in message


@pytest.mark.parametrize(
    "repo_id", ["name", "a/b/c", "../name", "owner/..", "owner/", "o wner/name", "owner/na?me", ""]
)
def test_what_is_no_repository_is_never_asked_for(repo_id: str, tmp_path: Path) -> None:
    assert not is_repo_id(repo_id)
    assert "OWNER/NAME" in refusal(lambda: fetch_public(repo_id, tmp_path / "world"))


def test_a_missing_file_is_refused_and_leaves_nothing(hub: Hub, tmp_path: Path) -> None:
    del hub.answers[WEIGHTS]
    message = refusal(lambda: fetch_public("owner/name", tmp_path / "world", endpoint=hub.url))
    assert WEIGHTS in message and "404" in message and names(tmp_path) == set()


def test_a_server_that_does_not_answer_is_refused(tmp_path: Path, hub: Hub) -> None:
    closed = "http://127.0.0.1:1"
    message = refusal(lambda: fetch_public("owner/name", tmp_path / "world", endpoint=closed))
    assert "check the name and the connection" in message


def test_a_download_that_is_cut_short_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.serve(WEIGHTS, b"tens", Content_Length="7")
    message = refusal(lambda: fetch_public("owner/name", tmp_path / "world", endpoint=hub.url))
    assert WEIGHTS in message and names(tmp_path) == set()


@pytest.mark.parametrize("announced", [True, False])
def test_a_file_that_is_too_large_is_refused(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, announced: bool
) -> None:
    monkeypatch.setattr(fetch, "LARGEST_FILE", 6)
    if not announced:
        hub.answers[WEIGHTS] = (200, {}, b"tensors")
    message = refusal(lambda: fetch_public("owner/name", tmp_path / "world", endpoint=hub.url))
    assert "larger than" in message and names(tmp_path) == set()


def test_a_folder_in_use_is_left_alone(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = refusal(lambda: fetch_public("owner/name", tmp_path, endpoint=hub.url))
    assert "exists already" in message and hub.asked == [] and names(tmp_path) == {"file"}

"""A model arrives whole and unaltered, or not at all, however often the line breaks."""

import contextlib
import hashlib
import re
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from service.client import Client, ClientError, ProblemError, UnreachableError
from service.client import models as models_module
from tests.support.http_server import listening

WEIGHTS = bytes(range(256)) * 64


class Shelf:
    """Serves weights by range, and breaks each line after so many bytes."""

    def __init__(self, *cuts: int | None) -> None:
        self.weights = WEIGHTS
        self.tag: str | None = None
        self.cuts = list(cuts)
        self.asked: list[str | None] = []

    @property
    def etag(self) -> str:
        return self.tag or f'"{hashlib.sha256(self.weights).hexdigest()}"'

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        asked = handler.headers["Range"]
        self.asked.append(asked)
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked else 0  # type: ignore[index]
        if handler.headers["If-Range"] not in (None, self.etag):
            start = 0
        if asked and start >= len(self.weights):
            handler.send_response(416)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        body = self.weights[start:]
        handler.send_response(206 if start else 200)
        if self.tag != "":
            handler.send_header("ETag", self.etag)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        cut = self.cuts.pop(0) if self.cuts else None
        handler.wfile.write(body if cut is None else body[:cut])
        handler.close_connection = True


@contextlib.contextmanager
def serving(answer: Callable[[Any], None]) -> Generator[Client]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            answer(self)

    with listening(Handler) as url, Client(url) as client:
        yield client


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models_module, "RETRY_AFTER_SECONDS", (0.0, 0.0))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_is_saved_with_its_size_and_digest_and_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    with serving(Shelf().answer) as client:
        saved = client.save_model("s", tmp_path / "m", on_progress=lambda *now: told.append(now))

    assert (tmp_path / "m").read_bytes() == WEIGHTS
    assert (saved.size_bytes, saved.sha256) == (len(WEIGHTS), hashlib.sha256(WEIGHTS).hexdigest())
    assert (told[0], told[-1]) == ((0, len(WEIGHTS)), (len(WEIGHTS), len(WEIGHTS)))
    assert names(tmp_path) == ["m"]


def test_a_cut_line_is_taken_up_where_it_ended(tmp_path: Path) -> None:
    shelf = Shelf(5000, 300, 1, None)
    with serving(shelf.answer) as client:
        client.save_model("s", tmp_path / "m")

    assert (tmp_path / "m").read_bytes() == WEIGHTS
    assert shelf.asked == [None, "bytes=5000-", "bytes=5300-", "bytes=5301-"]


def test_what_arrived_is_kept_for_the_next_time(tmp_path: Path) -> None:
    shelf = Shelf(5000, 0, 0, 0)
    with serving(shelf.answer) as client:
        with pytest.raises(UnreachableError):
            client.save_model("s", tmp_path / "m")
        assert names(tmp_path) == ["m.part", "m.part.sha256"]
        shelf.cuts.clear()
        client.save_model("s", tmp_path / "m")

    assert shelf.asked[-1] == "bytes=5000-"
    assert (tmp_path / "m").read_bytes() == WEIGHTS
    assert names(tmp_path) == ["m"]


def test_a_part_of_other_weights_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "m.part").write_bytes(b"x" * 100)
    (tmp_path / "m.part.sha256").write_text("0" * 64)
    with serving(Shelf().answer) as client:
        client.save_model("s", tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == WEIGHTS


def test_a_part_that_was_whole_already_is_no_trap(tmp_path: Path) -> None:
    (tmp_path / "m.part").write_bytes(WEIGHTS)
    (tmp_path / "m.part.sha256").write_text(hashlib.sha256(WEIGHTS).hexdigest())
    with serving(Shelf().answer) as client:
        client.save_model("s", tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == WEIGHTS


def test_altered_weights_are_refused_and_what_was_there_stays(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"the one before")
    shelf = Shelf()
    shelf.tag = f'"{"0" * 64}"'
    with serving(shelf.answer) as client, pytest.raises(ClientError, match="it was deleted"):
        client.save_model("s", tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == b"the one before"
    assert "m.part" not in names(tmp_path)


def test_without_a_digest_nothing_is_believed(tmp_path: Path) -> None:
    shelf = Shelf()
    shelf.tag = ""
    with serving(shelf.answer) as client, pytest.raises(ClientError, match="does not state"):
        client.save_model("s", tmp_path / "m")
    assert names(tmp_path) == []


def test_a_study_without_a_model_leaves_nothing(tmp_path: Path) -> None:
    def refuse(handler: BaseHTTPRequestHandler) -> None:
        handler.send_error(404)

    with serving(refuse) as client, pytest.raises(ProblemError, match="404"):
        client.save_model("s", tmp_path / "m")
    assert names(tmp_path) == []

"""A web server on this machine that lists and serves a folder, and counts what it was asked."""

import functools
import http.server
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.http_server import listening


@dataclass
class FileServer:
    """Where it is, and every path that was asked of it."""

    url: str = ""
    asked: list[str] = field(default_factory=list)
    redirects: dict[str, str] = field(default_factory=dict)
    """Paths that are answered by another place's address."""


@contextmanager
def serving(folder: Path) -> Iterator[FileServer]:
    told = FileServer()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            told.asked.append(self.path)
            target = told.redirects.get(self.path)
            if target is None:
                super().do_GET()
                return
            self.send_response(302)
            self.send_header("Location", target)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET  # noqa: N815 - http.server's name

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    handler = functools.partial(Handler, directory=str(folder))
    with listening(handler) as told.url:
        yield told

"""A web server on this machine that lists and serves a folder, and counts what it was asked."""

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


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
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        told.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield told
        server.shutdown()
        thread.join()

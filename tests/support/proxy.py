"""A TCP proxy of our own, for what a network does to a message: it is lost, or its answer is."""

import select
import socket
import socketserver
import threading
from collections.abc import Callable
from enum import Enum, auto
from typing import Self


class Fate(Enum):
    """What becomes of one message that a client sends."""

    ARRIVES = auto()
    IS_LOST = auto()
    """It never reaches the server, and nobody says so until :meth:`Proxy.heal`."""
    ANSWER_IS_LOST = auto()
    """The server does what it was asked to; the connection breaks before its answer is through."""


Rule = Callable[[bytes], Fate]


def arrives(message: bytes) -> Fate:
    """The rule of a network without faults."""
    return Fate.ARRIVES


class Proxy:
    """Listens on the loopback, forwards to ``target``, and asks ``rule`` about every message.

    A message is what one read of a client's socket gives: for HTTP/1.1 and for PostgreSQL, the
    beginning of a request is the beginning of a message.
    """

    def __init__(self, target: tuple[str, int] | None = None) -> None:
        self.target = target
        """Where to; None refuses every connection."""
        self.rule: Rule = arrives
        self.healed = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Connection)
        self._server.proxy = self

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    def heal(self) -> None:
        """No more faults; connections whose messages were lost break now."""
        self.rule = arrives
        self.healed.set()
        self.healed = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    proxy: Proxy


class _Connection(socketserver.BaseRequestHandler):
    request: socket.socket
    server: _Server

    def handle(self) -> None:
        proxy = self.server.proxy
        if proxy.target is None:
            return
        try:
            with socket.create_connection(proxy.target, timeout=5) as upstream:
                upstream.settimeout(None)
                self._pump(upstream, proxy)
        except OSError:
            pass  # A peer that breaks its connection is one of the faults.

    def _pump(self, upstream: socket.socket, proxy: Proxy) -> None:
        answer_is_lost = False
        while True:
            readable, _, _ = select.select([self.request, upstream], [], [])
            for source in readable:
                chunk = source.recv(65_536)
                if not chunk:
                    return
                if source is upstream:
                    if answer_is_lost:
                        return
                    self.request.sendall(chunk)
                    continue
                healed = proxy.healed
                fate = proxy.rule(chunk)
                if fate is Fate.IS_LOST:
                    healed.wait()
                    return
                answer_is_lost |= fate is Fate.ANSWER_IS_LOST
                upstream.sendall(chunk)

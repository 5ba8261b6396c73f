"""Processes that wait for orders, so that contenders with processes of their own can take turns."""

import multiprocessing
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any


@contextmanager
def waiting(
    serve: Callable[..., None], arguments: Sequence[tuple[Any, ...]]
) -> Generator[list[Connection]]:
    """A fresh process for each of ``arguments`` that calls ``serve(connection, *arguments)``.

    ``serve`` answers what it receives until that is None.
    """
    context = multiprocessing.get_context("spawn")
    ours: list[Connection] = []
    started: list[Any] = []
    for each in arguments:
        here, there = context.Pipe()
        started.append(context.Process(target=serve, args=(there, *each), daemon=True))
        started[-1].start()
        ours.append(here)
    try:
        yield ours
    finally:
        for connection in ours:
            connection.send(None)
        for process in started:
            process.join()

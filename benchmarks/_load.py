"""An open-loop HTTP client: requests leave when they are due, whether earlier ones are answered or not.

Latency counts from the moment at which a request was due: a server that stalls is charged for everybody who
waited, not only for the one request that it stalled on.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Answers:
    """Seconds of every answer, and how many were not 200."""

    seconds: list[float] = field(default_factory=list)
    refused: int = 0

    def quantile(self, share: float) -> float:
        """The latency that this share of answers is not above."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Connection:
    """One kept-open connection; plain HTTP/1.1 with a Content-Length in every answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, host: str, port: int) -> "Connection":
        """A new connection."""
        return cls(*await asyncio.open_connection(host, port))

    async def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of one GET."""
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = head.split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:] if line)
        }
        body = await self._reader.readexactly(int(headers["content-length"]))
        return int(lines[0].split()[1]), body

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


async def steady(
    host: str,
    port: int,
    path: Callable[[int], str],
    *,
    clients: int,
    per_second: float,
    seconds: float,
) -> Answers:
    """What ``clients`` see that together ask ``per_second`` times, each on a connection of its own."""
    answers = Answers()
    connections = [await Connection.open(host, port) for _ in range(clients)]
    total = int(per_second * seconds)
    start = time.perf_counter() + 0.1

    async def client(index: int) -> None:
        for number in range(index, total, clients):
            due = start + number / per_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            status, _ = await connections[index].get(path(number))
            answers.seconds.append(time.perf_counter() - due)
            answers.refused += status != 200

    await asyncio.gather(*map(client, range(clients)))
    for connection in connections:
        connection.close()
    return answers


async def in_turn(host: str, port: int, paths: list[str]) -> Answers:
    """What one client sees that asks again as soon as it is answered."""
    answers = Answers()
    connection = await Connection.open(host, port)
    for path in paths:
        asked = time.perf_counter()
        status, _ = await connection.get(path)
        answers.seconds.append(time.perf_counter() - asked)
        answers.refused += status != 200
    connection.close()
    return answers

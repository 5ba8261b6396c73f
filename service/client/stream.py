"""Server-Sent Events as the service writes them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from service.client.errors import ClientError


@dataclass(frozen=True)
class Event:
    """One event of a study."""

    seq: int
    kind: str
    data: dict[str, Any]


def events(lines: Iterator[str]) -> Iterator[Event]:
    """The events of a ``text/event-stream``; one that the line cut short is not delivered.

    Raises:
        ClientError: what is no event of a study.
    """
    data: list[str] = []
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            if name == "data":
                data.append(value.removeprefix(" "))
        elif data:
            yield _event("\n".join(data))
            data = []


def _event(text: str) -> Event:
    try:
        data = json.loads(text)
        return Event(seq=data["seq"], kind=data["kind"], data=data)
    except (ValueError, TypeError, KeyError) as error:
        raise ClientError(f"the server sent what is no event: {text[:200]!r}") from error

"""Cursors of lists: a place in one list, as its filters and its order make it."""

import base64
import hashlib
import json
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter

from service.errors import InvalidInputError

Place = TypeVar("Place")
Cursor = str | None


def encode(place: Any, *, listing: BaseModel) -> str:
    """The cursor as callers see it: opaque, safe in a URL.

    Args:
        place: where the page ended: what the list is ordered by, of its last item.
        listing: the filters and the order; a cursor of one listing is refused by any other.
    """
    raw = json.dumps([_digest(listing), place], default=str).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decode(token: str, kind: TypeAdapter[Place], *, listing: BaseModel) -> Place:
    """The place that :func:`encode` wrote for this listing.

    Raises:
        InvalidInputError: it is not a cursor, or one of a list with other filters.
    """
    try:
        raw = base64.urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        digest, place = json.loads(raw)
        if digest != _digest(listing):
            raise _refused("belongs to a list with other filters or another order", token)
        return kind.validate_python(place)
    except (ValueError, TypeError, RecursionError) as error:
        raise _refused("not a cursor of this list: pass next_cursor of a page", token) from error


def _digest(listing: BaseModel) -> str:
    text = f"{type(listing).__name__} {listing.model_dump_json(exclude_defaults=True)}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _refused(message: str, token: str) -> InvalidInputError:
    return InvalidInputError.at("cursor", message, token[:200])

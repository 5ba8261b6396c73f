"""Entity tags (RFC 9110): no answer is sent twice, no edit undoes another that it did not see."""

import hashlib
from typing import Annotated

from fastapi import Header
from fastapi.responses import Response

from service.errors import PreconditionFailedError, PreconditionRequiredError

IfNoneMatch = Annotated[
    str | None, Header(max_length=1000, description="ETag of the answer that is at hand")
]
IfMatch = Annotated[
    str | None, Header(max_length=1000, description="ETag of what is to be changed, or *")
]
CACHE_CONTROL = "private, no-cache"
"""Kept by whoever asked, and asked for again each time: most answers are 304 then."""
NOT_MODIFIED = {304: {"description": "The answer is the one that If-None-Match names"}}


def of_content(content: bytes, *, version: int = 0) -> str:
    """The tag of an answer: the number of the edit, and a digest of every byte."""
    return f'"{version}-{hashlib.sha256(content).hexdigest()[:16]}"'


def answer(content: bytes, if_none_match: str | None, *, version: int = 0) -> Response:
    """JSON with its tag, or 304 where the caller has it already."""
    tag = of_content(content, version=version)
    headers = {"ETag": tag, "Cache-Control": CACHE_CONTROL}
    if is_at_hand(tag, if_none_match):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type="application/json", headers=headers)


def is_at_hand(tag: str, if_none_match: str | None) -> bool:
    """Whether the caller has the answer with this tag; weak tags count."""
    given = [each.removeprefix("W/") for each in _tags(if_none_match)]
    return "*" in given or tag in given


def check_version(if_match: str | None, version: int) -> None:
    """Let an edit pass that was made of the newest edit.

    The digest in a tag is not compared: a study that runs changes by the second, and that is no
    edit.

    Raises:
        PreconditionRequiredError: there is no If-Match.
        PreconditionFailedError: it names another edit.
    """
    if if_match is None:
        raise PreconditionRequiredError(
            "say which version is to be changed: If-Match with the ETag of a GET, or *"
        )
    given = _tags(if_match)
    if "*" not in given and not any(each.startswith(f'"{version}-') for each in given):
        raise PreconditionFailedError(
            f"it was edited since {if_match[:100]}: read it again, then repeat the change with "
            "its new ETag"
        )


def _tags(header: str | None) -> list[str]:
    return [each.strip() for each in (header or "").split(",")]

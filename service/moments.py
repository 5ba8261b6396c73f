"""Times in the addresses of requests."""

from typing import Annotated

from pydantic import AwareDatetime, BeforeValidator


def _is_written_out(value: object) -> object:
    """Pydantic takes a bare number for seconds since 1970: as an address says it, that is a slip."""
    if isinstance(value, str) and ":" not in value:
        raise ValueError("expected a date and a time with its offset, such as 2026-01-31T12:00:00Z")
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_is_written_out)]

"""Addresses of datasets on object stores: which are understood, and which an operator allows.

Nothing is looked up here and nothing fetched: what is refused has caused no traffic.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator

from tan_core.errors import DatasetError
from tan_core.spec.base import listed

EXTRAS: Final = {"s3": "s3", "gs": "gcs", "az": "azure", "http": "http", "https": "http"}
"""Schemes, and the extra of this package that reads each."""

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
# No user, no query, no escapes, and none of the "::" with which fsspec chains one scheme behind another.
_FORM = re.compile(r"(?P<scheme>[a-z][a-z0-9]*)://(?P<rest>[^\s?#@%\\]+)")


def is_address(path: str) -> bool:
    """Whether the path names something that is not in a file system of this machine."""
    return _ADDRESS.match(path) is not None and "://" in path


def check_form(address: str) -> str:
    """The address without a last slash, if it is one that means the same to every reader.

    Raises:
        DatasetError: another scheme, or a user, a query, an escape or a dot segment in it.
    """
    found = _FORM.fullmatch(address)
    if found is None or "::" in address:
        raise _refused(
            address, "is no plain scheme://place/path without user, query and escapes (@ ? # % \\)"
        )
    if found["scheme"] not in EXTRAS:
        raise _refused(address, f"has another scheme than {', '.join(EXTRAS)}")
    place, *path = found["rest"].removesuffix("/").split("/")
    if not place or any(part in ("", ".", "..") for part in path):
        raise _refused(address, "has an empty or a dot segment")
    return address.removesuffix("/")


def check_allowed(address: str, allowed: Sequence[str]) -> str:
    """The address as :func:`check_form` has it, if it lies at or below an allowed one.

    Raises:
        DatasetError: it does not.
    """
    address = check_form(address)
    if not any(is_below(address, prefix) for prefix in allowed):
        raise _refused(
            address,
            f"does not lie below what TAN_ALLOWED_DATA_URLS allows: {', '.join(allowed) or 'nothing'}",
        )
    return address


def is_below(address: str, prefix: str) -> bool:
    """Whether the address is the prefix or goes on from it after a slash."""
    return address == prefix or address.startswith(prefix.removesuffix("/") + "/")


def _refused(address: str, why: str) -> DatasetError:
    return DatasetError(
        f"{address[:200]!r} is an address that {why}; nothing is fetched", field="path"
    )


DataUrls = Annotated[
    tuple[Annotated[str, AfterValidator(check_form)], ...], BeforeValidator(listed)
]
"""Addresses at and below which datasets may lie, comma separated."""

"""Where messages go: ``TAN_WEBHOOK_URLS``. Addresses stay out of the database: they may hold secrets."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BeforeValidator

LOOPBACK = ("127.0.0.1", "::1", "localhost")
MAX_URLS = 20


@dataclass(frozen=True)
class Target:
    """One address, and what may be shown of it."""

    url: str

    @property
    def id(self) -> str:
        """Names the address without telling it."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:16]

    @property
    def host(self) -> str:
        """With its port where that is given."""
        parts = urlsplit(self.url)
        port = "" if parts.port is None else f":{parts.port}"
        return f"{parts.hostname}{port}"


def by_id(urls: tuple[str, ...]) -> Mapping[str, Target]:
    """The targets by their ids."""
    return {target.id: target for target in map(Target, urls)}


def _checked(value: Any) -> Any:
    urls = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    return tuple(_check(url) for url in urls if url)[:MAX_URLS]


def _check(url: str) -> str:
    parts = urlsplit(url)
    accepted = "accepted: https://HOST/..., or http:// to this machine, without a password"
    is_local = parts.scheme == "http" and parts.hostname in LOOPBACK
    if not parts.hostname or not (parts.scheme == "https" or is_local):
        raise ValueError(f"{parts.scheme}://{parts.hostname} is no webhook address; {accepted}")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ValueError(f"the webhook address of {parts.hostname} has a part too many; {accepted}")
    parts.port  # noqa: B018 - raises ValueError where it is no port
    return url


WebhookUrls = Annotated[tuple[str, ...], BeforeValidator(_checked)]

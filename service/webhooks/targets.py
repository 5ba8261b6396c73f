"""Where messages go: ``TAN_WEBHOOK_URLS``. Addresses stay out of the database: they may hold secrets."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit


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

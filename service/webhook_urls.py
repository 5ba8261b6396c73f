"""Which addresses may be told of studies: a setting of the operator's, checked as it is read."""

from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BeforeValidator

LOOPBACK = ("127.0.0.1", "::1", "localhost")
MAX_URLS = 20


def _checked(value: Any) -> Any:
    urls = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    checked = tuple(_check(url) for url in urls if url)
    if len(checked) > MAX_URLS:
        raise ValueError(f"{len(checked)} webhook addresses; accepted: {MAX_URLS} at most")
    return checked


def _check(url: str) -> str:
    parts = urlsplit(url)
    accepted = "accepted: https://HOST/..., or http:// to this machine, without a password"
    is_local = parts.scheme == "http" and parts.hostname in LOOPBACK
    if (
        not parts.hostname
    ):  # such as "hooks.example.org/a", which may hold a secret and is not repeated
        raise ValueError(f"an address begins with no scheme and host; {accepted}")
    if not (parts.scheme == "https" or is_local):
        raise ValueError(f"{parts.scheme}://{parts.hostname} is no webhook address; {accepted}")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ValueError(f"the webhook address of {parts.hostname} has a part too many; {accepted}")
    parts.port  # noqa: B018 - raises ValueError where it is no port
    return url


WebhookUrls = Annotated[tuple[str, ...], BeforeValidator(_checked)]

"""Public keys as anyone may hold them."""

from typing import Literal

from tan_core.spec.base import Frozen

ALGORITHM = "Ed25519"


class PublicKey(Frozen):
    """A public key of the service, as anyone may hold it."""

    key_id: str
    """The first 16 hexadecimal digits of the SHA-256 of the raw key."""
    algorithm: str = ALGORITHM
    state: Literal["signing", "retired"]
    public_key: str
    """The raw 32 bytes in base64, as beside a signature."""
    pem: str
    """The same for ``tan-cli statement --verify --key``."""


class KeyList(Frozen):
    """The public key that statements are signed with today, then the retired ones."""

    items: list[PublicKey]

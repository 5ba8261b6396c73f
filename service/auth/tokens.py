"""What an API token looks like: ``tan_<id>_<secret>``."""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

ID_BYTES = 6
SECRET_BYTES = 32
_FORM = re.compile(
    rf"tan_(?P<id>[0-9a-f]{{{2 * ID_BYTES}}})_(?P<secret>[0-9a-f]{{{2 * SECRET_BYTES}}})"
)


@dataclass(frozen=True, slots=True)
class Token:
    """The two halves of a token: the id is public, the secret is shown once."""

    id: str
    secret: str

    @classmethod
    def new(cls) -> "Token":
        """A fresh one: 256 bits from the system's generator."""
        return cls(secrets.token_hex(ID_BYTES), secrets.token_hex(SECRET_BYTES))

    @classmethod
    def parse(cls, text: str) -> "Token | None":
        """The token that somebody presented; None where the text is not one."""
        found = _FORM.fullmatch(text)
        return cls(found["id"], found["secret"]) if found else None

    def __str__(self) -> str:
        return f"tan_{self.id}_{self.secret}"

    def __repr__(self) -> str:
        return f"Token({self.id})"

    @property
    def digest(self) -> str:
        """What is stored: SHA-256 of the secret, as hex."""
        return digest(self.secret)


def digest(secret: str) -> str:
    """SHA-256 as hex. 256 random bits cannot be guessed, so no slow hash is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def is_same(given: str, known: str) -> bool:
    """Whether two secrets are the same, in a time that does not tell how much of them is."""
    return hmac.compare_digest(given.encode(), known.encode())

"""The dashboard's session: a signed cookie that stands for a token, and what proves a page's own POST.

Nothing is stored. The signature covers the token's digest, so a cookie is good for this very token only,
and the token is looked up at every request: revoking it ends its sessions.
"""

import hashlib
import hmac
import re
from dataclasses import dataclass

COOKIE = "tan_session"
CSRF_HEADER = "X-CSRF-Token"
LIFETIME_SECONDS = 12 * 3600
_FORM = re.compile(r"([A-Za-z0-9]{1,64})\.([0-9]{1,12})\.([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Session:
    """What a cookie says; believed only where :meth:`Signer.is_good` says so."""

    token_id: str
    expires_at: int
    """Seconds since 1970."""
    signature: str

    @classmethod
    def parse(cls, cookie: str) -> "Session | None":
        """The session that a cookie claims; None where it is not one."""
        found = _FORM.fullmatch(cookie)
        return cls(found[1], int(found[2]), found[3]) if found else None

    def has_ended(self, *, now: float) -> bool:
        """Whether it has run out; ``now`` in seconds since 1970."""
        return now >= self.expires_at

    def __str__(self) -> str:
        return f"{self.token_id}.{self.expires_at}.{self.signature}"


class Signer:
    """Signs with keys derived from the server's secret."""

    def __init__(self, secret: bytes) -> None:
        self._session_key = _mac(secret, "tan session key")
        self._csrf_key = _mac(secret, "tan csrf key")

    def issue(self, token_id: str, digest: str, *, now: float) -> Session:
        """A new session of the token with this digest."""
        expires_at = int(now) + LIFETIME_SECONDS
        return Session(token_id, expires_at, self._signature(token_id, expires_at, digest))

    def is_issued(self, session: Session, digest: str) -> bool:
        """Whether it was issued here, for the token with this digest; it may have run out."""
        expected = self._signature(session.token_id, session.expires_at, digest)
        return hmac.compare_digest(session.signature, expected)

    def csrf_token(self, session: Session) -> str:
        """What the session's own pages send with every POST; no other site can read it."""
        return _mac(self._csrf_key, str(session)).hex()

    def _signature(self, token_id: str, expires_at: int, digest: str) -> str:
        return _mac(self._session_key, f"{token_id}.{expires_at}.{digest}").hex()


def _mac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()

"""How a receiver knows that a message is ours, and that it is not an old one sent again."""

import hashlib
import hmac
import secrets
from pathlib import Path

from service.auth.secrets import write_private

HEADER = "X-TAN-Signature"
TOLERANCE_SECONDS = 300


def webhook_secret(path: Path) -> bytes:
    """The key in the file, made on first use with mode 0600; blanks around it do not count."""
    if not path.exists():
        write_private(path, f"{secrets.token_hex(32)}\n".encode())
    secret = path.read_bytes().strip()
    if len(secret) < 16:
        raise RuntimeError(f"{path} holds {len(secret)} bytes, a webhook secret needs 16 or more")
    return secret


def sign(secret: bytes, body: bytes, *, at: int) -> str:
    """``t=AT,v1=HEX``: HMAC-SHA256 of ``AT.BODY``. ``at`` is in seconds since 1970.

    Example:
        >>> sign(b"k" * 16, b"{}", at=1)[:12]
        't=1,v1=f1769'
    """
    digest = hmac.new(secret, f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def is_valid(secret: bytes, body: bytes, signature: str, *, now: int) -> bool:
    """What a receiver checks: the signature, and that it is not older than five minutes."""
    fields = dict(part.split("=", 1) for part in signature.split(",") if "=" in part)
    at = fields.get("t", "")
    if not (at.isascii() and at.isdigit()) or abs(now - int(at)) > TOLERANCE_SECONDS:
        return False
    return hmac.compare_digest(sign(secret, body, at=int(at)).encode(), signature.encode())

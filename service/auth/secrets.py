"""The server's secret, and the tokens derived from it. Nothing is stored but the secret itself."""

import errno
import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

SECRET_BYTES = 32
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
"""What file systems answer that have none, such as SMB or a bucket that is mounted as a folder."""


def server_secret(home: Path) -> bytes:
    """The 32 bytes in ``home/secret``, made on first use; one process wins, all read the same."""
    path = home / "secret"
    if not path.exists():
        write_private(path, secrets.token_bytes(SECRET_BYTES))
    secret = path.read_bytes()
    if len(secret) != SECRET_BYTES:
        raise RuntimeError(f"{path} holds {len(secret)} bytes, expected {SECRET_BYTES}")
    return secret


def run_token(secret: bytes, submission_id: str) -> str:
    """The token of one attempt of one run: HMAC-SHA256 of its submission id, as hex."""
    return hmac.new(secret, submission_id.encode(), hashlib.sha256).hexdigest()


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all; an existing one is kept."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            try:
                os.link(part, path)
            except OSError as error:
                if error.errno not in _NO_HARD_LINKS:
                    raise
                # The name is taken first: where two start at once, one file is kept here, too.
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)

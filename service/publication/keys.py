"""The keys of the service: one signs, the public halves of all that ever did are kept.

They lie in ``home/keys``: the private one readable by its owner only, and never in the database.
"""

import base64
import fcntl
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from service.auth.secrets import write_private
from service.publication.schemas import PublicKey
from service.publication.signing import key_id

KEYS = Path("keys")
KEY_PATH = KEYS / "statement-ed25519.pem"
RETIRED = "statement-*.pub.pem"


def signing_key(home: Path) -> Ed25519PrivateKey:
    """The service's key, made on first use."""
    path = home / KEY_PATH
    if not path.exists():
        write_private(path, _private_pem(Ed25519PrivateKey.generate()))
    key = load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise RuntimeError(f"{path} is not an Ed25519 key")
    return key


def public_keys(home: Path) -> list[PublicKey]:
    """The signing key's public half, then those of retired keys."""
    signing = _described(signing_key(home).public_key(), "signing")
    retired = (_load(path.read_bytes()) for path in sorted((home / KEYS).glob(RETIRED)))
    others = [_described(key, "retired") for key in retired]
    return [signing, *(key for key in others if key.key_id != signing.key_id)]


def rotate(home: Path) -> PublicKey:
    """Let a fresh key sign from now on; the old private key is gone, its public half stays.

    Statements that it signed name it, and stay verifiable.
    """
    with _alone(home):
        old = _described(signing_key(home).public_key(), "retired")
        write_private(home / KEYS / f"statement-{old.key_id}.pub.pem", old.pem.encode())
        fresh = Ed25519PrivateKey.generate()
        part = home / KEYS / f".rotated.{secrets.token_hex(8)}"
        write_private(part, _private_pem(fresh))
        os.replace(part, home / KEY_PATH)
    return _described(fresh.public_key(), "signing")


def read_public_key(pem: bytes) -> PublicKey:
    """The public key in a PEM file.

    Raises:
        ValueError: it holds no Ed25519 public key.
    """
    return _described(_load(pem), "retired")


def _private_pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _load(pem: bytes) -> Ed25519PublicKey:
    key = load_pem_public_key(pem)
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError(f"expected an Ed25519 public key, got {type(key).__name__}")
    return key


def _described(key: Ed25519PublicKey, state: Literal["signing", "retired"]) -> PublicKey:
    raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return PublicKey(
        key_id=key_id(raw), state=state, public_key=base64.b64encode(raw).decode(), pem=pem.decode()
    )


@contextmanager
def _alone(home: Path) -> Generator[None]:
    """Two rotations at a time would lose the key between them."""
    folder = home / KEYS
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

"""Signatures over canonical JSON (RFC 8785), by the key of service/publication/keys.py."""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from service.publication.schemas import ALGORITHM


def sign(statement: Mapping[str, Any], key: Ed25519PrivateKey) -> dict[str, Any]:
    """The statement with one more key, ``signature``: over all the others, and how to check it."""
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    value = base64.b64encode(key.sign(rfc8785.dumps(dict(statement)))).decode()
    return {**statement, "signature": _described(public, value)}


def _described(public: bytes, value: str) -> dict[str, str]:
    """A signature and how to check it."""
    return {
        "algorithm": ALGORITHM,
        "canonicalization": "RFC 8785",
        "key_id": key_id(public),
        "public_key": base64.b64encode(public).decode(),
        "value": value,
    }


def read_signed(text: str) -> Any:
    """The JSON of a document that is to be checked.

    A key that is written twice is no JSON that a signature can be over: of its two values one would be checked, and the
    other be what somebody reads.

    Raises:
        ValueError: it is no JSON, or a key is written twice.
    """
    return json.loads(text, object_pairs_hook=_without_repeats)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:100]!r} is written twice")
    return mapping


def is_signed(document: Mapping[str, Any]) -> bool:
    """Whether the signature is by the public key that stands beside it, and nothing else stands there: it is not over itself."""
    try:
        signature = document["signature"]
        public = base64.b64decode(signature["public_key"], validate=True)
        if signature != _described(public, signature["value"]):
            return False
        Ed25519PublicKey.from_public_bytes(public).verify(
            base64.b64decode(signature["value"], validate=True),
            rfc8785.dumps({key: part for key, part in document.items() if key != "signature"}),
        )
    except (InvalidSignature, KeyError, TypeError, ValueError):
        return False
    return True


def key_id(public: bytes) -> str:
    """A short name for a public key, to compare with one obtained another way."""
    return hashlib.sha256(public).hexdigest()[:16]

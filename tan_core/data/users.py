"""Data of users: whole users are cut into splits, and of each a bounded number of records is trained on.

Whatever is decided of a user is a function of the seed, of that user's identity and of that user's own
records. So a dataset with a user more or less has the very same records of everybody else in the very
same splits, as a guarantee for one user needs.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from tan_core.data.part import Members, Parts
from tan_core.errors import DatasetError

RECORDS_PER_UNIT = 16
"""Of a user, unless a registration says otherwise. Time and memory depend on it, and privacy does not: a
user is clipped once, however many records it has."""
MAX_RECORDS_PER_UNIT = 1024

Indices = NDArray[np.intp]


def cut_users(
    users: Members, indices: Indices, fraction: float, *, seed: int, purpose: str
) -> tuple[Indices, Indices]:
    """The records of the users who stay and of those whose hash falls into ``fraction``."""
    threshold = int(fraction * 2**64)
    is_cut = np.array([_hash(seed, purpose, name) < threshold for name in users.names], dtype=bool)
    falls = is_cut[users.of[indices]]
    return indices[~falls], indices[falls]


def bounded(users: Members, indices: Indices, *, most: int, seed: int) -> Indices:
    """At most so many records of each user, in stored order.

    Of a user with more, those with the least hash of seed, identity and the record's place among the
    user's own.
    """
    of = users.of[indices]
    by_user = np.argsort(of, kind="stable")
    counts = np.bincount(of, minlength=len(users.names))
    ends = np.cumsum(counts)
    is_kept = np.ones(len(indices), dtype=bool)
    for user in np.flatnonzero(counts > most):
        own = by_user[ends[user] - counts[user] : ends[user]]
        hashes = [_hash(seed, str(place), users.names[user]) for place in range(len(own))]
        is_kept[own[np.argsort(np.array(hashes, dtype=np.uint64), kind="stable")[most:]]] = False
    return indices[is_kept]


def numbered(users: Members, indices: Indices) -> NDArray[np.int64]:
    """The user of each record, as numbers from 0 without a gap."""
    return np.unique(users.of[indices], return_inverse=True)[1].astype(np.int64)


def refuse_shared(parts: Parts) -> None:
    """Refuse users with records in two stored parts: what is measured on one would tell of the other.

    Raises:
        DatasetError: naming a record of such a user.
    """
    seen: dict[str, str] = {}
    for role, part in parts.items():
        if part.users is None:
            continue
        for number, name in enumerate(part.users.names):
            if (before := seen.setdefault(name, role)) != role:
                row = int(np.flatnonzero(part.users.of == number)[0])
                raise DatasetError(
                    f"{role} record {row} is of a user with records in {before} too; accepted: every "
                    "user in one part alone, or one part that is cut by users",
                    field="unit",
                )


def _hash(seed: int, purpose: str, name: str) -> int:
    """64 bits. The name comes last, and neither seed nor purpose holds a colon: no two texts are one."""
    text = f"{seed}:{purpose}:{name}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")

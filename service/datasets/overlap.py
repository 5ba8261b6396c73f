"""Records that a dataset shares with registered ones: whoever is in both is protected by neither budget alone."""

import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from service.auth.secrets import server_secret
from service.datasets.schemas import SharedRecords
from service.db.tables import Dataset, DatasetDigests
from tan_core.data.digests import Digests, from_bytes, shared, to_bytes

LEAST_SHARE = 0.01
"""Of the smaller one's distinct records. Below it two datasets may have a blank image in common."""
_PURPOSE = b"digests of records"
_LOCK = 7_303_029_166_213_904_388


class DigestKey(NamedTuple):
    """What records are digested with: digests by another key say nothing of these."""

    id: str
    secret: bytes


def digest_key(home: Path) -> DigestKey:
    """The key of this service. A new ``home/secret`` is a new key."""
    secret = hmac.new(server_secret(home), _PURPOSE, hashlib.sha256).digest()
    return DigestKey(hashlib.sha256(secret).hexdigest()[:16], secret)


async def find(
    session: AsyncSession, digests: Digests, key: DigestKey, *, public: bool
) -> list[SharedRecords]:
    """The datasets that hold many of the same records, by name.

    Two public ones may hold the same. Nobody else registers before the transaction ends.
    """
    await session.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    query = (
        select(DatasetDigests.dataset, DatasetDigests.digests, Dataset.public)
        .join(Dataset, Dataset.name == DatasetDigests.dataset)
        .where(DatasetDigests.key_id == key.id)
        .order_by(DatasetDigests.dataset)
    )
    found: list[SharedRecords] = []
    rows = await session.stream(query.execution_options(yield_per=1))
    async for name, kept, is_public in rows:
        if public and is_public:
            continue
        same, of_new, of_known = shared(digests, from_bytes(kept))
        if same > LEAST_SHARE * min(of_new, of_known):
            share = SharedRecords(dataset=name, public=is_public, shared=same, of=of_new)
            found.append(share)
    return found


async def not_compared(session: AsyncSession, key: DigestKey, *, public: bool) -> Sequence[str]:
    """The datasets whose records are known by another key alone, by name. Two public ones may hold the same."""
    query = (
        select(Dataset.name)
        .join(DatasetDigests, DatasetDigests.dataset == Dataset.name)
        .where(DatasetDigests.key_id != key.id)
        .order_by(Dataset.name)
    )
    return (await session.scalars(query.where(~Dataset.public) if public else query)).all()


def kept(dataset: str, digests: Digests, key: DigestKey) -> DatasetDigests:
    """The row of a dataset's records."""
    return DatasetDigests(dataset=dataset, key_id=key.id, digests=to_bytes(digests))


def refusal(found: list[SharedRecords], *, public: bool) -> str:
    """Why data are refused that hold records of others, and what may be done."""
    most = max(found, key=lambda one: one.shared)
    what = "public" if most.public else "private"
    said = (
        f"{most.shared:,} of its {most.of:,} distinct records are records of the {what} dataset "
        f"{most.dataset!r} too"
    )
    if len(found) > 1:
        others = sorted(one.dataset for one in found if one is not most)
        said += f", and others are of {', '.join(map(repr, others))}"
    if public:
        why = "a search on them would read private data and count nothing"
    elif most.public:
        why = "what is registered as public is read without being counted"
    else:
        why = "no budget alone protects whoever is in both"
    where = "is shown with the dataset" if public else "stands in the ledger"
    return (
        f'{said}: {why}. Leave them out; or say who accepts it and why, as accept_overlap: "owner: '
        f'reason", which {where} and in every statement'
    )

"""Queries over registered datasets."""

from collections.abc import Sequence

import psycopg
from sqlalchemy import ARRAY, BindParameter, Text, bindparam, func, insert, literal, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Dataset, DatasetFile


async def find(session: AsyncSession, name: str) -> Dataset | None:
    """The dataset of this name."""
    return None if "\x00" in name else await session.get(Dataset, name)


async def every(session: AsyncSession) -> Sequence[Dataset]:
    """All datasets, by name."""
    return (await session.scalars(select(Dataset).order_by(Dataset.name))).all()


async def after(session: AsyncSession, name: str, limit: int) -> Sequence[Dataset]:
    """The next ``limit`` datasets behind this name."""
    query = select(Dataset).where(Dataset.name > name).order_by(Dataset.name).limit(limit)
    return (await session.scalars(query)).all()


async def names(session: AsyncSession) -> list[str]:
    """Every registered name."""
    return list((await session.scalars(select(Dataset.name).order_by(Dataset.name))).all())


async def holder(session: AsyncSession, file_sha256: Sequence[str]) -> DatasetFile | None:
    """The first of these files that a dataset holds already."""
    return await session.scalar(
        select(DatasetFile)
        .where(DatasetFile.sha256 == func.any(_digests(file_sha256)))
        .order_by(DatasetFile.sha256)
        .limit(1)
    )


async def holds_content(session: AsyncSession, content_sha256: str) -> bool:
    """Whether a dataset of this content is registered."""
    known = select(Dataset.name).where(Dataset.content_sha256 == content_sha256).limit(1)
    return await session.scalar(known) is not None


async def store(session: AsyncSession, dataset: Dataset, file_sha256: Sequence[str]) -> bool:
    """Store it with its files, unless another registration of the name or of one file came first.

    Args:
        session: in a transaction; it stays usable when nothing was stored.
        dataset: the row.
        file_sha256: sorted, so that two registrations wait for one another and never both ways.
    """
    try:
        async with session.begin_nested():
            session.add(dataset)
            await session.flush()
            await session.execute(
                insert(DatasetFile).from_select(
                    ["sha256", "dataset"],
                    select(func.unnest(_digests(file_sha256)), literal(dataset.name)),
                )
            )
    except IntegrityError as error:
        if isinstance(error.orig, psycopg.errors.UniqueViolation):
            return False
        raise
    return True


def _digests(values: Sequence[str]) -> BindParameter[Sequence[str]]:
    # One array, not one parameter per file: a folder of images may hold a million.
    return bindparam("file_sha256", list(values), type_=ARRAY(Text))

"""Queries over registered datasets."""

from collections.abc import Sequence

from sqlalchemy import or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Dataset


async def find(session: AsyncSession, name: str) -> Dataset | None:
    """The dataset of this name."""
    return None if "\x00" in name else await session.get(Dataset, name)


async def every(session: AsyncSession) -> Sequence[Dataset]:
    """All datasets, by name."""
    return (await session.scalars(select(Dataset).order_by(Dataset.name))).all()


async def names(session: AsyncSession) -> list[str]:
    """Every registered name."""
    return list((await session.scalars(select(Dataset.name).order_by(Dataset.name))).all())


async def same_name_or_content(
    session: AsyncSession, name: str, content_sha256: str
) -> Dataset | None:
    """A registration that stands in the way of a new one."""
    return await session.scalar(
        select(Dataset)
        .where(or_(Dataset.name == name, Dataset.content_sha256 == content_sha256))
        .limit(1)
    )


async def insert(session: AsyncSession, dataset: Dataset) -> bool:
    """Store it, unless another registration of the name or the bytes came first."""
    try:
        async with session.begin_nested():
            session.add(dataset)
    except IntegrityError:
        return False
    return True

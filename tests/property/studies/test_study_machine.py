"""Whatever happens to studies, every step that runs is charged, and each of them comes to its end.

A life that went wrong names its seed and tells what came last. Others are tried with more ``SEEDS``.
"""

from pathlib import Path

import pytest

from service.db.session import Database
from tests.fixtures.postgres import DatabaseUrls
from tests.property.studies.machine import open_life

SEEDS = range(7)
QUICK = 6
"""The seed of a life that takes few seconds."""


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=() if seed == QUICK else pytest.mark.slow) for seed in SEEDS],
)
async def test_whatever_happens_studies_end_and_steps_are_charged(
    seed: int,
    database: Database,
    database_urls: DatabaseUrls,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_life(
        seed, database=database, urls=database_urls, folder=tmp_path, logged=caplog
    ) as life:
        await life.live(actions=60)

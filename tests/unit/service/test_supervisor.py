"""What the supervisor says of a PostgreSQL that it cannot start."""

from pathlib import Path
from typing import Any

import pytest

from service.db.embedded import EmbeddedPostgresError
from service.local.supervisor import ServiceError, Supervisor
from service.settings import Settings


class Away:
    """A server that cannot be started, as on a full disk, until it is mended."""

    is_mended = False

    def is_healthy(self) -> bool:
        return self.is_mended

    def start(self) -> None:
        raise EmbeddedPostgresError("PostgreSQL did not start: No space left on device")


def test_an_outage_is_told_once_with_its_cause_and_when_it_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    supervisor = Supervisor(Settings(home=tmp_path), say=print)
    postgres: Any = Away()

    for _ in range(20):
        supervisor._keep_postgres_up(postgres)  # pyright: ignore[reportPrivateUsage]
    postgres.is_mended = True
    for _ in range(20):
        supervisor._keep_postgres_up(postgres)  # pyright: ignore[reportPrivateUsage]

    assert caplog.messages == [
        "PostgreSQL does not answer; starting it again",
        "PostgreSQL did not start; trying again",
        "over: PostgreSQL does not answer; starting it again",
        "over: PostgreSQL did not start; trying again",
    ]
    assert [bool(record.exc_info) for record in caplog.records] == [False, True, False, False]
    assert "No space left on device" in caplog.text


def test_a_home_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    supervisor = Supervisor(Settings(home=tmp_path / "file/home"), say=print)

    with pytest.raises(
        ServiceError, match=r"cannot make .*/file/home \(TAN_HOME\): Not a directory"
    ):
        supervisor._start()  # pyright: ignore[reportPrivateUsage]

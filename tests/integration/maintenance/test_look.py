"""A look at a real database changes nothing, and measures its clock."""

from service.db.migrate import head_revision
from service.maintenance.look import look
from service.settings import Settings
from tests.fixtures.postgres import DatabaseUrls


def test_a_database_is_seen_with_its_schema_and_clock(
    database_urls: DatabaseUrls, tmp_path
) -> None:
    seen = look(Settings(home=tmp_path, database_url=database_urls.owner))  # type: ignore[arg-type]
    assert seen.database is not None
    assert (seen.is_embedded, seen.database.schema_version) == (False, head_revision())
    assert seen.clock_ahead_seconds is not None
    assert abs(seen.clock_ahead_seconds) < 1


def test_where_none_was_made_none_is_made(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("TAN_DATABASE_URL", raising=False)
    seen = look(Settings(home=tmp_path / "home"))
    assert (seen.is_embedded, seen.is_made, seen.is_running) == (True, False, False)
    assert not (tmp_path / "home").exists()


def test_one_that_rests_is_let_rest(tmp_path) -> None:
    (tmp_path / "postgres").mkdir()
    from service.db.embedded import EmbeddedPostgres

    EmbeddedPostgres(tmp_path).data.mkdir(parents=True, exist_ok=True)
    seen = look(Settings(home=tmp_path))
    assert (seen.is_made, seen.is_running, seen.database) == (True, False, None)

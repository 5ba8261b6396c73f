"""Nobody edits the journal: not the service, not the owner; and whoever forces it is found."""

import asyncio
import threading

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from service.db.session import Database
from service.ledger.journal import verify as verify_journal
from service.ledger.schemas import ChainReport
from service.ledger.service import Ledger
from tan_core.mechanism import Mechanism
from tests.fixtures.postgres import DatabaseUrls

TABLES = (
    "ledger_scope",
    "ledger_head",
    "ledger_entry",
    "ledger_reservation",
    "ledger_segment",
    "ledger_evaluation",
)


@pytest.fixture
async def journal(database: Database, ledger: Ledger, scope: str, mechanism: Mechanism) -> str:
    """A scope with four entries: open, reserve, acquire, begin."""
    async with database.session() as session:
        await ledger.admit_and_reserve(
            session, scope_id=scope, reservation_id="r1", study_id="s1", mechanism=mechanism,
            actor="test",
        )  # fmt: skip
        await ledger.acquire(session, "r1", epoch=1)
        await ledger.begin_segment(
            session, "r1", epoch=1, start_step=0, num_steps=10, request_id="q"
        )
    return scope


def force(urls: DatabaseUrls, table: str, statement: str) -> None:
    """Do what only an owner can who first switches the triggers off."""
    with psycopg.connect(urls.owner, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        connection.execute(statement)
        connection.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER refuse_rows")


async def verify(database: Database, ledger: Ledger, scope: str) -> ChainReport:
    async with database.session() as session:
        return await ledger.verify_chain(session, scope)


async def test_an_untouched_journal_is_valid(
    database: Database, ledger: Ledger, journal: str
) -> None:
    report = await verify(database, ledger, journal)
    assert report.is_valid
    assert (report.num_entries, report.fault) == (4, None)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("verb", ["INSERT INTO {} DEFAULT VALUES", "DELETE FROM {}", "TRUNCATE {}"])
async def test_the_service_role_can_only_read_the_tables(
    database: Database, journal: str, table: str, verb: str
) -> None:
    async with database.session() as session:
        await session.execute(text(f"SELECT 1 FROM {table}"))
    with pytest.raises(DBAPIError, match="permission denied"):
        async with database.session() as session:
            await session.execute(text(verb.format(table)))


async def test_the_service_role_can_neither_make_tables_nor_call_the_helpers(
    database: Database, journal: str
) -> None:
    helper = f"SELECT ledger_append('{journal}', 'attest', NULL, '{{}}')"
    for statement in ("CREATE TABLE mine (x int)", helper):
        with pytest.raises(DBAPIError, match="permission denied"):
            async with database.session() as session:
                await session.execute(text(statement))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger_entry SET body = '{}'",
        "DELETE FROM ledger_entry",
        "TRUNCATE ledger_entry CASCADE",
        "UPDATE ledger_scope SET epsilon = '0x1p+9'",
        "DELETE FROM ledger_segment",
        "DELETE FROM ledger_head",
    ],
)
@pytest.mark.parametrize("role", ["origin", "replica"])
def test_even_the_superuser_is_refused(
    database_urls: DatabaseUrls, journal: str, statement: str, role: str
) -> None:
    with psycopg.connect(database_urls.superuser, autocommit=True) as connection:
        connection.execute(f"SET session_replication_role = {role}")
        with pytest.raises(psycopg.DatabaseError, match="append-only") as refusal:
            connection.execute(statement)
    assert refusal.value.sqlstate == "TN007"


@pytest.mark.parametrize("seq", [1, 2, 3, 4])
async def test_an_edited_entry_is_named(
    database: Database, ledger: Ledger, database_urls: DatabaseUrls, journal: str, seq: int
) -> None:
    edit = (
        f"UPDATE ledger_entry SET body = replace(body, '\"v\" : 1', '\"v\" : 2') WHERE seq = {seq}"
    )
    force(database_urls, "ledger_entry", edit)
    report = await verify(database, ledger, journal)
    assert (report.is_valid, report.first_bad_seq) == (False, seq)
    assert "was edited" in (report.fault or "")


@pytest.mark.parametrize(("seq", "bad"), [(3, 3), (4, 4)])
async def test_a_removed_entry_is_missed(
    database: Database,
    ledger: Ledger,
    database_urls: DatabaseUrls,
    journal: str,
    seq: int,
    bad: int,
) -> None:
    force(database_urls, "ledger_entry", f"DELETE FROM ledger_entry WHERE seq = {seq}")
    report = await verify(database, ledger, journal)
    assert not report.is_valid
    assert report.first_bad_seq in (bad, bad + 1)


async def test_state_that_is_not_the_fold_of_the_journal_is_named(
    database: Database, owner: Database, ledger: Ledger, journal: str
) -> None:
    """Edited by the owner, who switched the triggers off; one thing at a time."""
    edits = {
        "charged_steps": "ledger_reservation SET charged_steps = 0",
        "reserved_steps": "ledger_reservation SET reserved_steps = 999",
        "released_steps": "ledger_reservation SET released_steps = 90",
        "state": "ledger_reservation SET state = 'closed'",
        "study_id": "ledger_reservation SET study_id = 'another'",
        "tenant": "ledger_reservation SET tenant = 'another'",
        "search_accounting": "ledger_reservation SET search_accounting = 'public_proxy'",
        "baseline": "ledger_reservation SET baseline = true",
        "epoch": "ledger_reservation SET epoch = 2",
        "segments": "ledger_reservation SET segments = 0",
        "open_segment": "ledger_reservation SET open_segment = NULL",
        "ended_segment": "ledger_reservation SET ended_segment = 1",
        "checkpoint_step": "ledger_reservation SET checkpoint_step = 10",
        "checkpoint_sha256": "ledger_reservation SET checkpoint_sha256 = 'aa'",
        "its event": "ledger_reservation SET event = replace(event, '0x1.0', '0x1.8')",
        "its divergences": "ledger_reservation SET divergences[7] = divergences[7] / 2",
        "the caps": f"ledger_cap SET epsilon = '{(1.0).hex()}'",
        "opened as": "ledger_scope SET epsilon = '0x1.0p+9'",
        # Who asks again is answered by these.
        "num_steps": "ledger_segment SET num_steps = 90",
        "request_id": "ledger_segment SET request_id = 'of an attempt to come'",
        "ended": "ledger_segment SET ended = true",
    }
    async with database.session() as session:
        await ledger.set_cap(session, journal, tenant="team", epsilon=0.5, actor="test")
        assert (await ledger.verify_chain(session, journal)).is_valid
    for named, edit in edits.items():
        async with owner.session() as session:
            await session.execute(text(f"ALTER TABLE {edit.split()[0]} DISABLE TRIGGER USER"))
            await session.execute(text(f"UPDATE {edit}"))
            report = await ledger.verify_chain(session, journal)
            await session.rollback()
        assert not report.is_valid, named
        assert named in (report.fault or "")


async def test_a_segment_that_was_never_charged_is_named(
    database: Database, owner: Database, ledger: Ledger, journal: str
) -> None:
    """A request that is found among them is granted steps, as one that was charged before."""
    made = "INSERT INTO ledger_segment VALUES ('r1', 2, 1, 'free', 10, 10, 10)"
    gone = "DELETE FROM ledger_segment"
    for edit in (made, gone):
        async with owner.session() as session:
            await session.execute(text("ALTER TABLE ledger_segment DISABLE TRIGGER USER"))
            await session.execute(text(edit))
            report = await ledger.verify_chain(session, journal)
            await session.rollback()
        assert not report.is_valid, edit
        assert "segments" in (report.fault or "")


async def test_segments_that_were_charged_and_ended_are_those_of_the_journal(
    database: Database, ledger: Ledger, journal: str
) -> None:
    async with database.session() as session:
        await ledger.end_segment(
            session, "r1", epoch=1, segment=1, checkpoint_step=10, checkpoint_sha256="aa"
        )
        await ledger.acquire(session, "r1", epoch=2)
        await ledger.begin_segment(
            session, "r1", epoch=2, start_step=10, num_steps=10**6, request_id="all that is left"
        )
        assert (await ledger.verify_chain(session, journal)).is_valid


BEGIN = '{"v": 1, "at": "-", "epoch": %d, "segment": %d, "start_step": 10, "num_steps": %d}'


@pytest.mark.parametrize(
    ("kind", "body", "state"),
    [
        pytest.param("begin", BEGIN % (1, 2, -10), "charged_steps = 0, segments = 2, open_segment = 2",
                     id="a charge is taken back"),
        pytest.param("begin", BEGIN % (2, 2, 5), "charged_steps = 15, segments = 2, open_segment = 2",
                     id="of an epoch that holds nothing"),
        pytest.param("acquire", '{"epoch": 1}', "open_segment = NULL", id="an epoch comes back"),
        pytest.param("release", '{"released_steps": 50}', "released_steps = 50, state = 'closed',"
                     " open_segment = NULL", id="less is released than is left"),
    ],
)  # fmt: skip
async def test_an_entry_that_the_ledger_would_not_have_written_is_named(
    database: Database,
    ledger: Ledger,
    database_urls: DatabaseUrls,
    journal: str,
    kind: str,
    body: str,
    state: str,
) -> None:
    """Appended by the owner with the right hash: every entry that left stays where it was."""
    with psycopg.connect(database_urls.owner, autocommit=True) as connection:
        connection.execute("SELECT ledger_append(%s, %s, 'r1', %s)", (journal, kind, body))
        connection.execute(f"UPDATE ledger_reservation SET {state}")
    report = await verify(database, ledger, journal)
    assert (report.is_valid, report.first_bad_seq) == (False, 5)


async def test_a_second_reservation_of_one_name_does_not_wipe_out_what_was_charged(
    database: Database, ledger: Ledger, database_urls: DatabaseUrls, journal: str
) -> None:
    with psycopg.connect(database_urls.owner, autocommit=True) as connection:
        connection.execute(
            "SELECT ledger_append(scope_id, 'reserve', 'r1', body) FROM ledger_entry WHERE seq = 2"
        )
        connection.execute(
            "UPDATE ledger_reservation SET seq = 5, charged_steps = 0, epoch = 0, segments = 0,"
            " open_segment = NULL"
        )
    report = await verify(database, ledger, journal)
    assert (report.is_valid, report.first_bad_seq) == (False, 5)
    assert "a second time" in (report.fault or "")


async def test_looking_closely_holds_up_nobody(
    database: Database, ledger: Ledger, journal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those who charge to the scope nor whatever else this process serves."""
    at_work: list[threading.Thread] = []
    true_verify = verify_journal

    def watched(*picture: object, **known: object) -> ChainReport:
        at_work.append(threading.current_thread())
        return true_verify(*picture, **known)  # type: ignore[arg-type]

    monkeypatch.setattr("service.ledger.journal.verify", watched)
    async with asyncio.timeout(20), database.session() as looking:
        assert (await ledger.verify_chain(looking, journal)).is_valid
        async with database.session() as charging:
            await ledger.begin_segment(
                charging, "r1", epoch=1, start_step=10, num_steps=10, request_id="next"
            )
    assert at_work
    assert threading.main_thread() not in at_work

"""What left the service about each ledger, kept outside the database: an old backup cannot hide.

``home/published.json`` has, for every scope, the newest entry that was there when something left that
cost a budget: a statement, an export, a model, a private run's attempt to the cluster, steps of one that were
charged, a trial that was, whose score is shown as soon as it is told, or a release outside of the service that may be made by then. A database whose journal no longer holds that entry was
restored from before it, or rewritten: what was spent since is not in it, so nothing may be spent on it until
somebody takes that upon themselves.
"""

import fcntl
import json
import os
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anyio import to_thread
from fastapi import Request
from sqlalchemy.ext.asyncio import AsyncSession

from service.auth.secrets import write_private
from service.db.session import Database
from service.errors import ServiceError
from service.ledger import repository as ledger
from service.ledger.schemas import Head
from service.prefix import base_of
from service.publication.keys import public_keys, signing_key
from service.publication.signing import is_signed, sign

SCHEMA = "tan-search/published/1"
FILE = Path("published.json")
BELIEVED_SECONDS = 5.0
"""How long a good answer holds: a database may be restored below a running service."""
OPEN_TO_A_RESTORED = ("/healthz", "/readyz", "/metrics", "/keys", "/docs", "/openapi.json")


class RestoredBackupError(ServiceError):
    """The database is older than what left the service."""

    status = 503
    type = "/problems/restored-backup"


class Published:
    """The marks of one service.

    Args:
        home: the state directory, shared by the processes of the service.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._path = home / FILE
        self._good_until = 0.0

    def marks(self) -> dict[str, Head]:
        """The newest entry of each scope that left.

        Raises:
            RestoredBackupError: the file was changed by somebody without the service's key.
        """
        try:
            document = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError:
            document = None
        if not isinstance(document, dict) or not self._is_ours(document):
            raise RestoredBackupError(
                f"{self._path} was not written by this service, or was changed: put its last copy "
                "back, with the keys folder beside it; what left in statements is checked against it"
            )
        return {scope: Head.model_validate(mark) for scope, mark in document["scopes"].items()}

    async def leave(self, session: AsyncSession, scope_id: str, mark: Head) -> None:
        """Note that an entry leaves. On disk before this returns.

        Nothing is noted of a journal without the entry that left before: a rewritten one, however long,
        would pass for the true one from then on.
        """
        before = (await to_thread.run_sync(self.marks)).get(scope_id)
        if before is None or await holds(session, scope_id, before):
            await to_thread.run_sync(self.record, scope_id, mark)

    async def leave_head(self, session: AsyncSession, scope_id: str) -> None:
        """Note that all that a ledger holds by now leaves, or stands behind what does.

        For a transaction that has appended nothing itself: a mark of what is then rolled back would
        keep the service from serving for ever.
        """
        await self.leave(session, scope_id, await ledger.head(session, scope_id))

    def record(self, scope_id: str, mark: Head) -> None:
        """Write a mark down, unless a newer one is there."""
        with self._alone():
            known = self.marks()
            if scope_id not in known or known[scope_id].seq < mark.seq:
                self._write({**known, scope_id: mark})

    def accept(self, scope_id: str, mark: Head) -> None:
        """Believe in this entry from now on, although it is not above the one that left."""
        with self._alone():
            self._write({**self.marks(), scope_id: mark})
        self._good_until = 0.0

    async def check(
        self, database: Database, *, believe: bool = True, opens: str | None = None
    ) -> None:
        """Compare the journals with what left.

        Args:
            database: the service's.
            believe: whether a good answer of a moment ago is good enough.
            opens: the ledger that is about to be opened. It may be the one that the database never had: of what was registered
                after the backup there is no ledger that could be accepted until then.

        Raises:
            RestoredBackupError: an entry that left is not in its journal.
        """
        if (believe and time.monotonic() < self._good_until) or not self._path.exists():
            return
        marks = await to_thread.run_sync(self.marks)
        async with database.reading() as session:
            missing = await ledger.first_missing(session, marks)
        if missing is not None:
            if not missing.is_known and missing.scope_id == opens:
                return
            mark = marks[missing.scope_id]
            raise RestoredBackupError(
                _restored(missing.scope_id, mark)
                if missing.is_known
                else _foreign(missing.scope_id, mark, self._path)
            )
        self._good_until = time.monotonic() + BELIEVED_SECONDS

    def _is_ours(self, document: Mapping[str, Any]) -> bool:
        if document.get("schema") != SCHEMA or not is_signed(document):
            return False
        ours = {key.public_key for key in public_keys(self._home)}
        return document["signature"]["public_key"] in ours

    def _write(self, marks: Mapping[str, Head]) -> None:
        said = {name: mark.model_dump() for name, mark in sorted(marks.items())}
        document = sign({"schema": SCHEMA, "scopes": said}, signing_key(self._home))
        part = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        part.unlink(missing_ok=True)  # of a writer that was killed
        write_private(part, json.dumps(document, indent=1).encode())
        os.replace(part, self._path)

    @contextmanager
    def _alone(self) -> Generator[None]:
        self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


async def holds(session: AsyncSession, scope_id: str, mark: Head) -> bool:
    """Whether the journal has the entry."""
    found = await ledger.find_entry(session, scope_id, mark.seq)
    return found is not None and found.hash == mark.hash


async def refuse_restored(request: Request) -> None:
    """Dependency of every route: on a restored database only looking and accepting go on.

    What registers a dataset compares by itself, when it knows the name.

    Raises:
        RestoredBackupError: the database is behind what left.
    """
    path = request.url.path.removeprefix(base_of(request))
    if path.startswith(OPEN_TO_A_RESTORED) or (
        path.startswith("/datasets")
        and (request.method == "GET" or path == "/datasets" or path.endswith("/restored-backup"))
    ):
        return
    published: Published = request.app.state.published
    await published.check(request.app.state.context.database)


def _dataset_of(scope_id: str) -> str:
    return scope_id.removeprefix("dataset:")


def _restored(scope_id: str, mark: Head) -> str:
    name = _dataset_of(scope_id)
    return (
        f"the ledger of {scope_id} has no entry {mark.seq} of hash {mark.hash[:16]}, which stood "
        "when a statement, an export, a model or a private run last left: an old backup was restored, or the journal was rewritten. What was "
        "spent since then is not in it, so nothing is served. Put a newer backup back; or look with "
        f"`tan-cli ledger verify {name}` and go on without those entries with "
        f'`tan-cli ledger verify {name} --accept-restored-backup "WHO: REASON"`'
    )


def _foreign(scope_id: str, mark: Head, path: Path) -> str:
    name = _dataset_of(scope_id)
    return (
        f"the database knows no ledger {scope_id}, of which {path} says that entry {mark.seq} stood when a "
        "statement, an export, a model or a private run last left: it is not the database of this TAN_HOME, or "
        "a new one in its place. So nothing is served. Set TAN_DATABASE_URL to the database that is meant, or "
        "put its newest backup back with `tan-cli db restore`; a new database goes with another TAN_HOME. "
        f"If no backup has it, register {name} again (`tan-cli dataset add`): what was spent of it before stays in "
        "no sum, and its ledger will say so for ever, once it is accepted by name as the next message tells"
    )

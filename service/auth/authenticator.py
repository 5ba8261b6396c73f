"""Recognises who asks, by a token or by a session of the dashboard."""

import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import cached_property

from service.auth import repository
from service.auth.scopes import LOCAL, LOCAL_TENANT, Principal, Scope
from service.auth.secrets import server_secret
from service.auth.sessions import Session, Signer
from service.auth.tokens import Token, digest, is_same
from service.db.clock import clock
from service.db.session import Database
from service.db.tables import ApiToken
from service.errors import TooManyRequestsError
from service.rate_limit import FAILURES, MAX_KEYS, Buckets
from service.settings import Settings
from service.shared_reads import SharedReads

CACHE_SECONDS = 1.0
"""How long a token is believed unseen: a revocation in another process, and the end of
a lifetime, take as long to be heard."""
TOUCH_SECONDS = 60.0
BOOTSTRAP = "bootstrap"
_NO_DIGEST = "0" * 64
"""Of no secret: what is compared with where there is no such token."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A token as it is believed for a moment."""

    principal: Principal
    digest: str


class Authenticator:
    """Knows the tokens of one service, for one process."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._failures = Buckets(FAILURES)
        self._let_in: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Addresses with the digest of a token that was right from there: no stranger at the same address, as
        behind a proxy that nobody has named, closes the door to those who work there."""
        self._reads = SharedReads()
        self._cached: dict[str, tuple[float, Credential]] = {}
        self._in_use: tuple[float, bool] | None = None
        self._changes = 0
        """Of tokens, that this process has made: what was read before the last one is not kept."""
        self._touched: dict[str, float] = {}
        self._bootstrap = _bootstrap_credential(settings)
        self._stated = _stated_token(settings)
        self._not_stored_at: float | None = None
        """When the database was last seen without the token that TAN_API_TOKEN says."""
        self._is_exposed = settings.serves_others

    @cached_property
    def signer(self) -> Signer:
        """Signs sessions; its key is made on first use."""
        return Signer(server_secret(self._settings.home_path))

    async def has_bootstrap_token(self) -> bool:
        """Whether TAN_API_TOKEN lets somebody in as admin, whatever the database says."""
        return await self._always_good() is not None

    async def asks_for_tokens(self) -> bool:
        """Whether somebody without a token is refused: everywhere but in local single-user mode."""
        if self._is_exposed or await self._always_good() is not None:
            return True
        now = time.monotonic()
        if self._in_use is not None and now - self._in_use[0] <= CACHE_SECONDS:
            return self._in_use[1]
        changes = self._changes
        async with self._database.session() as session:
            in_use = await repository.any_unrevoked(session)
        if changes == self._changes:
            self._in_use = (now, in_use)
        return in_use

    async def by_token(self, text: str, *, address: str) -> Credential | None:
        """Whose token this is; None: nobody's.

        Raises:
            TooManyRequestsError: too many wrong tokens came from this address.
        """
        place = address, digest(text)
        seconds = 0.0 if place in self._let_in else self._failures.wait(address)
        if seconds > 0:
            raise TooManyRequestsError("too many wrong tokens from this address", seconds)
        known = await self._of_text(text)
        if known is None:
            self._let_in.pop(place, None)
            self._failures.take(address)
            return None
        self._let_in[place] = None
        self._let_in.move_to_end(place)
        if len(self._let_in) > MAX_KEYS:
            self._let_in.popitem(last=False)
        await self._touch(known.principal.id)
        return known

    async def _of_text(self, text: str) -> Credential | None:
        bootstrap = await self._always_good()
        if bootstrap and is_same(digest(text), bootstrap.digest):
            return bootstrap
        token = Token.parse(text)
        known = await self._known(token.id) if token else None
        given = token.digest if token else digest(text)
        is_right = is_same(given, known.digest if known else _NO_DIGEST)
        return known if is_right else None

    async def by_session(self, cookie: str) -> tuple[Principal, str] | None:
        """Whose session this is, and the CSRF token of its pages; None: nobody's, or ended."""
        session = Session.parse(cookie)
        if session is None:
            return None
        known = await self._known(session.token_id)
        is_issued = self.signer.is_issued(session, known.digest if known else _NO_DIGEST)
        # The database is asked for the time of what was issued only, not for what anybody makes up.
        if known is None or not is_issued or session.has_ended(now=await self._now()):
            return None
        principal = replace(known.principal, until=session.expires_at)
        return principal, self.signer.csrf_token(session)

    async def open_session(self, credential: Credential) -> Session:
        """A new session of the dashboard for who has shown this token."""
        return self.signer.issue(credential.principal.id, credential.digest, now=await self._now())

    async def still_knows(self, principal: Principal) -> bool:
        """Whether who was let in before would be now: a stream may outlast its token, and its session.

        Many streams of one reader ask at once.
        """
        return await self._reads.get(principal, lambda: self._still_knows(principal))

    async def _still_knows(self, principal: Principal) -> bool:
        if principal == LOCAL:
            return not await self.asks_for_tokens()
        if principal.until is not None and await self._now() >= principal.until:
            return False
        return await self._known(principal.id) is not None

    def forget(self) -> None:
        """Believe nothing that was read before, or is being read: a token was made or revoked."""
        self._changes += 1
        self._cached.clear()
        self._in_use = None

    async def _always_good(self) -> Credential | None:
        """TAN_API_TOKEN as a token of its own; None where it is not set, or is one that the database has.

        A shell that has exported a token for tan-cli may start the server too. Such a token keeps its own
        scopes, its own name in the audit, and its end.
        """
        if self._bootstrap is None or self._stated is None:
            return self._bootstrap
        now = time.monotonic()
        if self._not_stored_at is None or now - self._not_stored_at > CACHE_SECONDS:
            async with self._database.session() as session:
                is_stored = await repository.is_stored(session, self._stated)
            if is_stored:
                self._bootstrap = None  # for good: tokens end, and stay in their table
            self._not_stored_at = now
        return self._bootstrap

    async def _known(self, token_id: str) -> Credential | None:
        if token_id == BOOTSTRAP:
            return await self._always_good()
        now = time.monotonic()
        since, credential = self._cached.get(token_id, (now, None))
        if credential is not None and now - since <= CACHE_SECONDS:
            return credential
        changes = self._changes
        async with self._database.session() as session:
            row = await repository.find_good(session, token_id)
        if row is None:
            self._cached.pop(token_id, None)
            return None
        credential = _credential(row)
        if changes == self._changes:
            self._cached[token_id] = (now, credential)
        return credential

    async def _now(self) -> float:
        """Seconds since 1970 by the clock that tokens live by: hosts of the API may differ."""
        async with self._database.reading() as session:
            return (await clock(session)).timestamp()

    async def _touch(self, token_id: str) -> None:
        now = time.monotonic()
        if (
            token_id == BOOTSTRAP
            or now - self._touched.get(token_id, -TOUCH_SECONDS) < TOUCH_SECONDS
        ):
            return
        self._touched[token_id] = now
        async with self._database.session() as session:
            await repository.touch(session, token_id)


def _credential(row: ApiToken) -> Credential:
    return Credential(
        Principal.of(row.id, row.tenant, row.scopes, name=row.name), row.secret_sha256
    )


def _stated_token(settings: Settings) -> Token | None:
    """What TAN_API_TOKEN says, where it has the form of the tokens that are made here."""
    return Token.parse(settings.api_token.get_secret_value()) if settings.api_token else None


def _bootstrap_credential(settings: Settings) -> Credential | None:
    if settings.api_token is None:
        return None
    principal = Principal.of(BOOTSTRAP, LOCAL_TENANT, [Scope.ADMIN], name="TAN_API_TOKEN")
    return Credential(principal, digest(settings.api_token.get_secret_value()))

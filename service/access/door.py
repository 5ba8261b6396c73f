"""What every request passes before a route sees it: who asks, how fast, and from which page.

* A change asked for by another site's page is refused by its ``Origin``.
* ``Authorization: Bearer`` names a token; the dashboard's cookie stands for one, and then a change needs
  the CSRF token that only the dashboard's own pages know.
* Nobody is asked for a token in local single-user mode: on a loopback address, while there is none.
* Every caller has a rate limit, by token or by address; so have wrong tokens, a stricter one. Of one token so many
  requests are worked on at a time, and no more.
* What may be done with which token is said by the routes (service/access/guard.py).
* Every change that was asked for is in the audit before its answer leaves.
"""

import hmac
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.access.audit import SAFE_METHODS, Audit
from service.access.in_hand import InHand
from service.access.routes import route_of
from service.auth.authenticator import Authenticator
from service.auth.scopes import LOCAL, Principal, asking
from service.auth.sessions import COOKIE, CSRF_HEADER
from service.errors import (
    ForbiddenError,
    ServiceError,
    StalePageError,
    TooManyRequestsError,
    UnauthorizedError,
)
from service.problems import of_error
from service.rate_limit import FAILURES, WORKERS_FACTOR, Buckets, RateLimit

WORKER_PATHS = "/worker/"
"""Workers bring the token of their own run, which their routes check."""
SIGN_IN = "/ui/sign-in"
SIGN_OUT = "/ui/sign-out"
"""A plain form: its route checks the CSRF token among its fields."""
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/keys", "/favicon.ico", SIGN_IN})
"""Probes carry no token, public keys are for strangers, browsers ask for an icon by themselves, and who signs in
has no token yet."""
UNCOUNTED = "/healthz"
"""Whoever is refused it kills the process. A probe of a node's may share the address of callers who ask too often."""
ASSETS = "/ui/static/"
UNKNOWN_ADDRESS = "unknown"
BAD_REQUEST = 400


class Door:
    """ASGI middleware: see the module."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticator: Authenticator,
        audit: Audit,
        limit: RateLimit,
        at_once: int,
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._audit = audit
        self._callers = Buckets(limit)
        self._in_hand = InHand(at_once)
        self._strangers = Buckets(FAILURES)
        """Refusals to record of one address without a good token: the audit is kept for ever, and anybody is refused."""
        self._workers = Buckets(
            RateLimit(limit.per_second * WORKERS_FACTOR, limit.burst * WORKERS_FACTOR)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})
        address = address_of(scope)
        let_go = _nothing
        is_recorded = False
        unwritten: Exception | None = None

        async def record(message: Message) -> None:
            nonlocal is_recorded, unwritten
            if not is_recorded and message["type"] == "http.response.start":
                is_recorded = True
                if self._is_noise(scope, message, address):
                    return
                try:
                    await self._audit.record(scope, message, address=address)
                except Exception as error:
                    unwritten = error
                    raise

        async def send_recorded(message: Message) -> None:
            await record(message)
            let_go()  # a stream lasts for hours
            await send(message)

        try:
            principal = scope["state"]["principal"] = await self._admit(scope, address)
            if principal is not None:
                let_go = await self._in_hand.take(principal.id)
        except TooManyRequestsError as error:  # not recorded: they would fill the audit
            await of_error(error)(scope, receive, send)
            return
        except ServiceError as error:
            await _refusal(scope, error)(scope, receive, send_recorded)
            return
        asked = asking.set(principal.tenant if principal else "")
        try:
            await self._app(scope, receive, send_recorded)
        except Exception as error:
            await record({"type": "http.response.start", "status": 500})
            if unwritten is not None:
                # That is what the caller must hear, and not that the application was broken off.
                raise unwritten from error
            raise
        finally:
            asking.reset(asked)
            let_go()

    def _is_noise(self, scope: Scope, answer: Message, address: str) -> bool:
        """Whether nobody known was refused a change from here once more, after many times."""
        is_stranger = scope["state"].get("principal") is None
        is_worker = path_of(scope).startswith(WORKER_PATHS)
        is_change = scope["method"] not in SAFE_METHODS and not is_worker
        is_counted = is_stranger and is_change and answer["status"] >= BAD_REQUEST
        return is_counted and self._strangers.take(address) > 0

    async def _admit(self, scope: Scope, address: str) -> Principal | None:
        """Who asks, or None where nobody has to say.

        Raises:
            ServiceError: the caller may not come in, or not now.
        """
        path = path_of(scope)
        if path.startswith(WORKER_PATHS):
            _spend(self._workers, address)
            return None
        _check_origin(scope)
        if path == UNCOUNTED:
            return None
        if is_open(path):
            _spend(self._callers, address)
            return None
        principal = await self._recognise(scope, address)
        if principal is None:
            _spend(self._callers, address)
            raise UnauthorizedError(
                "a token that is good here is needed: Authorization: Bearer <token>, which tan-cli "
                "takes from TAN_API_TOKEN; an admin makes one with `tan-cli token create`"
            )
        _spend(self._callers, address if principal is LOCAL else f"token {principal.id}")
        return principal

    async def _recognise(self, scope: Scope, address: str) -> Principal | None:
        if not await self._authenticator.asks_for_tokens():
            return LOCAL
        headers = Headers(scope=scope)
        scheme, _, value = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            known = await self._authenticator.by_token(value.strip(), address=address)
            return known.principal if known else None
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE)
        found = await self._authenticator.by_session(cookie) if cookie else None
        if found is None:
            return None
        principal, csrf_token = found
        scope["state"]["csrf_token"] = csrf_token
        if scope["method"] not in SAFE_METHODS and path_of(scope) != SIGN_OUT:
            check_csrf(csrf_token, headers.get(CSRF_HEADER, ""))
        return principal


def _nothing() -> None:
    """There is nothing to let go of."""


def is_open(path: str) -> bool:
    """Whether everybody may ask for it."""
    return path in OPEN_PATHS or path.startswith(ASSETS)


def check_csrf(expected: str, given: str) -> None:
    """Refuse a change that no page of this session asked for.

    Raises:
        StalePageError: the token is missing or wrong.
    """
    if not hmac.compare_digest(given.encode(), expected.encode()):
        raise StalePageError(
            "somebody has signed in again in this browser since the page was loaded: load it again "
            f"(a change needs the {CSRF_HEADER} of this session)"
        )


def address_of(scope: Scope) -> str:
    """Where the request comes from."""
    client = scope.get("client")
    return client[0] if client else UNKNOWN_ADDRESS


def path_of(scope: Scope) -> str:
    """The path without the prefix that a proxy puts before every path."""
    return scope["path"].removeprefix(str(scope.get("root_path", "")).rstrip("/"))


def wants_page(scope: Scope) -> bool:
    """Whether a browser's window shows the answer, at an address of a page or at one that is nothing's."""
    if is_page(scope):
        return True
    return "text/html" in Headers(scope=scope).get("accept", "") and route_of(scope)[0] is None


def is_page(scope: Scope) -> bool:
    """Whether the address is one of the dashboard's."""
    path = path_of(scope)
    return path == "/" or path.startswith("/ui/")


def _check_origin(scope: Scope) -> None:
    headers = Headers(scope=scope)
    origin = headers.get("origin")
    if (
        scope["method"] not in SAFE_METHODS
        and origin is not None
        and _host_of(origin) != headers.get("host", "")
    ):
        raise ForbiddenError(f"a change cannot be asked for from {origin[:200]!r}")


def _host_of(origin: str) -> str | None:
    """With its port; None where the origin is no address at all."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _spend(buckets: Buckets, key: str) -> None:
    seconds = buckets.take(key)
    if seconds > 0:
        raise TooManyRequestsError("more requests than this caller may make", seconds)


def _refusal(scope: Scope, error: ServiceError) -> Response:
    """A problem; for somebody who looks at a page, the way to sign in."""
    if (
        isinstance(error, UnauthorizedError)
        and wants_page(scope)
        and scope["method"] in ("GET", "HEAD")
    ):
        base = str(scope.get("root_path", "")).rstrip("/")
        query = scope.get("query_string", b"").decode("latin-1")
        wanted = f"{path_of(scope)}?{query}" if query else path_of(scope)
        return RedirectResponse(f"{base}{SIGN_IN}?next={quote(wanted, safe='/')}", 303)
    return of_error(error)

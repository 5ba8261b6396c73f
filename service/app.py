"""The API process: ``python -m service.app``. Starts without torch and without ray."""

import asyncio
import contextlib
import gc
import logging
import resource
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from types import FrameType

import uvicorn
from fastapi import APIRouter, Depends, FastAPI

from service import docs, gate, openapi, problems, telemetry
from service.access import endpoints as access
from service.access.audit import Audit
from service.access.door import Door
from service.access.routes import scopes
from service.body_limit import BodyLimit
from service.calibration import endpoints as calibration
from service.context import Context
from service.dashboard import (
    audit,
    compare,
    compare_trials,
    editor,
    listing,
    planner,
    privacy,
    register,
    sign_in,
    statement,
    statement_check,
    study,
    trial,
)
from service.dashboard import calibration as calibration_page
from service.dashboard import endpoints as dashboard
from service.dashboard.awaiting import COUNTED
from service.dashboard.pages import ErrorPages
from service.dashboard.warm_up import warm_up
from service.datasets import endpoints as datasets
from service.db.session import Database
from service.head import Head
from service.health import endpoints as health
from service.hub import EventHub
from service.ledger import endpoints as ledger
from service.logs import endpoints as logs
from service.metrics import endpoints as metrics
from service.plans import endpoints as plans
from service.private_run import endpoints as private_run
from service.publication import endpoints as publication
from service.publication.published import Published, refuse_restored
from service.request_id import RequestId
from service.runs import endpoints as runs
from service.settings import Settings, SettingsError, read_settings, unread_settings
from service.studies import endpoints as studies
from service.trials import endpoints as trials
from service.webhooks import endpoints as webhooks
from tan_core import log_records

GRACEFUL_SECONDS = 10
KEEP_ALIVE_SECONDS = 75
"""Longer than drivers pause between two heartbeats, and than proxies keep a connection that is idle."""
DESCRIPTORS = (65_536, 10_240)
"""Files that are open at once, for thousands of pages that watch; Macs refuse the first, whatever they say is allowed."""
DESCRIPTION = """\
Hyper-parameter search and private training at constant TAN, with a ledger that cannot be overspent.

Every error is `application/problem+json`; `errors` lists the fields at fault by their path in the YAML.
"""


class StartError(Exception):
    """The API cannot be started as it is configured."""


def create_app(settings: Settings, database: Database | None = None) -> FastAPI:
    """The application. A database that is passed in stays its owner's to close."""
    shared = database or _open(settings)
    context = Context(settings=settings, database=shared, hub=EventHub(shared))

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        warming = asyncio.create_task(warm_up(context), name="warm-up")
        try:
            yield
        finally:
            warming.cancel()
            await asyncio.wait([warming])
            await context.hub.close()
            await measured.close()
            if database is None:
                await shared.close()

    app = FastAPI(
        title="TAN Search",
        version=_version(),
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.context = context
    app.state.published = Published(settings.home_path)
    app.add_middleware(Head)
    app.add_middleware(BodyLimit)
    app.add_middleware(
        Door,
        authenticator=context.authenticator,
        audit=Audit(shared),
        limit=settings.rate_limit,
        at_once=settings.database_pool * 3 // 4,
    )
    app.add_middleware(gate.Gate, settings=settings)
    measured = metrics.install(app)
    app.add_middleware(ErrorPages)
    app.add_middleware(RequestId)
    problems.install(app)
    openapi.install(app, lambda: scopes(app))
    app.router.routes.extend(_rooms().routes)
    return app


@cache
def _rooms() -> APIRouter:
    """Every address there is. FastAPI works out a route when it is first looked at: once for all applications of a process."""
    house = APIRouter(
        generate_unique_id_function=openapi.operation_id,
        responses=problems.described(400, 401, 403, 429, 500, 503),
        dependencies=[Depends(refuse_restored)],
    )
    for room in (
        runs,  # first: nobody asks more often than drivers, and each room before costs them time
        health,
        metrics,
        studies,
        trials,
        private_run,
        logs,
        calibration,
        plans,
        datasets,
        ledger,
        publication,
        webhooks,
        access,
        docs,
        sign_in,
    ):
        house.include_router(room.router)
    for room in (
        planner,
        compare,
        privacy,
        register,
        statement,
        statement_check,
        audit,
        calibration_page,
        listing,
        editor,
        study,
        compare_trials,  # before the room whose trials have numbers
        trial,
    ):
        house.include_router(room.router, dependencies=[COUNTED])
    house.include_router(dashboard.router)
    for room in (listing, editor, register, study):
        house.include_router(room.actions)
    return house


class Server(uvicorn.Server):
    """Ends the event streams when it is told to stop: they would hold it up otherwise."""

    def __init__(self, config: uvicorn.Config, hub: EventHub) -> None:
        super().__init__(config)
        self._hub = hub

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note the signal, and let every subscriber come to its end. A second Ctrl-C ends at once.

        The signal is not raised again at the end, as uvicorn would: who was told to stop and did so
        exits with 0.
        """
        self._hub.shut()
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def main() -> int:
    """Serve until SIGINT or SIGTERM."""
    try:
        settings = read_settings()
    except SettingsError as error:
        logging.getLogger(__name__).error("%s", error)
        return 2
    log_records.configure(settings.log_format)
    for told in unread_settings():
        logging.getLogger(__name__).warning("%s", told)
    if settings.weak_token and settings.serves_others:
        logging.getLogger(__name__).error("%s", settings.weak_token)
        return 2
    try:
        app = create_app(settings)
        end_telemetry = telemetry.install(app, settings)
    except (StartError, telemetry.TelemetryError) as error:
        logging.getLogger(__name__).error("%s", error)
        return 2
    context: Context = app.state.context
    _take_descriptors()
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        root_path=settings.root_path,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=settings.trusted_proxies is not None,
        forwarded_allow_ips=settings.trusted_proxies,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )
    # What is there now stays: a full collection that walked through it would hold up every request.
    gc.collect()
    gc.freeze()
    inherited = [socket.socket(fileno=number) for number in settings.listen_fd]
    Server(config, context.hub).run(sockets=inherited or None)
    end_telemetry()
    return 0


def _take_descriptors() -> None:
    """Every page that is open holds a connection, and a shell lends no more than 1,024 files."""
    lent, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in DESCRIPTORS:
        allowed = wanted if most == resource.RLIM_INFINITY else min(most, wanted)
        if lent == resource.RLIM_INFINITY or lent >= allowed:
            return
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
            return


def _open(settings: Settings) -> Database:
    if settings.database_url is None:
        raise StartError(
            "TAN_DATABASE_URL is not set; `tan-cli serve` sets it, with an embedded PostgreSQL"
        )
    return Database(settings.database_url.get_secret_value(), pool_size=settings.database_pool)


def _version() -> str:
    try:
        return version("tan-search")
    except PackageNotFoundError:
        return "0"


if __name__ == "__main__":
    sys.exit(main())

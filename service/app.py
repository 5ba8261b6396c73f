"""The API process: ``python -m service.app``. Starts without torch and without ray."""

import contextlib
import logging
import socket
import sys
from collections.abc import AsyncGenerator
from importlib.metadata import PackageNotFoundError, version
from types import FrameType

import uvicorn
from fastapi import FastAPI

from service import docs, gate, health, log_records, openapi, problems
from service.calibration import endpoints as calibration
from service.context import Context
from service.dashboard import endpoints as dashboard
from service.datasets import endpoints as datasets
from service.db.session import Database
from service.hub import EventHub
from service.ledger import endpoints as ledger
from service.metrics import endpoints as metrics
from service.plans import endpoints as plans
from service.request_id import RequestId
from service.runs import endpoints as runs
from service.settings import Settings
from service.studies import endpoints as studies
from service.trials import endpoints as trials

GRACEFUL_SECONDS = 10
DESCRIPTION = """\
Hyper-parameter search and private training at constant TAN, with a ledger that cannot be overspent.

Every error is `application/problem+json`; `errors` lists the fields at fault by their path in the YAML.
"""


class StartError(Exception):
    """The API cannot be started as it is configured."""


def create_app(settings: Settings, database: Database | None = None) -> FastAPI:
    """The application. A database that is passed in stays its owner's to close."""
    check_exposure(settings)
    shared = database or _open(settings)
    context = Context(settings=settings, database=shared, hub=EventHub(shared))

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        try:
            yield
        finally:
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
        responses=problems.described(400, 500),
    )
    app.state.context = context
    app.add_middleware(gate.Gate, settings=settings)
    measured = metrics.install(app)
    app.add_middleware(RequestId)
    problems.install(app)
    openapi.install(app)
    for room in (
        health,
        metrics,
        studies,
        trials,
        calibration,
        plans,
        datasets,
        ledger,
        runs,
        docs,
        dashboard,
    ):
        app.include_router(room.router)
    return app


def check_exposure(settings: Settings) -> None:
    """Refuse to serve other machines without a token."""
    if settings.api_token is None and not gate.is_loopback(settings.host):
        raise StartError(
            f"TAN_HOST={settings.host} can be reached from other machines: set TAN_API_TOKEN to a "
            "long random string, which users then send, or bind to 127.0.0.1"
        )


class Server(uvicorn.Server):
    """Ends the event streams when it is told to stop: they would hold it up otherwise."""

    def __init__(self, config: uvicorn.Config, hub: EventHub) -> None:
        super().__init__(config)
        self._hub = hub

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note the signal, and let every subscriber come to its end."""
        self._hub.shut()
        super().handle_exit(sig, frame)


def main() -> int:
    """Serve until SIGINT or SIGTERM."""
    settings = Settings()
    log_records.configure(settings.log_format)
    try:
        app = create_app(settings)
    except StartError as error:
        logging.getLogger(__name__).error("%s", error)
        return 2
    context: Context = app.state.context
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
    )
    inherited = None if settings.listen_fd is None else [socket.socket(fileno=settings.listen_fd)]
    Server(config, context.hub).run(sockets=inherited)
    return 0


def _open(settings: Settings) -> Database:
    if settings.database_url is None:
        raise StartError(
            "TAN_DATABASE_URL is not set; `tan-cli serve` sets it, with an embedded PostgreSQL"
        )
    return Database(settings.database_url.get_secret_value())


def _version() -> str:
    try:
        return version("tan-search")
    except PackageNotFoundError:
        return "0"


if __name__ == "__main__":
    sys.exit(main())

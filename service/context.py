"""What every request may use: made once per process, found through ``ContextDep``."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from fastapi import Depends, Request

from service.arithmetic import Arithmetic
from service.auth.authenticator import Authenticator
from service.auth.secrets import server_secret
from service.db.session import Database
from service.hub import EventHub
from service.pace import Pace
from service.settings import Settings


@dataclass(frozen=True)
class Context:
    """The process's shared parts."""

    settings: Settings
    database: Database
    hub: EventHub

    @cached_property
    def authenticator(self) -> Authenticator:
        """Recognises who asks."""
        return Authenticator(self.settings, self.database)

    @cached_property
    def arithmetic(self) -> Arithmetic:
        """Where plans are computed."""
        return Arithmetic()

    @cached_property
    def pace(self) -> Pace:
        """How often drivers should be heard."""
        return Pace(self.database, timeout_seconds=self.settings.heartbeat_timeout_seconds)

    @cached_property
    def secret(self) -> bytes:
        """The server secret that run tokens are derived from."""
        return server_secret(self.settings.home_path)


# Dependencies are coroutines: FastAPI sends plain functions to a thread, which takes longer than they do.
async def _context(request: Request) -> Context:
    return request.app.state.context


ContextDep = Annotated[Context, Depends(_context)]

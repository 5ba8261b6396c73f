"""What the API says about itself."""

from typing import Literal

from pydantic import BaseModel


class Health(BaseModel):
    """A good answer."""

    status: Literal["ok"] = "ok"


class Readiness(Health):
    """The process can serve."""

    restored_backup: bool = False
    """The database is older than what left the service, or another one: until somebody settles that, only
    datasets and ledgers are shown, and nothing is started or charged."""
    detail: str | None = None
    """What then was found, and how it is settled."""

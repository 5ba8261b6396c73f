"""What the API says about itself."""

from typing import Literal

from pydantic import BaseModel


class Health(BaseModel):
    """A good answer."""

    status: Literal["ok"] = "ok"

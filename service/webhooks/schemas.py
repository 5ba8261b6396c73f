"""What the API says about deliveries."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict


class DeliveryView(BaseModel):
    """One message to one address."""

    model_config = ConfigDict(
        from_attributes=True,
        json_schema_extra={
            "examples": [
                {
                    "id": "d-5f0c2b7e9a1d4c3b8e6f7a90",
                    "study_id": "s-0123456789ab",
                    "event": "completed",
                    "host": "hooks.example.org",
                    "state": "pending",
                    "tries": 2,
                    "answer": "HTTP 503",
                    "next_try_at": "2026-11-21T12:00:15Z",
                    "created_at": "2026-11-21T12:00:00Z",
                    "finished_at": None,
                }
            ]
        },
    )

    id: str
    """The receiver's ``X-TAN-Delivery``, the same at every try."""
    study_id: str
    event: Literal["completed", "failed", "cancelled", "awaiting_approval"]
    host: str
    """Of the address, which may hold a secret and is not shown."""
    state: Literal["pending", "delivered", "given_up"]
    tries: int
    answer: str | None
    """Of the last try."""
    next_try_at: datetime
    created_at: datetime
    finished_at: datetime | None


class DeliveryList(BaseModel):
    """Deliveries, the newest first."""

    items: list[DeliveryView]

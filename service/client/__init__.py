"""The API as Python: one method per operation, typed answers, errors that carry the problem.

Example::

    from service.client import Client

    with Client("http://127.0.0.1:8321", token=None) as client:
        study = client.submit_study(spec, idempotency_key="digits-1")
        for event in client.every_event(study.id):
            print(event.kind, event.data)
        print(client.wait_study(study.id).state)
"""

from service.client.client import Client
from service.client.errors import (
    ClientError,
    LostAnswerError,
    ProblemError,
    UnreachableError,
    UnsendableTokenError,
    WaitTimeoutError,
)
from service.client.stream import Event

__all__ = [
    "Client",
    "ClientError",
    "Event",
    "LostAnswerError",
    "ProblemError",
    "UnreachableError",
    "UnsendableTokenError",
    "WaitTimeoutError",
]

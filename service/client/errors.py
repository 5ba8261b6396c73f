"""What can go wrong between a client and the service.

ClientError               what came back is no answer of a TAN Search service
├── UnreachableError      nothing answered, or not in time
│   └── LostAnswerError   a study was sent, and sent again, and no answer came back
└── ProblemError          the service said no, and why

ValueError
└── UnsendableTokenError  the token cannot be sent: nothing was asked

TimeoutError
└── WaitTimeoutError      a study was waited for, and is still under way
"""

from service.errors import Problem


class ClientError(Exception):
    """A request that was not answered as it was meant to be."""


class UnsendableTokenError(ValueError):
    """The token holds a character that a header cannot carry: the ``position``-th. The token itself is not told."""

    def __init__(self, position: int) -> None:
        self.fault = (
            f"holds a character that a header cannot carry, at place {position}; accepted: visible "
            "ASCII characters, with spaces between them only"
        )
        super().__init__(f"the token {self.fault}")
        self.position = position


class WaitTimeoutError(TimeoutError):
    """A study was still under way after ``seconds``, in ``state``; None: no server said in which."""

    def __init__(self, study_id: str, *, state: str | None, seconds: float) -> None:
        told = "no server told its state" if state is None else f"it is {state}, and goes on"
        super().__init__(f"study {study_id} did not end within {seconds:g} s: {told}")
        self.study_id = study_id
        self.state = state
        self.seconds = seconds


class UnreachableError(ClientError):
    """Nothing answered, or not in time: what was asked for may have been done."""

    def __init__(self, url: str, cause: str) -> None:
        super().__init__(f"{url} does not answer ({cause})")
        self.url = url
        self.cause = cause


class LostAnswerError(UnreachableError):
    """A study was sent and no answer came back: it may be stored under ``idempotency_key``."""

    def __init__(self, url: str, cause: str, *, idempotency_key: str) -> None:
        super().__init__(url, cause)
        self.idempotency_key = idempotency_key


class ProblemError(ClientError):
    """The service refused; ``problem`` says why, ``path`` is what was asked for."""

    def __init__(self, problem: Problem, *, path: str = "") -> None:
        super().__init__(f"{problem.status} {problem.title}: {problem.detail}")
        self.problem = problem
        self.status = problem.status
        self.path = path

"""What a refusal becomes: an exit code, and the next command."""

import pytest

from service.cli.connect import readable
from service.cli.errors import ApiError, Exit
from service.client import ClientError, LostAnswerError, ProblemError, UnreachableError
from service.errors import Problem
from tan_core.spec import FieldProblem


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (422, "about:blank", Exit.BAD_INPUT),
        (400, "about:blank", Exit.BAD_INPUT),
        (409, "/problems/over-budget", Exit.OVER_BUDGET),
        (409, "about:blank", Exit.FAILED),
        (404, "about:blank", Exit.FAILED),
        (401, "about:blank", Exit.FAILED),
        (500, "/problems/over-budget", Exit.FAILED),
    ],
)
def test_the_status_and_type_decide_the_exit_code(status: int, kind: str, code: Exit) -> None:
    assert ApiError(status, {"type": kind, "detail": "no"}).exit_code == code


def test_a_lost_answer_is_asked_for_with_its_key() -> None:
    error = readable(LostAnswerError("http://x", "no answer in time", idempotency_key="k-1"))
    assert "may be stored" in error.message
    assert error.hint is not None
    assert "--idempotency-key k-1" in error.hint


@pytest.mark.parametrize("error", [ClientError("odd"), UnreachableError("http://x", "refused")])
def test_every_error_of_the_client_names_a_command(error: ClientError) -> None:
    assert "tan-cli doctor" in (readable(error).hint or "")


def test_a_fault_in_a_study_names_where_its_keys_are_explained() -> None:
    errors = [FieldProblem(path="train.steps", message="no", value="128")]
    problem = Problem(title="No", status=422, detail="no", errors=errors)
    assert "tan-cli schema" in (readable(ProblemError(problem)).hint or "")


@pytest.mark.parametrize("status", [401, 403, 404, 409, 412, 429, 500, 503])
def test_a_refusal_names_the_next_step(status: int) -> None:
    assert ApiError(status, {"detail": "no"}).hint

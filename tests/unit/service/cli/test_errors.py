"""What a refusal becomes: an exit code, and the next command."""

from typing import Any

import pytest

from service.cli.connect import readable, study_sent
from service.cli.errors import OVER_BUDGET, ApiError, CliError, Exit, Fault
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


def test_truth_values_are_told_as_they_are_written() -> None:
    assert (
        str(Fault("train.steps", "takes a number", True))
        == "train.steps: takes a number (got true)"
    )
    assert str(Fault("name", "too long", "True")) == "name: too long (got 'True')"


def test_a_value_is_told_once() -> None:
    fault = Fault("search.rungs", "rungs must rise, got [4, 2]", [4, 2])
    assert str(fault) == "search.rungs: rungs must rise, got [4, 2]"


class TestStudySent:
    def refusal(
        self, study: dict[str, Any], *paths: str, value: Any = None, **fields: Any
    ) -> CliError:
        errors = [FieldProblem(path=path, message="no", value=value) for path in paths]
        problem = Problem(title="No", detail="no", errors=errors, **fields)
        with pytest.raises(CliError) as caught, study_sent(study):
            raise ProblemError(problem)
        return caught.value

    @pytest.mark.parametrize(
        "path",
        ["train.steps", "foo", "name", "dataset", "promotion", "priority", "evaluation.by_class"],
    )
    def test_a_fault_in_a_study_names_where_its_keys_are_explained(self, path: str) -> None:
        error = self.refusal({}, path, status=422)
        assert (error.exit_code, "tan-cli schema" in (error.hint or "")) == (Exit.BAD_INPUT, True)

    @pytest.mark.parametrize("path", ["dataset", "search.dataset"])
    def test_what_is_wrong_with_a_named_dataset_no_schema_explains(self, path: str) -> None:
        error = self.refusal({}, path, status=422, value="typo")
        assert error.hint == "tan-cli dataset list shows what is registered"

    def test_keys_that_stay_beside_one_that_was_set_go_with_the_whole_mapping(self) -> None:
        errors = [FieldProblem(path="model.hidden", message="unknown key; accepted: name")]
        problem = Problem(title="No", detail="no", status=422, errors=errors)
        with pytest.raises(CliError) as caught, study_sent({}, ["model.name=linear"]):
            raise ProblemError(problem)
        assert caught.value.hint == (
            "--set 'model={name: linear}' replaces all of model, without hidden; "
            "tan-cli schema explains every key of a study.yaml"
        )

    def test_what_is_sent_beside_it_is_no_key_of_a_study(self) -> None:
        assert self.refusal({}, "Idempotency-Key", status=422).hint is None

    def test_a_budget_that_is_exhausted_is_that_of_the_dataset(self) -> None:
        error = self.refusal({"dataset": "mnist"}, status=409, type=OVER_BUDGET)
        assert error.exit_code is Exit.OVER_BUDGET
        assert (error.hint or "").startswith("tan-cli ledger show mnist ")

    def test_where_no_dataset_is_known_none_is_made_up(self) -> None:
        assert "DATASET" not in (ApiError(409, {"type": OVER_BUDGET, "detail": "no"}).hint or "")


@pytest.mark.parametrize("status", [401, 403, 404, 409, 412, 429, 500, 503])
def test_a_refusal_names_the_next_step(status: int) -> None:
    assert ApiError(status, {"detail": "no"}).hint

"""The API keeps its own schema, over a real socket and a real database.

``make fuzz`` asks thousands of requests, FUZZ_CASES of them, and says how many there were of each operation.
"""

import os
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings

from tests.contract import cases
from tests.contract.cases import SCHEMA, excluded, headers
from tests.contract.conftest import ServedApi

CASES = int(os.environ.get("FUZZ_CASES", "10000"))
"""Drawn in each long test: one by one over all operations together, and along the links. The first asks some
8,000 more that are not drawn: what the document says of each value, at its limits and beyond them."""
PATIENCE_SECONDS = 1800.0
"""For an answer: how long a plan takes is a matter of the machine's other work."""
STEPS = 10
"""Requests in one scenario along the links."""
Answers = Counter[tuple[str, int]]
PLANNING = ["make_plan", "submit_study"]
"""A good body is seconds of work for accountants: not among the tests of every change."""
QUICK = SCHEMA.exclude(operation_id=PLANNING)
NUM_OPERATIONS = len(list(SCHEMA.get_all_operations()))
LINKED = SCHEMA.exclude(operation_id=[*sorted(cases.STREAMS), "make_plan"])


@pytest.fixture(autouse=True, scope="module")
def answers(api: ServedApi) -> Iterator[Answers]:
    """How many answers there were of each operation and status."""
    cases.served[:] = [api]
    answers: Answers = Counter()
    yield answers
    print(f"\n{table(answers)}")


def table(answers: Answers) -> str:
    """How many answers of each operation, by status."""
    operations: dict[str, Counter[int]] = {}
    for (operation, status), count in sorted(answers.items()):
        operations.setdefault(operation, Counter())[status] += count
    lines = [
        f"{statuses.total():7,}  {operation}  "
        + ", ".join(f"{status}: {count:,}" for status, count in statuses.items())
        for operation, statuses in operations.items()
    ]
    return "\n".join([*lines, f"{answers.total():7,}  in all, of {len(operations)} operations"])


def fuzzing(examples: int, **more: Any) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        **more,
    )


def ask(case: schemathesis.Case, api: ServedApi, answers: Answers) -> None:
    response = case.call_and_validate(
        base_url=api.url,
        headers=headers(api, case),
        excluded_checks=excluded(case),
        timeout=PATIENCE_SECONDS,
    )
    answers[case.operation.label, response.status_code] += 1
    assert response.status_code != HTTPStatus.TOO_MANY_REQUESTS, "nothing is asked any more"


def follow_links(api: ServedApi, answers: Answers, scenarios: int) -> None:
    """Scenarios along the document's links."""

    class Scenario(LINKED.as_state_machine()):
        def get_call_kwargs(self, case: schemathesis.Case) -> dict[str, Any]:
            return {"base_url": api.url, "headers": headers(api, case), "timeout": PATIENCE_SECONDS}

        def validate_response(self, response: Any, case: schemathesis.Case, **kwargs: Any) -> None:
            answers[case.operation.label, response.status_code] += 1
            case.validate_response(
                response,
                headers=kwargs["headers"],
                excluded_checks=excluded(case),
                transport_kwargs=kwargs,
                recorder=self.recorder,
            )

    Scenario.run(settings=fuzzing(scenarios, stateful_step_count=STEPS, phases=[Phase.generate]))


@pytest.mark.slow
@QUICK.parametrize()
@fuzzing(12)
def test_the_api_keeps_its_own_schema(
    case: schemathesis.Case, api: ServedApi, answers: Answers
) -> None:
    ask(case, api, answers)


@pytest.mark.slow
def test_it_keeps_it_along_its_links(api: ServedApi) -> None:
    answers: Answers = Counter()
    follow_links(api, answers, 30)
    assert answers["POST /studies", 201] > 0
    # Which of the links are followed is drawn anew by every change of the document.
    assert any("{study_id}" in operation and status < 300 for operation, status in answers)
    assert not any(status == HTTPStatus.TOO_MANY_REQUESTS for _, status in answers)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(7200)
@SCHEMA.parametrize()
@fuzzing(-(-CASES // NUM_OPERATIONS))
def test_thousands_of_requests_keep_it_too(
    case: schemathesis.Case, api: ServedApi, answers: Answers
) -> None:
    ask(case, api, answers)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(7200)
def test_thousands_of_requests_along_its_links_keep_it_too(
    api: ServedApi, answers: Answers
) -> None:
    before = answers.total()
    follow_links(api, answers, CASES // STEPS)
    assert answers.total() - before > CASES // 4

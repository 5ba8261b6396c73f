"""What the address of a table of trials says."""

from urllib.parse import parse_qsl

import pytest

from service.dashboard.charts.axis import Axis
from service.dashboard.trials_query import TrialsQuery, ranges_of, written
from service.errors import InvalidInputError


@pytest.mark.parametrize(
    "address",
    [
        "",
        "order=best&trials=3&trial_state=pruned&trial_state=completed&rung=1&hide=time",
        "low.learning_rate=0.5&low.accuracy=0.9&high.a.b-c_d=2.0&one_of.optimizer=sgd&one_of.optimizer=1",
        "rung=1&chart_rung=0",
    ],
)
def test_an_address_is_read_and_written_again(address: str) -> None:
    query = TrialsQuery.read(parse_qsl(address))

    assert query.text() == address
    assert query.is_filter is ("=" in address)


def test_what_is_empty_or_unknown_says_nothing() -> None:
    fields = [("low.rate", ""), ("one_of.kind", ""), ("rung", ""), ("low", "3"), ("colour", "red")]

    assert TrialsQuery.read(fields) == TrialsQuery()


@pytest.mark.parametrize(
    ("field", "value"),
    [("low.rate", "much"), ("high.rate", "nan"), ("low.a b", "1"), ("order", "odd"), ("trials", "0")],
)  # fmt: skip
def test_one_that_means_nothing_is_named(field: str, value: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        TrialsQuery.read([(field, value)])

    assert [problem.path.removesuffix(".[key]") for problem in refused.value.problems] == [field]


def test_choices_are_written_as_yaml_has_them() -> None:
    assert [written(each) for each in ("sgd", 0.9, 3, True)] == ["sgd", "0.9", "3", "true"]


def test_every_axis_without_choices_and_the_accuracy_have_a_range() -> None:
    axes = [Axis("rate", ("0.1", "1", "10")), Axis("kind", ("a", "b"), choices=("a", "b")), Axis("views", ("1", "4", "8"), integers=8)]  # fmt: skip

    assert ranges_of(axes) == [
        ("accuracy", ("0", "1"), "any"),
        ("rate", ("0.1", "10"), "any"),
        ("views", ("1", "8"), "1"),
    ]

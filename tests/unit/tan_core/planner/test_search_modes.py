import pytest

from tan_core.accounting import SearchAccounting
from tan_core.planner import plan_study
from tan_core.planner.search_modes import search_privacy_by_mode
from tan_core.spec import StudySpec


@pytest.fixture
def spec() -> StudySpec:
    return StudySpec.model_validate(
        {
            "name": "modes",
            "privacy": {"epsilon": 3.0, "delta": 1e-5},
            "dataset": "any",
            "model": {"name": "mlp"},
            "search": {
                "accounting": "declared_unaccounted",
                "trials": 4,
                "rungs": [64],
                "space": {"learning_rate": {"low": 0.1, "high": 1.0}},
            },
            "train": {"batch_size": 256, "steps": 100},
        }
    )


@pytest.mark.slow
def test_every_mode_is_answered_as_a_plan_in_that_mode_would(spec: StudySpec) -> None:
    plan = plan_study(spec, num_examples=1149)

    found = search_privacy_by_mode(spec, plan, search_num_examples=1149)

    assert {*(one.mode for one in found)} == {*SearchAccounting} - {SearchAccounting.NO_SEARCH}
    for one in found:
        if one.mode is SearchAccounting.ACCOUNTED:
            assert one.epsilon == one.epsilon_if_accounted
            assert "planned anew" in one.note
            continue
        search = spec.search.model_copy(update={"accounting": one.mode})
        in_mode = plan_study(spec.model_copy(update={"search": search}), num_examples=1149)
        assert one == in_mode.search_privacy


def test_only_what_can_be_claimed_has_an_epsilon(spec: StudySpec) -> None:
    plan = plan_study(spec, num_examples=1149)

    by_mode = {
        one.mode: one.epsilon
        for one in search_privacy_by_mode(spec, plan, search_num_examples=1149)
    }

    assert by_mode[SearchAccounting.DECLARED_UNACCOUNTED] is None
    assert by_mode[SearchAccounting.PUBLIC_PROXY] == plan.privacy.epsilon_reserved
    accounted = by_mode[SearchAccounting.ACCOUNTED]
    assert accounted is not None
    assert accounted > plan.privacy.epsilon_reserved


def test_a_study_without_a_search_has_one_mode_that_costs_the_run(spec: StudySpec) -> None:
    given = StudySpec.model_validate(
        {**spec.model_dump(mode="json"), "search": {"accounting": "no_search"}}
    )
    plan = plan_study(given, num_examples=1149)

    (only,) = search_privacy_by_mode(given, plan, search_num_examples=1149)

    assert only == plan.search_privacy
    assert only.mode is SearchAccounting.NO_SEARCH
    assert only.epsilon == plan.privacy.epsilon_reserved
    assert (only.simulations, only.epsilon_if_accounted) == (0, None)

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.warm_start.points import OWN_LIST, Source, given_values, points_of
from tan_core.spec import StudySpec
from tan_core.wire import KnownPoint
from tests.fixtures.api import make_spec

OLD = "s-0123456789ab"


def make_source(
    *trials: dict[str, Any], study_id: str = OLD, steps: int = 100, **changes: Any
) -> Source:
    return Source(
        study_id=study_id,
        spec=StudySpec.model_validate(make_spec(**changes)),
        steps=steps,
        trials=list(enumerate(trials)),
    )


def points(space: dict[str, Any], *sources: Source, trials: int = 24, **changes: Any) -> list[Any]:
    """The parameters that a search over the space would try first."""
    return [point.params for point in known_points(space, *sources, trials=trials, **changes)]


def known_points(
    space: dict[str, Any], *sources: Source, trials: int = 24, **changes: Any
) -> list[KnownPoint]:
    search = {"space": space, "trials": trials}
    spec = StudySpec.model_validate(make_spec(search=search, **changes))
    return points_of(spec.search, spec.model, sources)


class TestValues:
    def test_each_key_takes_the_trial_s_own_value_else_the_fixed_one(self) -> None:
        source = make_source(
            {"learning_rate": 2.0}, train={"momentum": 0.9, "batch_size": 256, "steps": 100}
        )
        space = {
            "learning_rate": {"low": 0.1, "high": 4.0},
            "momentum": {"choices": [0.0, 0.9]},
            "clip_norm": {"low": 0.5, "high": 2.0},
        }
        assert points(space, source) == [{"learning_rate": 2.0, "momentum": 0.9, "clip_norm": 1.0}]

    def test_where_no_shares_were_stated_all_classes_counted_alike(self) -> None:
        space = {
            "class_balance": {"low": 0.0, "high": 1.0},
            "learning_rate": {"low": 0.1, "high": 4.0},
        }
        shares = {"class_shares": [1.0] * 10}
        without = make_source({"learning_rate": 2.0})
        with_them = make_source({"learning_rate": 2.0}, train=shares)

        (alike,), (balanced,) = (points(space, each, train=shares) for each in (without, with_them))

        assert (alike["class_balance"], balanced["class_balance"]) == (0.0, 1.0)

    @pytest.mark.parametrize(
        ("model", "key", "known", "inside"),
        [
            (
                {"name": "python:lab:small", "options": {"width": 8}},
                "model.options.width",
                8,
                [8, 16],
            ),
            ({"name": "mlp", "hidden": [8]}, "hidden", 8, [8, 16]),
        ],
        ids=["python", "mlp"],
    )
    def test_an_option_is_what_the_trial_or_the_model_had(
        self, model: dict[str, Any], key: str, known: int, inside: list[int]
    ) -> None:
        space = {"learning_rate": {"low": 0.1, "high": 4.0}, key: {"choices": inside}}
        fixed = make_source({"learning_rate": 2.0}, model=model)
        searched = make_source(
            {"learning_rate": 2.0, key: 16},
            model=model,
            search={"space": {"learning_rate": {"low": 0.1, "high": 4.0}, key: {"choices": [16]}}},
        )
        model = {**model, "options": {"depth": 3}} if "options" in model else {"name": "mlp"}

        assert points(space, fixed, searched, model=model) == [
            {"learning_rate": 2.0, key: known},
            {"learning_rate": 2.0, key: 16},
        ]

    def test_bare_and_dotted_names_are_one_field(self) -> None:
        source = make_source(
            {"train.learning_rate": 2.0, "width": 32},
            model={"name": "tanh-cnn"},
            search={
                "space": {
                    "train.learning_rate": {"low": 1.0, "high": 3.0},
                    "width": {"choices": [8, 32]},
                }
            },
        )
        space = {"learning_rate": {"low": 1.0, "high": 3.0}, "model.width": {"choices": [32, 64]}}
        found = points(space, source, model={"name": "tanh-cnn"})
        assert found == [{"learning_rate": 2.0, "model.width": 32}]

    def test_trials_are_learnt_from_at_their_own_scale_without_options_that_they_do_not_read(
        self,
    ) -> None:
        model = {"name": "scatter-linear"}
        options = {
            "normalization": {"choices": ["group", "whitened"]},
            "groups": {"choices": [9, 27, 81]},
            "learning_rate": {"low": 0.1, "high": 4.0},
        }
        trials = (
            {"normalization": "whitened", "learning_rate": 0.5},
            {"normalization": "group", "groups": 81, "learning_rate": 0.25},
        )
        source = make_source(*trials, model=model, search={"space": options})

        assert points(options, source, model=model) == [*trials]
        fixed = {"learning_rate": options["learning_rate"], "groups": options["groups"]}
        of_groups = [{"learning_rate": 0.25, "groups": 81}]
        assert points(fixed, source, model=model) == of_groups
        whitened = {**model, "normalization": "whitened"}
        space = {"learning_rate": options["learning_rate"]}
        assert points(space, source, model=whitened) == [{"learning_rate": 0.5}]

    def test_an_option_is_taken_over_where_the_new_candidate_reads_it(self) -> None:
        model = {"name": "scatter-linear"}
        rate = {"low": 0.1, "high": 4.0}
        source = make_source(
            {"learning_rate": 0.5, "groups": 27},
            model=model,
            search={"space": {"learning_rate": rate, "groups": {"choices": [9, 27]}}},
        )
        # Nobody asks for groups where nothing is normalised in groups.
        space = {
            "normalization": {"choices": ["none", "group"]},
            "groups": {"choices": [9, 81]},
            "learning_rate": rate,
        }
        assert points(space, source, model=model) == []
        assert points({**space, "normalization": "none", "groups": 27}, source, model=model) == [
            {"normalization": "none", "learning_rate": 0.5}
        ]

    def test_steps_that_were_left_to_the_plan_are_those_it_came_to(self) -> None:
        source = make_source({"learning_rate": 1.0}, steps=300, train={"steps": "auto"})
        space = {"steps": {"low": 100, "high": 400}}
        assert points(space, source, train={"steps": "auto"}) == [{"steps": 300}]

    @pytest.mark.parametrize("momentum", [0.5, {"choices": [0.5]}], ids=["value", "one choice"])
    def test_a_fixed_value_of_the_space_is_no_choice(self, momentum: Any) -> None:
        space = {"learning_rate": {"low": 0.1, "high": 4.0}, "momentum": momentum}
        source = make_source({"learning_rate": 2.0})
        assert points(space, source) == [{"learning_rate": 2.0, "momentum": 0.5}]

    @pytest.mark.parametrize(
        ("dimension", "value", "is_inside"),
        [
            ({"low": 0.5, "high": 2.0}, 0.5, True),
            ({"low": 0.5, "high": 2.0}, 2.0, True),
            ({"low": 0.5, "high": 2.0}, 0.49, False),
            ({"low": 0.5, "high": 2.0}, 2.01, False),
            ({"choices": [0.5, 2.0]}, 2, True),
            ({"choices": [0.5, 2.0]}, 1.0, False),
        ],
    )
    def test_a_value_outside_the_dimension_leaves_the_point_out(
        self, dimension: dict[str, Any], value: float, is_inside: bool
    ) -> None:
        found = points({"learning_rate": dimension}, make_source({"learning_rate": value}))
        assert found == ([{"learning_rate": value}] if is_inside else [])

    @pytest.mark.parametrize(("value", "taken"), [(8.0, [8]), (8.5, []), (True, [])])
    def test_an_integer_dimension_takes_whole_numbers(
        self, value: float | bool, taken: list[int]
    ) -> None:
        source = make_source({"steps": value})
        found = points({"steps": {"low": 1, "high": 9}}, source, train={"steps": "auto"})
        assert found == [{"steps": each} for each in taken]
        assert all(type(point["steps"]) is int for point in found)

    def test_a_value_that_the_point_would_not_read_is_no_obstacle(self) -> None:
        space = {"optimizer": {"choices": ["sgd", "adam"]}, "beta2": {"low": 0.9, "high": 0.99}}

        (sgd,) = points(space, make_source({"optimizer": "sgd"}))

        assert sgd == {"optimizer": "sgd"}
        assert points(space, make_source({"optimizer": "adam"})) == []

    def test_true_is_not_one(self) -> None:
        space = {"augmentation_multiplicity": {"choices": [1, 2]}}
        assert points(space, make_source({"augmentation_multiplicity": True})) == []


class TestChoice:
    SPACE = {"learning_rate": {"low": 0.01, "high": 100.0}}  # noqa: RUF012

    def test_the_best_of_every_source_come_before_the_second_best(self) -> None:
        one = make_source({"learning_rate": 1.0}, {"learning_rate": 2.0}, study_id="s-00000000000a")
        two = make_source({"learning_rate": 3.0}, {"learning_rate": 4.0}, study_id="s-00000000000b")

        found = known_points(self.SPACE, one, two)

        assert [(point.params["learning_rate"], point.source) for point in found] == [
            (1.0, "s-00000000000a trial 0"),
            (3.0, "s-00000000000b trial 0"),
            (2.0, "s-00000000000a trial 1"),
            (4.0, "s-00000000000b trial 1"),
        ]

    def test_equal_points_are_tried_once(self) -> None:
        one = make_source({"learning_rate": 1.0}, {"learning_rate": 1.0})
        two = make_source({"train.learning_rate": 1.0}, study_id="s-00000000000b")

        (point,) = known_points(self.SPACE, one, two)

        assert point.source == f"{OLD} trial 0"

    @pytest.mark.parametrize(("trials", "most"), [(1, 1), (7, 1), (8, 2), (24, 6), (400, 20)])
    def test_they_are_at_most_a_quarter_of_the_trials(self, trials: int, most: int) -> None:
        source = make_source(*({"learning_rate": n + 1.0} for n in range(20)))
        assert len(points(self.SPACE, source, trials=trials)) == most

    @given(st.lists(st.floats(-10, 10), max_size=12), st.floats(0.1, 5), st.floats(0, 5))
    def test_every_point_is_one_of_the_space(
        self, values: list[float], low: float, more: float
    ) -> None:
        space = {"learning_rate": {"low": low, "high": low + more + 0.1}}
        source = make_source(*({"learning_rate": value} for value in values))

        for point in points(space, source):
            assert low <= point["learning_rate"] <= low + more + 0.1
            assert point["learning_rate"] in values


class TestOwn:
    """``search.first``: before all that is learnt."""

    SPACE = {"learning_rate": {"low": 0.01, "high": 100.0}, "clip_norm": 0.5}  # noqa: RUF012

    def known(self, *sources: Source, trials: int = 4, **search: Any) -> list[tuple[Any, str]]:
        search = {"space": self.SPACE, "trials": trials, **search}
        spec = StudySpec.model_validate(make_spec(search=search))
        found = points_of(spec.search, spec.model, sources)
        return [(point.params, point.source) for point in found]

    def test_they_come_first_and_take_no_place_of_those_that_are_learnt(self) -> None:
        source = make_source({"learning_rate": 7.0}, {"learning_rate": 8.0})
        own = [{"learning_rate": rate} for rate in (3, 2.0)]

        assert self.known(source, first=own) == [
            ({"learning_rate": 3.0}, OWN_LIST),
            ({"learning_rate": 2.0}, OWN_LIST),
            ({"learning_rate": 7.0, "clip_norm": 0.5}, f"{OLD} trial 0"),
        ]

    def test_what_is_learnt_is_not_tried_again(self) -> None:
        source = make_source({"learning_rate": 3.0}, {"learning_rate": 8.0})

        found = self.known(source, first=[{"learning_rate": 3}])

        assert found == [
            ({"learning_rate": 3.0}, OWN_LIST),
            ({"learning_rate": 8.0, "clip_norm": 0.5}, f"{OLD} trial 1"),
        ]

    def test_each_of_them_is_given_beside_what_is_fixed(self) -> None:
        search = {"space": {**self.SPACE, "momentum": {"choices": [0.0, 0.9]}}, "trials": 4}
        first = [{"learning_rate": 3.0}, {"learning_rate": 2.0, "momentum": 0.9}]
        specs = [
            StudySpec.model_validate(make_spec(search={**search, "first": points}))
            for points in ([], first)
        ]
        (alone,), (one, two) = map(given_values, specs)

        assert not {"learning_rate", "momentum"} & {*alone}
        assert (alone["clip_norm"], alone["train.clip_norm"]) == (0.5, 0.5)
        assert one == {**alone, "learning_rate": 3.0, "train.learning_rate": 3.0}
        assert two == {
            **alone,
            "learning_rate": 2.0,
            "train.learning_rate": 2.0,
            "momentum": 0.9,
            "train.momentum": 0.9,
        }

"""Trainer fields: neutral unless asked for, each with its domain, and none that nobody reads."""

import json
from enum import Enum
from typing import Any

import pytest
from pydantic import ValidationError

from tan_core.execution import PrivateRun
from tan_core.mechanism import Mechanism
from tan_core.planner.candidates import candidate
from tan_core.spec import StudySpec, TrainerConfig, TrainSpec, field_problems
from tan_core.spec.train import NEEDS, Precision

NEUTRAL = {
    name: field.default
    for name, field in TrainerConfig.model_fields.items()
    if name != "class_shares"
}


def study(*, space: dict[str, Any] | None = None, **train: Any) -> dict[str, Any]:
    return {
        "name": "study",
        "privacy": {"epsilon": 3.0, "delta": 1e-5},
        "dataset": "digits",
        "model": {"name": "mlp"},
        "search": {"accounting": "public_proxy", "space": space or {"learning_rate": 1.0}},
        "train": train,
    }


def problems(**sections: Any) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as caught:
        StudySpec.model_validate(study(**sections))
    return [(problem.path, problem.message) for problem in field_problems(caught.value, StudySpec)]


class TestClassShares:
    def test_they_are_facts_and_no_choice(self) -> None:
        assert [path for path, _ in problems(space={"class_shares": {"choices": [[1, 2]]}})]
        assert [path for path, _ in problems(space={"class_shares": 2.0})] == [
            "search.space.class_shares"
        ]

    @pytest.mark.parametrize("shares", [[1.0], [1.0, 0.0], [1.0, -1.0], [], "even"])
    def test_each_is_above_0_and_there_are_two_at_least(self, shares) -> None:
        assert problems(class_shares=shares)

    def test_they_are_of_one_scale(self) -> None:
        ((path, message),) = problems(class_shares=[1e9, 1.0])
        assert path == "train.class_shares"
        assert "accepted: at most 1,000,000 times" in message
        assert StudySpec.model_validate(study(class_shares=[1e6, 1.0]))

    def test_a_balance_needs_them(self) -> None:
        ((path, message),) = problems(class_balance=0.5)
        assert path == "train.class_balance"
        assert "class_shares" in message

        searched = problems(space={"class_balance": {"low": 0.0, "high": 1.0}})
        assert [path for path, _ in searched] == ["search.space.class_balance"]

    def test_a_balance_can_be_searched_beside_them(self) -> None:
        space = {"class_balance": {"low": 0.0, "high": 1.0}}

        spec = StudySpec.model_validate(study(space=space, class_shares=[98, 2]))

        assert spec.searched("class_balance") is not None
        assert spec.train.trainer().class_shares == [98.0, 2.0]

    def test_a_balanced_accuracy_needs_them(self) -> None:
        given = study()
        given["search"]["metric"] = "balanced_accuracy"

        with pytest.raises(ValidationError) as caught:
            StudySpec.model_validate(given)
        (problem,) = field_problems(caught.value, StudySpec)
        assert problem.path == "search.metric"
        assert "train.class_shares" in problem.message
        assert StudySpec.model_validate(given | {"train": {"class_shares": [1, 2]}})

    def test_a_study_that_does_not_state_them_is_written_without(self) -> None:
        assert "class_shares" not in StudySpec.model_validate(study()).model_dump()["train"]


class TestDomains:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            *((name, 1.0) for name in ("warmup_fraction", "final_learning_rate_fraction")),
            *((name, 1.0) for name in ("momentum", "dampening", "beta1", "beta2", "ema_decay")),
            *((name, -0.1) for name in ("warmup_fraction", "dampening", "beta1", "weight_decay")),
            ("adam_epsilon", 0.0),
            ("color_jitter", 1.01),
            ("color_jitter", -0.01),
            ("schedule", "step"),
            ("clipping", "per_layer"),
            ("clipping_stability", 0.0),
            *((name, 1e-16) for name in ("clip_norm", "clipping_stability")),
            ("optimizer", "lamb"),
            ("horizontal_flip", 1),
            ("horizontal_flip", "true"),
            ("precision", "float16"),
        ],
    )
    def test_a_value_outside_is_refused_by_its_path_wherever_it_stands(self, field, value) -> None:
        assert [path for path, _ in problems(**{field: value})] == [f"train.{field}"]
        searched = problems(space={field: {"choices": [value]}})
        assert [path for path, _ in searched] == [f"search.space.{field}.choices.0"]

    @pytest.mark.parametrize("field", NEUTRAL)
    def test_every_field_can_be_searched(self, field: str) -> None:
        value = NEUTRAL[field].value if isinstance(NEUTRAL[field], Enum) else NEUTRAL[field]
        if value == "auto":
            value = 2

        spec = StudySpec.model_validate(study(space={field: {"choices": [value]}}))

        assert spec.searched(field) is not None

    def test_what_is_fixed_reaches_the_trainer_and_comes_back_from_json(self) -> None:
        fixed = {"schedule": "cosine", "warmup_fraction": 0.1, "optimizer": "adamw", "beta2": 0.9}
        trainer = TrainSpec.model_validate(fixed).trainer()

        assert trainer == TrainerConfig.model_validate(fixed)
        assert TrainerConfig.model_validate(json.loads(trainer.model_dump_json())) == trainer


class TestPrecision:
    def test_a_study_that_says_nothing_of_it_trains_in_float32(self) -> None:
        """Neither do studies and assignments that were stored before there was a choice."""
        assert StudySpec.model_validate(study()).train.precision is Precision.FLOAT32
        stored = TrainerConfig().model_dump(mode="json")
        del stored["precision"]
        assert TrainerConfig.model_validate(stored).precision is Precision.FLOAT32

    def test_it_reaches_the_trainer_of_simulations_and_private_run(self) -> None:
        spec = StudySpec.model_validate(study(precision="bfloat16"))
        run = PrivateRun(
            mechanism=Mechanism(sampling_rate=0.1, noise_multiplier=1, clip_norm=1, steps=1),
            num_examples=100,
        )

        chosen = candidate(
            trainer=spec.train.trainer(), model=spec.model, reference=run, params={}, target=None
        )

        assert chosen.trainer.precision is Precision.BFLOAT16
        assert chosen.private_run == run


class TestIdle:
    """A field that no candidate of the study reads."""

    @pytest.mark.parametrize(
        ("train", "field", "fragment"),
        [
            ({"dampening": 0.5}, "dampening", "momentum must be above 0, got 0.0"),
            (
                {"dampening": 0.5, "momentum": 0.9, "optimizer": "adam"},
                "dampening",
                "optimizer must be sgd, got adam",
            ),
            ({"beta1": 0.5}, "beta1", "optimizer must be adam or adamw, got sgd"),
            ({"beta2": 0.5}, "beta2", "optimizer must be adam or adamw, got sgd"),
            ({"adam_epsilon": 0.5}, "adam_epsilon", "optimizer must be adam or adamw, got sgd"),
            (
                {"clipping_stability": 0.1},
                "clipping_stability",
                "clipping must be automatic, got per_example",
            ),
            (
                {"beta1": 0.5, "momentum": 0.9, "optimizer": "adam"},
                "beta1",
                "momentum must be 0, for a momentum replaces it, got 0.9",
            ),
            (
                {"final_learning_rate_fraction": 0.1},
                "final_learning_rate_fraction",
                "schedule must be linear or cosine, got constant",
            ),
        ],
    )
    def test_it_is_refused_with_what_it_needs(self, train, field: str, fragment: str) -> None:
        [(path, message)] = problems(**train)

        assert path == f"train.{field}"
        assert fragment in message

    def test_a_momentum_beside_beta1_is_of_sgd_alone(self) -> None:
        both = {"momentum": {"low": 0.1, "high": 0.9}, "beta1": {"low": 0.8, "high": 0.99}}

        StudySpec.model_validate(study(space={**both, "optimizer": {"choices": ["sgd", "adamw"]}}))
        [(path, message)] = problems(space=both, optimizer="adam")

        assert path == "search.space.momentum"
        assert "optimizer must be sgd, for adam and adamw have the beta1" in message

    @pytest.mark.parametrize("key", ["dampening", "train.dampening"])
    @pytest.mark.parametrize("dimension", [0.5, {"choices": [0, 0.5]}, {"low": 0.0, "high": 0.5}])
    def test_it_is_refused_where_it_is_searched(self, key: str, dimension: Any) -> None:
        [(path, message)] = problems(space={key: dimension})

        assert path == f"search.space.{key}"
        assert "momentum must be above 0" in message

    def test_it_is_refused_where_what_it_needs_is_searched_and_never_met(self) -> None:
        [(path, message)] = problems(space={"optimizer": {"choices": ["adam", "adamw"]}}, momentum=0.9, dampening=0.1)  # fmt: skip

        assert path == "train.dampening"
        assert "got adam or adamw" in message

    def test_every_one_is_told_at_once(self) -> None:
        found = problems(beta2=0.5, space={"dampening": 0.5})

        assert {path for path, _ in found} == {"train.beta2", "search.space.dampening"}

    @pytest.mark.parametrize(
        ("space", "train"),
        [
            ({"momentum": {"choices": [0, 0.9]}, "dampening": {"choices": [0, 0.5]}}, {}),
            ({"momentum": {"low": 0.0, "high": 0.9}}, {"dampening": 0.5}),
            ({"optimizer": {"choices": ["sgd", "adamw"]}, "beta2": {"low": 0.9, "high": 0.99}}, {}),
            ({"dampening": 0}, {}),
            ({"momentum": {"choices": [0, 0.9]}}, {"optimizer": "adam", "beta1": 0.5}),
            ({"schedule": {"choices": ["constant", "linear"]}}, {"final_learning_rate_fraction": 0.1}),
        ],
    )  # fmt: skip
    def test_one_candidate_that_reads_it_is_enough(self, space, train) -> None:
        assert StudySpec.model_validate(study(space=space, **train)).name == "study"

    @pytest.mark.parametrize("need", NEEDS, ids=lambda need: f"{need.field}-{need.other}")
    def test_a_neutral_value_is_never_idle(self, need) -> None:
        """What a stored study writes out in full must be accepted again."""
        assert StudySpec.model_validate(study(**NEUTRAL)).train.trainer() == TrainerConfig()


class TestUnclipped:
    def test_no_study_may_train_without_clipping(self) -> None:
        [(path, message)] = problems(clipping="none")

        assert path == "train.clipping"
        assert "no epsilon; accepted: per_example, automatic" in message

    @pytest.mark.parametrize("dimension", ["none", {"choices": ["per_example", "none"]}])
    def test_nor_search_over_it(self, dimension) -> None:
        [(path, message)] = problems(space={"clipping": dimension})

        assert path == "search.space.clipping"
        assert "no epsilon" in message

    def test_a_searched_rule_takes_the_place_of_the_fixed_one(self) -> None:
        spec = study(space={"clipping": {"choices": ["per_example", "automatic"]}}, clipping="none")

        assert StudySpec.model_validate(spec).searched("clipping") is not None

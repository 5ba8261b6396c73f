"""Fields by path, and what a trial was trained with."""

import copy
from typing import Any

import yaml

from service.trial_spec import asked, flattened, repeated, settings, settings_compared
from tan_core.spec import StudySpec
from tests.integration.dashboard.seeding import DIGITS

SPEC = StudySpec.model_validate(yaml.safe_load(DIGITS.read_text())).model_dump(mode="json")


def study(number: int | None, **params: Any) -> dict[str, Any]:
    best = None if number is None else {"number": number, "params": params}
    return {"name": "digits", "spec": copy.deepcopy(SPEC), "best_trial": best, "promotion": None}


def test_a_dimension_is_one_value_and_a_missing_key_is_none() -> None:
    specs = [
        {"search": {"space": {"lr": {"low": 1, "high": 2}}}, "a": {}},
        {"search": {"space": {}}},
        {},
    ]
    assert flattened(specs) == {
        "search.space.lr": [{"low": 1, "high": 2}, None, None],
        "a": [{}, None, None],
        "search.space": [None, {}, None],
    }


def test_what_is_asked_is_without_what_asks_for_nothing() -> None:
    """A searched rate has its place in the space, and who searches nothing has no trials, not none of them."""
    searched, given = copy.deepcopy(SPEC), copy.deepcopy(SPEC)
    given["search"] |= {"accounting": "no_search", "trials": 0, "space": {}}
    rows = asked([searched, given])
    assert rows["search.accounting"] == ["declared_unaccounted", "no_search"]
    assert rows["search.trials"] == [12, None]
    assert rows["search.sampler"] == ["tpe", "tpe"]
    assert "search.space" not in rows
    assert rows["train.learning_rate"] == [None, SPEC["train"]["learning_rate"]]
    assert rows["train.batch_size"] == [256, 256]


def test_a_parameter_goes_where_the_trial_had_it() -> None:
    spec = {"model": {"name": "x", "momentum": 1, "width": 2}, "train": {"momentum": 3}}
    made = settings(spec, {"momentum": 4, "model.momentum": 5, "width": 6, "train.steps": 7})
    assert made == {
        "model": {"name": "x", "momentum": 5, "width": 6},
        "train": {"momentum": 4, "steps": 7},
    }
    assert spec["train"] == {"momentum": 3}


def test_an_option_of_a_function_goes_below_the_options_of_the_model() -> None:
    model = {"name": "python:lab:small", "options": {"width": 8, "depth": 2}}
    spec = {"model": model, "train": {"momentum": 3}}

    made = settings(spec, {"model.options.width": 16, "options.bias": False, "momentum": 4})

    assert made["model"] == {**model, "options": {"width": 16, "depth": 2, "bias": False}}
    assert made["train"] == {"momentum": 4}
    assert spec["model"] == model


def test_what_one_study_fixed_stands_beside_what_another_searched() -> None:
    fixed, searched = study(3, learning_rate=0.5), study(0, learning_rate=0.5, clip_norm=0.25)
    fixed["spec"]["search"]["space"] = {"learning_rate": {"low": 0.1, "high": 1.0}}
    searched["spec"]["search"]["space"] = {"clip_norm": {"low": 0.1, "high": 1.0}}

    assert settings_compared([fixed, searched]) == {
        "train.learning_rate": [0.5, 0.5],
        "train.clip_norm": [0.5, 0.25],
    }


def test_a_study_without_a_trial_is_no_difference() -> None:
    space = list(SPEC["search"]["space"])
    found = settings_compared([study(1, learning_rate=0.5, ema_decay=0.9), study(None)])
    assert found == {
        f"train.{name}": [value, None] for name, value in zip(space, [0.5, 0.9], strict=True)
    }


def test_a_trial_repeated_is_a_study_that_would_be_taken() -> None:
    plan = {"simulations": [{"expected_batch_size": 8.0}, {"expected_batch_size": 31.999999}]}
    search = {**SPEC["search"], "first": [{"learning_rate": 0.25}, {"learning_rate": 0.5}]}
    of = {**study(7), "name": "n" * 100, "plan": plan, "spec": {**SPEC, "search": search}}

    made = repeated(of, {"learning_rate": 0.5, "ema_decay": 0.9}, number=7)

    spec = StudySpec.model_validate(made)
    assert (spec.search.rungs, spec.search.trials, spec.search.warm_start) == ([8, 32], 1, "none")
    assert spec.search.space == {"learning_rate": 0.5, "ema_decay": 0.9}
    assert spec.search.first == []
    assert spec.name == f"{'n' * 80}-trial-7"
    assert of["spec"] == {**SPEC, "search": search}


def test_a_trial_that_was_paid_for_is_trained_without_a_search() -> None:
    """All of epsilon is left for the run: what is known of the trial is private already."""
    charged = {**SPEC["search"], "accounting": "accounted", "rungs": [32], "budget": 1.0}
    train = {**SPEC["train"], "begin_from": "trial"}
    of = {**study(7), "spec": {**SPEC, "search": charged, "train": train}}

    made = repeated(of, {"learning_rate": 0.5, "ema_decay": 0.9}, number=7)

    spec = StudySpec.model_validate(made)
    assert not spec.has_search
    assert not spec.goes_on_from_trial
    assert (spec.train.learning_rate, spec.train.ema_decay) == (0.5, 0.9)

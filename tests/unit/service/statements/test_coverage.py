"""What stands beside epsilon in a statement: it follows from the search, and a verifier holds it to that."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from service.evaluation import BASELINE_NOTE, NO_BASELINE_NOTE, NOTE
from service.publication.keys import signing_key
from service.publication.signing import sign
from service.statements.check import Check
from service.statements.coverage import stated_coverage
from service.statements.facts import Charge
from service.statements.statement import OF_PEOPLE, build
from service.statements.verify import verify_statement
from tan_core.accounting.effort import limited_effort
from tan_core.data import inspect
from tan_core.wire import Evaluation
from tests.support.evaluations import evaluation
from tests.unit.service.statements.test_statement import MECHANISM, make_facts, make_spec

WEIGHTS = (
    "Covered: the released weights, every checkpoint, and everything computed from them alone."
)
EARLIER = [
    WEIGHTS,
    "Not covered: the test accuracy, which reads the test split; the records of the validation split that "
    "simulations score on, unless the search is accounted for.",
]
Statement = dict[str, Any]


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Ed25519PrivateKey:
    return signing_key(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def unaccounted() -> Statement:
    return build(make_facts())


@pytest.fixture(scope="module")
def proxied() -> Statement:
    return build(make_facts(spec=make_spec(accounting="public_proxy")))


@pytest.fixture(scope="module")
def given() -> Statement:
    return build(make_facts(spec=make_spec(accounting="no_search")))


def found(statement: Statement, key: Ed25519PrivateKey) -> dict[str, Check]:
    return {check.name: check for check in verify_statement(sign(statement, key))}


def bad(statement: Statement, key: Ed25519PrivateKey) -> list[str]:
    return [name for name, check in found(statement, key).items() if check.is_bad]


def test_weights_of_hyper_parameters_that_nobody_accounted_for_are_not_said_to_be_covered(
    unaccounted: Statement,
) -> None:
    said = unaccounted["coverage"]
    assert said[0] == "Covered: the private training, for hyper-parameters taken as given."
    assert "the choice of hyper-parameters, made by simulations on the private" in said[1]
    assert "training and validation records" in said[1]
    assert WEIGHTS not in said


def test_a_validation_split_that_no_simulation_read_is_not_talked_of(proxied: Statement) -> None:
    assert proxied["coverage"][0] == WEIGHTS
    assert "validation" not in " ".join(proxied["coverage"])


def test_of_given_hyper_parameters_it_is_not_said_how_they_were_found(given: Statement) -> None:
    said = given["coverage"]
    assert said[0].startswith(
        "Covered: the private training, for the hyper-parameters that were given"
    )
    assert said[1] == "Not covered: how these hyper-parameters were found, before the study."
    assert "validation" not in " ".join(said)
    assert given["search"] == {
        "accounting": "no_search",
        "note": "hyper-parameters given with the study, nothing searched",
        "dataset": None,
        "epsilon": 0.0,
        "waiver": None,
    }


def test_a_search_that_was_not_accounted_for_is_not_passed_off_as_none(
    unaccounted: Statement, given: Statement, key: Ed25519PrivateKey
) -> None:
    said = copy.deepcopy(unaccounted)
    said["search"]["accounting"] = "no_search"
    assert bad(said, key) == ["coverage"]
    said["search"] = given["search"]
    assert bad(said, key) == ["coverage"]


@pytest.mark.parametrize("which", ["unaccounted", "proxied", "given"])
def test_what_is_issued_verifies(
    which: str, key: Ed25519PrivateKey, request: pytest.FixtureRequest
) -> None:
    checks = found(request.getfixturevalue(which), key)
    assert {name for name, check in checks.items() if check.verdict != "good"} == {"signer"}


def test_stated_shares_of_classes_are_in_it_and_are_not_covered(key: Ed25519PrivateKey) -> None:
    spec = make_facts().spec
    train = spec.train.model_copy(update={"class_shares": [98.0, 2.0]})
    said = build(make_facts(spec=spec.model_copy(update={"train": train})))

    assert said["training"]["class_shares"] == [98.0, 2.0]
    assert "Not covered: how the shares of the classes were found" in said["coverage"][-1]
    assert bad(said, key) == []
    hidden = {**said, "coverage": said["coverage"][:-1]}
    assert bad(hidden, key) == ["coverage"]
    unstated = {**said, "training": {"precision": said["training"]["precision"]}}
    assert bad(unstated, key) == ["coverage"]


def _coverage(said: Statement) -> None:
    said["coverage"] = [WEIGHTS, said["coverage"][-1]]


def _one_line_more(said: Statement) -> None:
    said["coverage"].append("Covered: the search.")


def _note(said: Statement) -> None:
    said["search"]["note"] = "hyper-parameters chosen on data registered as public"


def _search_is_free(said: Statement) -> None:
    said["search"]["epsilon"] = 0.0


def _no_such_mode(said: Statement) -> None:
    said["search"]["accounting"] = "free"


def _silence(said: Statement) -> None:
    del said["search"]


def _curve(said: Statement) -> None:
    said["privacy"]["curve"][2]["epsilon"] *= 0.99


def _long_curve(said: Statement) -> None:
    said["privacy"]["curve"] *= 1000


def _noise(said: Statement) -> None:
    said["mechanisms"][0]["noise_multiplier"] = 30.0


def _more_steps(said: Statement) -> None:
    said["mechanisms"][0]["steps"] -= 1


def _no_searches(said: Statement) -> None:
    said["ledger"]["unaccounted_searches"] = 0
    del said["ledger"]["search_note"]


def _no_note(said: Statement) -> None:
    del said["ledger"]["search_note"]


def _restored(said: Statement) -> None:
    said["ledger"]["restored_backups"] = 1


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (_no_searches, "beside epsilon"),
        (_no_note, "beside epsilon"),
        (_restored, "beside epsilon"),
        (_coverage, "coverage"),
        (_one_line_more, "coverage"),
        (_note, "coverage"),
        (_search_is_free, "coverage"),
        (_no_such_mode, "coverage"),
        (_silence, "coverage"),
        (_curve, "curve"),
        (_long_curve, "curve"),
        (_noise, "mechanisms"),
        (_more_steps, "mechanisms"),
    ],
)
def test_words_and_figures_that_flatter_are_found_even_when_they_are_signed(
    unaccounted: Statement, key: Ed25519PrivateKey, change: Callable[[Statement], None], name: str
) -> None:
    forged = copy.deepcopy(unaccounted)
    change(forged)
    assert bad(forged, key) == [name]


def test_it_says_what_else_was_charged_on_the_same_data(unaccounted: Statement) -> None:
    said = unaccounted["ledger"]
    assert (said["charged_epsilon"], said["unaccounted_searches"]) == (4.5, 2)
    assert said["search_note"] == "search on private data NOT accounted"
    assert said["head"]["seq"] == 9


def test_searches_that_are_not_accounted_are_another_s_where_this_one_is(
    unaccounted: Statement, proxied: Statement, given: Statement, key: Ed25519PrivateKey
) -> None:
    """Both have two of them beside all that was charged: of one of these statements they are others' alone."""
    note = "search on private data NOT accounted, of 2"
    assert found(unaccounted, key)["beside epsilon"].detail == f"{note} studies"
    for statement in (proxied, given):
        assert found(statement, key)["beside epsilon"].detail == f"{note} other studies"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["no_search", "public_proxy"])
def test_parameters_that_an_unaccounted_search_found_are_not_said_to_be_covered(
    key: Ed25519PrivateKey, mode: str
) -> None:
    spec = make_spec(accounting=mode)
    said = build(make_facts(spec=spec, learnt_from="trial 3 of s-9"))
    assert said["search"]["learnt_from"] == "trial 3 of s-9"
    assert said["search"]["note"].endswith(
        "are those of trial 3 of s-9: search on private data NOT accounted"
    )
    assert any("the choice of trial 3 of s-9" in line for line in said["coverage"])
    assert bad(said, key) == []
    for flattering in (
        {"learnt_from": None},
        {"note": build(make_facts(spec=spec))["search"]["note"]},
    ):
        forged = copy.deepcopy(said)
        forged["search"] |= flattering
        assert bad(forged, key) == ["coverage"]
    forged = copy.deepcopy(said)
    forged["coverage"] = build(make_facts(spec=spec))["coverage"]
    assert bad(forged, key) == ["coverage"]


def test_words_of_an_earlier_version_are_told_from_both_good_and_bad(
    unaccounted: Statement, proxied: Statement, key: Ed25519PrivateKey
) -> None:
    issued = copy.deepcopy(unaccounted)
    issued["coverage"] = EARLIER
    check = found(issued, key)["coverage"]
    assert check.verdict == "open"
    assert "hyper-parameters taken as given" in check.detail
    assert stated_coverage(issued) == unaccounted["coverage"]
    free = copy.deepcopy(proxied)
    free["coverage"] = EARLIER
    free["search"]["note"] = "hyper-parameters chosen without private data"
    assert found(free, key)["coverage"].verdict == "good"


def test_nobody_s_signature_is_taken_for_the_service_s(
    unaccounted: Statement, key: Ed25519PrivateKey
) -> None:
    document = sign(unaccounted, key)
    signer = next(check for check in verify_statement(document) if check.name == "signer")
    assert (signer.is_good, signer.is_bad, signer.verdict) == (None, False, "open")
    assert "give --key" in signer.detail
    known = verify_statement(document, key_id=document["signature"]["key_id"])
    assert {check.verdict for check in known} == {"good"}


def test_a_curve_that_takes_too_long_is_left_open(
    unaccounted: Statement, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    from service.statements import verify

    honest = verify.epsilon_of_events

    def later_in_vain(*arguments: Any, delta: float, **named: Any) -> float:
        if delta == unaccounted["privacy"]["delta"]:
            return honest(*arguments, delta=delta, **named)
        with limited_effort(0.0):
            return honest(*arguments, delta=delta, **named)

    monkeypatch.setattr(verify, "epsilon_of_events", later_in_vain)
    assert found(unaccounted, key)["curve"].verdict == "open"


def test_that_public_data_hold_nobody_of_these_is_an_assumption(
    unaccounted: Statement, proxied: Statement
) -> None:
    for statement in (unaccounted, proxied):
        assert set(OF_PEOPLE) < set(statement["assumptions"])
    charge = Charge(mechanism=MECHANISM, charged_steps=100, reserved_steps=None)
    public = build(make_facts(is_public=True, charge=charge))
    assert not set(OF_PEOPLE) & set(public["assumptions"])


def test_that_the_digest_of_the_data_tells_of_them_is_an_assumption(
    unaccounted: Statement, tmp_path: Path
) -> None:
    """Whoever knows all records but one finds it by the digest that every statement has."""

    def digest(last: int) -> str:
        rows = [f"{row},{row % 2}" for row in range(60)]
        path = tmp_path / f"{last}.csv"
        path.write_text("\n".join(["value,label", *rows, f"{last},1"]))
        return inspect(path).content_sha256

    stated = digest(1007)

    assert [last for last in range(1000, 1016) if digest(last) == stated] == [1007]
    (said,) = (each for each in unaccounted["assumptions"] if "dataset.sha256" in each)
    assert "treated as public" in said
    assert unaccounted["dataset"].keys() == {"name", "sha256"}


@pytest.mark.parametrize(
    ("baseline", "reason", "note"),
    [
        (True, None, f"{NOTE} {BASELINE_NOTE}"),
        (False, None, NOTE),
        (False, "its weights diverged", f"{NOTE} {NO_BASELINE_NOTE}"),
    ],
)
def test_a_baseline_is_told_of_where_one_was_trained(
    key: Ed25519PrivateKey, baseline: bool, reason: str | None, note: str
) -> None:
    facts = make_facts()
    told = Evaluation.model_validate(evaluation(baseline=baseline) | {"baseline_reason": reason})
    statement = build(replace(facts, result=facts.result.model_copy(update={"evaluation": told})))
    assert statement["coverage"][-1] == statement["evaluation"]["note"] == note
    assert bad(statement, key) == []
    if baseline:
        statement["evaluation"]["note"] = statement["coverage"][-1] = NOTE
        assert bad(statement, key) == ["evaluation"]

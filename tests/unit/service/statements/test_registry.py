"""Statements as the registry of differential privacy deployments takes them: by the registry's schema."""

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from service.ledger.notes import RESTORED_NOTE
from service.statements.registry import ASKED, to_yaml

TESTS = Path(__file__).parents[3]
STATEMENT = json.loads((TESTS / "unit" / "service" / "cli" / "statement.json").read_text())
SCHEMA = json.loads((TESTS / "fixtures" / "registry_schema.json").read_text())
VALIDATOR = jsonschema.Draft7Validator(
    SCHEMA, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER
)


def records(*statements: dict[str, Any]) -> list[dict[str, Any]]:
    """As a reader of the file finds them."""
    return list(yaml.safe_load_all(to_yaml(statements)))


def changed(**parts: Any) -> dict[str, Any]:
    return {**copy.deepcopy(STATEMENT), **parts}


def with_cap() -> dict[str, Any]:
    mechanism = {"sampling": "truncated_poisson", "sampling_rate": 0.1, "max_batch_size": 200}
    return changed(mechanisms=[mechanism])


def of_users() -> dict[str, Any]:
    return changed(unit="user", unit_details={"column": "patient", "records_per_unit": 16})


def of_a_charged_search() -> dict[str, Any]:
    parts = {"private run": 0.1, "trials of the search": 0.05, "scores of the trials": 1.0}
    return changed(mechanisms=[{"of": of, "sampling_rate": rate} for of, rate in parts.items()])


def test_a_noisy_count_of_a_charged_search_is_not_called_training() -> None:
    (record,) = records(of_a_charged_search())
    said = record["deployment"]["implementation"]["mechanisms"].splitlines()

    assert said[:2] == [
        "- DP-SGD, private run: sampling_rate 0.1.",
        "- DP-SGD, trials of the search: sampling_rate 0.05.",
    ]
    assert said[2].startswith("- Gaussian mechanism on counts of validation records, scores of")
    public = record["deployment"]["dp_variant"]["unprotected_quantities"]
    assert public.startswith("The number of training and validation records, and which they are.")
    (plain,) = records(STATEMENT)
    public = plain["deployment"]["dp_variant"]["unprotected_quantities"]
    assert public.startswith("The number of training records, and which they are.")


def test_a_record_of_users_counts_users_and_says_who_they_are() -> None:
    (record,) = records(of_users())
    deployment = record["deployment"]
    loss = deployment["privacy_loss"]

    assert loss["privacy_unit"] == "user"
    assert "one value of patient are a user's; at most 16" in loss["privacy_unit_details"]
    assert "training users" in deployment["basic"]["description"]
    assert "record" not in deployment["dp_variant"]["unprotected_quantities"].split(".")[0]


@pytest.mark.parametrize(
    "statement",
    [
        STATEMENT,
        with_cap(),
        of_users(),
        of_a_charged_search(),
        changed(search={**STATEMENT["search"], "waiver": None}),
    ],
)
def test_a_record_is_what_the_registry_accepts(statement: dict[str, Any]) -> None:
    (record,) = records(statement)
    assert [error.message for error in VALIDATOR.iter_errors(record)] == []


def test_the_schema_refuses_what_the_registry_would() -> None:
    (record,) = records(STATEMENT)
    basic = record["deployment"]["basic"]
    for where, name, value in (
        (record, "status", "Done"),
        (record["deployment"]["privacy_loss"]["privacy_parameters"], "rho", None),
        (basic, "data_product_type", "model"),
        (basic, "publication_date", "21.11.2026"),
    ):
        kept = where.get(name)
        where[name] = value
        assert not VALIDATOR.is_valid(record), name
        where.pop(name)
        if kept is not None:
            where[name] = kept
    assert VALIDATOR.is_valid(record)


def test_every_section_of_the_highest_tier_is_there() -> None:
    (record,) = records(STATEMENT)
    assert record["tier"] == 3
    sections = SCHEMA["properties"]["deployment"]["properties"]
    assert list(record["deployment"]) == list(sections)


def test_it_says_what_was_promised_and_what_the_search_did() -> None:
    (record,) = records(STATEMENT)
    deployment, privacy = record["deployment"], STATEMENT["privacy"]
    parameters = deployment["privacy_loss"]["privacy_parameters"]
    assert parameters == {"epsilon": privacy["epsilon"], "delta": privacy["delta"]}
    details = deployment["privacy_loss"]["privacy_parameters_details"]
    assert details == (
        "search on private data NOT accounted; epsilon 2.516721 at delta 0.0001; epsilon 2.934352 at delta 1e-05; "
        "epsilon 3.306689 at delta 1e-06"  # each rounded up
    )
    covered = deployment["accounting"]["post_processing"]
    assert covered == "Covered: the private training, for hyper-parameters taken as given."
    assert deployment["accounting"]["composition"].endswith(STATEMENT["search"]["note"])
    unprotected = deployment["dp_variant"]["unprotected_quantities"]
    assert "the choice of hyper-parameters, made by simulations" in unprotected
    tuning = deployment["implementation"]["preprocessing_and_hyperparameter_tuning"]
    assert STATEMENT["search"]["note"] in tuning
    assert STATEMENT["search"]["waiver"] in tuning
    assert record["url_slug"] == f"digits-eps3-{STATEMENT['study']['id']}"


def test_a_ledger_that_may_lack_entries_is_told_beside_epsilon() -> None:
    restored = {**STATEMENT["ledger"], "restored_backups": 1, "restored_note": RESTORED_NOTE}
    (record,) = records(changed(ledger=restored))
    details = record["deployment"]["privacy_loss"]["privacy_parameters_details"]
    assert details.startswith(f"{STATEMENT['search']['note']}; {RESTORED_NOTE}; epsilon ")


def test_what_only_people_know_is_asked_of_them() -> None:
    (record,) = records(STATEMENT)
    basic = record["deployment"]["basic"]
    assert record["status"] == "Draft"
    assert basic["data_curators"] == [ASKED]
    assert {basic["intended_use"], basic["data_product_region"]} == {ASKED}


def test_each_statement_is_a_document_and_public_data_is_none() -> None:
    other = changed(study={"id": "s-0", "name": "Ünder: score"})
    found = records(STATEMENT, changed(protects=False), other)
    assert [each["url_slug"] for each in found] == [
        f"digits-eps3-{STATEMENT['study']['id']}",
        "nder-score-s-0",
    ]
    assert to_yaml([]) == ""

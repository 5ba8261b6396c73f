"""Statements as records of the registry of differential privacy deployments, in YAML.

A record is one file of the registry (``opendp/deployments-registry-data``), in its own schema. What a
statement cannot know (who publishes, for whom, where) stands there as ``TODO``: the registry asks it of
people, and the record is a draft until they have said it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from service.statements.coverage import stated_coverage
from service.statements.readable import OF_SCORES
from tan_core.accounting import round_up

DIGITS = 6
"""Decimals of an epsilon; rounded up."""
ASKED = "TODO: to be stated by the data curator"


def to_yaml(statements: Sequence[Mapping[str, Any]]) -> str:
    """A stream of YAML documents, one record for every statement of protected data.

    The registry keeps each in a file of its own.
    """
    records = [record(statement) for statement in statements if statement["protects"]]
    return yaml.safe_dump_all(records, sort_keys=False, allow_unicode=True, width=1000)


def record(statement: Mapping[str, Any]) -> dict[str, Any]:
    """What the registry calls tier 3, of one released model."""
    study = statement["study"]
    return {
        "url_slug": _slug(f"{study['name']}-{study['id']}"),
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": _basic(statement),
            "dp_variant": {
                "variant_name": "Approximate DP",
                "data_domain": f"All datasets of records like those of {statement['dataset']['name']} "
                f"(sha256 {statement['dataset']['sha256']}).",
                "unprotected_quantities": " ".join(
                    [
                        f"The number of {_splits(statement)} {statement['unit']}s, and which they are.",
                        *stated_coverage(statement)[1:],
                    ]
                ),
            },
            "privacy_loss": _privacy_loss(statement),
            "deployment_model": {
                "model_name": "Central",
                "actors": ASKED,
                "release_type": "One release",
                "data_source_type": "Static",
                "access_type": "Non-interactive",
            },
            "accounting": _accounting(statement),
            "implementation": _implementation(statement),
            "administrative": {
                "sources": f"The signed privacy statement of study {study['id']}.",
                "registry_authors": [
                    f"tan-search {statement['software'].get('tan-search', '')}".strip()
                ],
            },
        },
    }


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _basic(statement: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": statement["study"]["name"],
        "data_curators": [ASKED],
        "intended_use": ASKED,
        "data_product_type": "Machine learning model",
        "data_product_region": ASKED,
        "description": f"A model trained by DP-SGD on dataset {statement['dataset']['name']} "
        f"({statement['num_examples']['value']} training {statement['unit']}s).",
        "publication_date": statement["issued_at"][:10],
    }


def _privacy_loss(statement: Mapping[str, Any]) -> dict[str, Any]:
    privacy = statement["privacy"]
    return {
        "privacy_unit": statement["unit"],
        "privacy_unit_details": f"Neighbouring relation {statement['neighboring_relation']}: two "
        f"datasets are adjacent where they differ so in one {statement['unit']}.{_of_users(statement)}",
        "privacy_parameters": {"epsilon": privacy["epsilon"], "delta": privacy["delta"]},
        "privacy_parameters_details": "; ".join(
            [
                *_notes(statement),
                *(
                    f"epsilon {round_up(point['epsilon'], DIGITS)} at delta {point['delta']:.15g}"
                    for point in privacy["curve"]
                ),
            ]
        ),
    }


def _splits(statement: Mapping[str, Any]) -> str:
    """Those whose sizes the guarantee takes as public: scores of a charged search read the validation split too."""
    mechanisms = statement.get("mechanisms", ())
    is_scored = any(mechanism.get("of") == OF_SCORES for mechanism in mechanisms)
    return "training and validation" if is_scored else "training"


def _notes(statement: Mapping[str, Any]) -> list[str]:
    """What has to be said beside epsilon: of the search, and of a ledger that may lack entries."""
    restored = (statement.get("ledger") or {}).get("restored_note")
    return [statement["search"]["note"], *([restored] if restored else [])]


def _of_users(statement: Mapping[str, Any]) -> str:
    details = statement.get("unit_details")
    if details is None:
        return ""
    return (
        f" Records with one value of {details['column']} are a user's; at most "
        f"{details['records_per_unit']} of them are trained on."
    )


def _accounting(statement: Mapping[str, Any]) -> dict[str, Any]:
    privacy = statement["privacy"]
    return {
        "post_processing": stated_coverage(statement)[0],
        "composition": f"{privacy['accountant']} by {privacy['library']} "
        f"{privacy['library_version']}; computed again: {privacy['computed_again']['epsilon']}; "
        f"{statement['search']['note']}",
    }


def _implementation(statement: Mapping[str, Any]) -> dict[str, Any]:
    search = statement["search"]
    waiver = f" (waiver: {search['waiver']})" if search.get("waiver") else ""
    mechanisms = statement.get("mechanisms", statement["events"])
    return {
        "preprocessing_and_hyperparameter_tuning": f"{search['accounting']}: {search['note']}{waiver}",
        "mechanisms": "\n".join(
            [
                *(_in_words(each, statement["unit"]) for each in mechanisms),
                *(f"- {each}" for each in statement["assumptions"]),
            ]
        ),
        "justification": ASKED,
    }


def _in_words(mechanism: Mapping[str, Any], unit: str) -> str:
    of = mechanism.get("of")
    told = ", ".join(f"{name} {value}" for name, value in mechanism.items() if name != "of")
    kind = f"Gaussian mechanism on counts of validation {unit}s" if of == OF_SCORES else "DP-SGD"
    return f"- {kind}, {of}: {told}." if of else f"- {kind}: {told}."

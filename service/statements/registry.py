"""Statements as entries of the registry of differential privacy deployments, in YAML.

What a statement cannot know (who publishes, for whom, where) stands there as ``TODO``: the registry asks
it of people.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

ASKED = "TODO: to be stated by the data curator"


def to_yaml(statements: Sequence[Mapping[str, Any]]) -> str:
    """One YAML document with an entry for every statement of protected data."""
    entries = [entry(statement) for statement in statements if statement["protects"]]
    return yaml.safe_dump({"deployments": entries}, sort_keys=False, allow_unicode=True, width=1000)


def entry(statement: Mapping[str, Any]) -> dict[str, Any]:
    """The registry's sections (its tier 3) for one released model."""
    privacy, study, search = statement["privacy"], statement["study"], statement["search"]
    return {
        "tier": 3,
        "basic": {
            "name": study["name"],
            "data_curators": [ASKED],
            "description": f"A model trained by DP-SGD on dataset {statement['dataset']['name']} "
            f"({statement['num_examples']['value']} training records).",
            "intended_use": ASKED,
            "data_product_type": "machine learning model",
            "region": ASKED,
            "publication_date": statement["issued_at"][:10],
        },
        "dp_variant": {
            "variant_name": "approximate differential privacy",
            "data_domain": f"sha256 {statement['dataset']['sha256']}",
            "unprotected_quantities": [
                "the number of training records",
                *statement["coverage"][1:],
            ],
        },
        "privacy_loss": {
            "privacy_unit": statement["unit"],
            "privacy_unit_details": f"neighbouring relation {statement['neighboring_relation']}",
            "privacy_parameters": {
                "epsilon": privacy["epsilon"],
                "delta": privacy["delta"],
                "rho": None,
            },
        },
        "deployment_model": {
            "model_name": "central",
            "actors": ASKED,
            "release_type": "one-time",
            "data_source_type": "static",
            "access_type": ASKED,
        },
        "accounting": {
            "post_processing": statement["coverage"][0],
            "composition": f"{privacy['accountant']} by {privacy['library']} "
            f"{privacy['library_version']}; computed again: {privacy['computed_again']['epsilon']}",
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": f"{search['accounting']}: {search['note']}"
            + (f" (waiver: {search['waiver']})" if search.get("waiver") else ""),
            "mechanisms": statement.get("mechanisms", statement["events"]),
            "justification": ASKED,
        },
        "administrative": {
            "sources": [f"signed privacy statement of study {study['id']}"],
            "registry_authors": [
                f"tan-search {statement['software'].get('tan-search', '')}".strip()
            ],
        },
    }

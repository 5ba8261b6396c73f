"""Links of the OpenAPI document: which answers hold what other operations ask for."""

from collections.abc import Mapping
from typing import Any

Parameters = Mapping[str, str]

SUBJECTS: Mapping[str, Parameters] = {
    "study_id": {
        "submit_study": "$response.body#/id",
        "list_studies": "$response.body#/items/0/id",
    },
    "name": {
        "register_dataset": "$response.body#/name",
        "list_datasets": "$response.body#/items/0/name",
    },
    "token_id": {"create_token": "$response.body#/id"},
}
"""What a path is about: by operation, where its answer names one."""
FURTHER: Mapping[str, Mapping[str, Parameters]] = {
    "get_study": {
        "edit_study": {
            "study_id": "$request.path.study_id",
            "if-match": "$response.header.ETag",
        }
    },
    "post_segment": {
        "post_segment_end": {
            "run_id": "$request.path.run_id",
            "segment": "$response.body#/segment",
        }
    },
}
"""What takes more than one value, or no subject: by operation, what may follow it."""


def add_links(document: dict[str, Any]) -> None:
    """Say beside each good answer which operations it leads to, and with what."""
    operations: dict[str, dict[str, Any]] = {
        operation["operationId"]: operation
        for path in document["paths"].values()
        for operation in path.values()
    }
    for subject, sources in SUBJECTS.items():
        for source, expression in sources.items():
            for target, operation in operations.items():
                if subject in _parameters(operation, "path"):
                    _add(operations[source], target, {subject: expression})
    for source, targets in FURTHER.items():
        for target, parameters in targets.items():
            _add(operations[source], target, parameters)
    for name, operation in operations.items():
        if "cursor" in _parameters(operation, "query"):
            same = {each: f"$request.path.{each}" for each in _parameters(operation, "path")}
            _add(operation, name, {**same, "cursor": "$response.body#/next_cursor"})


def _parameters(operation: Mapping[str, Any], where: str) -> list[str]:
    return [each["name"] for each in operation.get("parameters", []) if each["in"] == where]


def _add(source: dict[str, Any], target: str, parameters: Parameters) -> None:
    status = next(status for status in source["responses"] if status.startswith("2"))
    links = source["responses"][status].setdefault("links", {})
    links[target] = {"operationId": target, "parameters": dict(parameters)}

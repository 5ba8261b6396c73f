"""The OpenAPI document leaves nothing out: a route that is added says all this, or a test fails here."""

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from service.openapi import TAGS
from tests.contract.conftest import document

PROBLEM = "application/problem+json"
BODIES = {"post", "put", "patch"}


DOCUMENT = document()
OPERATIONS = {
    operation["operationId"]: (method, path, operation)
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
}


def contents(operation: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Where a body stands, its media type and what is said of it."""
    for where, body in {"body": operation.get("requestBody", {}), **operation["responses"]}.items():
        for media_type, content in body.get("content", {}).items():
            yield where, media_type, content


def refs(node: Any) -> Iterator[str]:
    """The models that a part of the document names."""
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"].rpartition("/")[2]
        for each in node.values():
            yield from refs(each)
    elif isinstance(node, list):
        for each in node:
            yield from refs(each)


def test_every_operation_has_a_name_of_its_own() -> None:
    assert len(OPERATIONS) == sum(len(each) for each in DOCUMENT["paths"].values())
    assert all(name.isidentifier() for name in OPERATIONS)


@pytest.mark.parametrize("name", OPERATIONS)
class TestOperation:
    def test_it_says_in_a_sentence_what_it_does(self, name: str) -> None:
        operation = OPERATIONS[name][2]
        assert " " in operation["summary"]
        assert not operation["summary"].endswith(".")
        assert operation["description"]
        (tag,) = operation["tags"]
        assert tag in TAGS

    def test_it_names_its_problems(self, name: str) -> None:
        method, path, operation = OPERATIONS[name]
        expected = {"400", "500", "503"}
        expected |= {"404", "422"} if "{" in path and not path.startswith("/worker") else set()
        expected |= {"422"} if operation.get("parameters") else set()
        if "requestBody" in operation and not path.startswith("/worker"):
            expected |= {"413", "422"}
        assert expected <= set(operation["responses"]), method
        for status, response in operation["responses"].items():
            if status[0] in "45":
                assert list(response["content"]) == [PROBLEM], status
                schema = response["content"][PROBLEM]["schema"]
                assert schema == {"$ref": "#/components/schemas/Problem"}

    def test_it_says_which_token_it_needs(self, name: str) -> None:
        _, path, operation = OPERATIONS[name]
        (scheme,) = operation["security"] or [{}]
        if path.startswith("/worker"):
            assert scheme == {"attempt": []}
        elif scheme:
            assert scheme["token"][0] in {"read", "submit", "approve", "audit", "admin"}
        else:
            assert operation["tags"][0] in {"health", "keys"}
        assert set(scheme) <= set(DOCUMENT["components"]["securitySchemes"])

    def test_its_body_has_no_room_for_unknown_keys(self, name: str) -> None:
        """Of what the models here define; a mapping of free keys has no properties of its own."""
        schemas = DOCUMENT["components"]["schemas"]
        body = OPERATIONS[name][2].get("requestBody", {})
        left, seen = {each for c in body.get("content", {}).values() for each in refs(c)}, set()
        while left:
            model = left.pop()
            seen.add(model)
            left |= set(refs(schemas[model])) - seen
            if "properties" in schemas[model]:
                assert schemas[model].get("additionalProperties") is False, model

    def test_every_body_has_an_example_that_its_schema_accepts(self, name: str) -> None:
        for where, media_type, content in contents(OPERATIONS[name][2]):
            if media_type == "application/octet-stream":
                continue
            assert "example" in content or "examples" in content, (where, media_type)
            schema = {**content.get("schema", {}), "components": DOCUMENT["components"]}
            shown = content.get("example", None)
            try:
                jsonschema.Draft202012Validator(schema).validate(shown)
            except jsonschema.ValidationError as error:
                pytest.fail(f"{where} {media_type}: {error.json_path} {error.message}: {shown}")

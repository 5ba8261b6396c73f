"""The typed client and the OpenAPI document agree: every operation, its path, what goes in and comes out."""

import inspect
import io
import json
import re
from collections.abc import Iterator
from typing import Any, get_type_hints

import httpx
import jsonschema
import pytest
from pydantic import BaseModel

from service.client import Client, ProblemError, UnreachableError
from service.openapi_examples import example_of
from tests.contract.test_document import DOCUMENT, OPERATIONS, contents

PUBLIC = {name: each for name, each in OPERATIONS.items() if each[2]["tags"] != ["worker"]}
SCHEMAS = DOCUMENT["components"]["schemas"]
OF_A_CACHE = {"if-none-match"}
"""Headers that a cache sends; the client has none."""
OF_THE_CLIENT = {"silence"}
"""How long it waits is asked of nobody."""


def success(operation: dict[str, Any]) -> tuple[int, str, Any]:
    """Status, media type and example of the good answer."""
    for where, media_type, content in contents(operation):
        if where.startswith("2"):
            return int(where), media_type, content.get("example", "weights")
    return 204, "", None


def arguments(method: Any, operation: dict[str, Any]) -> dict[str, Any]:
    """Something for every parameter of the client's method, from the document's examples."""
    hints = get_type_hints(method)
    parameters = {each["name"]: each for each in operation.get("parameters", [])}
    headers = {name.lower().replace("-", "_"): each for name, each in parameters.items()}
    queries = {name: each for name, each in parameters.items() if each["in"] == "query"}
    found: dict[str, Any] = {}
    for name in list(inspect.signature(method).parameters)[1:]:
        if name in parameters or name in headers:
            schema = (parameters.get(name) or headers[name])["schema"]
            found[name] = _value(schema, name)
        elif name == "query":
            found[name] = _model(hints[name]).model_validate(
                {each: _value(queries[each]["schema"], each) for each in queries}
            )
        elif name in OF_THE_CLIENT:
            found[name] = 30.0
        elif name == "target":
            found[name] = io.BytesIO()
        else:
            example = next(c["example"] for w, _, c in contents(operation) if w == "body")
            found[name] = _model(hints[name]).model_validate(example)
    return found


def _value(schema: dict[str, Any], name: str) -> Any:
    usual = {"cursor": "abc", "last-event-id": 3, "created_after": "2026-01-01T00:00:00Z"}
    usual |= {"created_before": "2027-01-01T00:00:00Z", "last_event_id": 3, "attempt": 1}
    usual |= {"state": None, "tag": ["paper"], "study_id": "s/1"}
    if usual.get(name) is not None:
        return usual[name]
    return example_of(schema, SCHEMAS, name)


def _model(hint: Any) -> type[BaseModel]:
    options = [*getattr(hint, "__args__", ()), hint]
    return next(
        each
        for each in options
        if isinstance(each, type) and issubclass(each, BaseModel) and each is not BaseModel
    )


@pytest.mark.parametrize("name", PUBLIC)
def test_every_operation_has_a_method_that_asks_and_answers_as_the_document_says(name: str) -> None:
    verb, path, operation = PUBLIC[name]
    method = getattr(Client, name)
    status, media_type, example = success(operation)
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        content = json.dumps(example) if media_type.endswith("json") else str(example or "")
        return httpx.Response(status, content=content, headers={"content-type": media_type})

    given = arguments(method, operation)
    with Client("http://127.0.0.1:1", token="t", transport=httpx.MockTransport(answer)) as client:
        result = method(client, **given)
        if isinstance(result, Iterator):
            result = list(result)

    (request,) = seen
    assert request.method == verb.upper()
    template = re.sub(r"\{\w+\}", "[^/]+", path)
    assert re.fullmatch(template, request.url.raw_path.decode().partition("?")[0])
    asked = {each["name"] for each in operation.get("parameters", []) if each["in"] == "query"}
    assert set(request.url.params) <= asked
    in_signature = set(inspect.signature(method).parameters)
    if "query" not in in_signature:
        assert asked - {"after"} <= in_signature
    for header in (each for each in operation.get("parameters", []) if each["in"] == "header"):
        if header["name"].lower() not in OF_A_CACHE:
            assert header["name"].lower() in request.headers
    assert request.headers["authorization"] == "Bearer t"
    if request.content:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        body = {**schema, "components": DOCUMENT["components"]}
        jsonschema.Draft202012Validator(body).validate(json.loads(request.content))
    else:
        assert "requestBody" not in operation
    if isinstance(result, BaseModel):
        ref = operation["responses"][str(status)]["content"][media_type]["schema"]["$ref"]
        assert ref.rpartition("/")[2] == type(result).__name__


def test_a_problem_is_an_error_that_carries_it() -> None:
    problem = {"title": "Not Found", "status": 404, "detail": "there is no study 'x'"}
    transport = httpx.MockTransport(lambda _: httpx.Response(404, json=problem))
    with (
        Client("http://tan.example", transport=transport) as client,
        pytest.raises(ProblemError, match="there is no study 'x'") as caught,
    ):
        client.get_study("x")
    assert caught.value.problem.status == 404


def test_what_is_no_problem_document_is_one_still() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(502, text="<html>"))
    with (
        Client("http://x", transport=transport) as client,
        pytest.raises(ProblemError, match="502"),
    ):
        client.get_study("x")


def test_nobody_there_is_an_error_of_its_own() -> None:
    with Client("http://127.0.0.1:9") as client, pytest.raises(UnreachableError):
        client.healthz()


def test_every_page_is_asked_for_with_the_same_filters() -> None:
    from service.studies.schemas import StudyQuery

    example = example_of(SCHEMAS["StudyPage"], SCHEMAS)
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(dict(request.url.params))
        return httpx.Response(200, json=example | {"next_cursor": None if len(asked) > 1 else "c"})

    with Client("http://x", transport=httpx.MockTransport(answer)) as client:
        assert len(list(client.every_study(StudyQuery(tag=["paper"], limit=1)))) == 2
    assert asked == [{"tag": "paper", "limit": "1"}, {"tag": "paper", "limit": "1", "cursor": "c"}]

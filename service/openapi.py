"""The OpenAPI document: bodies that are read by hand, and problems, described like the rest."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from service.errors import Problem
from service.openapi_examples import example_of
from service.openapi_links import add_links
from service.problems import described

_REF = "#/components/schemas/{model}"
TAGS = {
    "studies": "What was asked for, where it stands, what came of it.",
    "plans": "What a study would do and cost, before anything is stored.",
    "datasets": "Registered data, its budgets and its ledger.",
    "keys": "The keys that statements are signed with.",
    "access": "Tokens, and the audit of who did what.",
    "webhooks": "What was sent to whom when a study came to its end.",
    "health": "Is the service alive, can it serve, how does it fare.",
    "worker": "What runs inside Ray asks and reports; each attempt has a token of its own.",
}
SECURITY = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of `tan-cli token create`, or TAN_API_TOKEN. It is asked for where the "
        "service listens beyond this machine or any token exists. Beside an operation stands the scope "
        "that it needs: read, submit, approve, audit or admin.",
    },
    "attempt": {
        "type": "http",
        "scheme": "bearer",
        "description": "The token of one attempt of one run, which its driver was started with.",
    },
}
TEXTS = {
    "text/event-stream": 'id: 3\nevent: state\ndata: {"seq":3,"kind":"state","state":"simulating"}\n\n'
}
"""Examples of texts."""
_described: dict[str, type[BaseModel]] = {"Problem": Problem}


def request_body(
    *models: type[BaseModel], required: bool = True, yaml: bool = True
) -> dict[str, Any]:
    """``openapi_extra`` of a route that reads its own body as one of the models."""
    _described.update({model.__name__: model for model in models})
    refs = [{"$ref": _REF.format(model=model.__name__)} for model in models]
    schema = refs[0] if len(refs) == 1 else {"anyOf": refs}
    media = ["application/json", *(["application/yaml"] if yaml else [])]
    content = {media_type: {"schema": schema} for media_type in media}
    return {"requestBody": {"required": required, "content": content}}


def operation_id(route: APIRoute) -> str:
    """The name of the route's function: what generated clients call their methods."""
    return route.name


def install(app: FastAPI, scopes: Callable[[], Mapping[str, str | None]]) -> None:
    """Let ``app.openapi()`` tell everything about every route.

    Args:
        app: the application.
        scopes: by operation, the scope that its callers' tokens need; None: it is open to all.
    """

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title,
                version=app.version,
                summary=app.summary,
                description=app.description,
                routes=app.routes,
                tags=[{"name": name, "description": text} for name, text in TAGS.items()],
            )
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            _, extra = models_json_schema(
                [(model, "validation") for model in _described.values()], ref_template=_REF
            )
            for name, schema in extra["$defs"].items():
                schemas.setdefault(name, schema)
            _say_problem(document)
            document["components"]["securitySchemes"] = SECURITY
            for operation in _operations(document):
                _say_summary(operation)
                _say_security(operation, scopes())
                _show(operation, schemas)
            add_links(document)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi


def _operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in document["paths"].values():
        yield from path.values()


def _say_summary(operation: dict[str, Any]) -> None:
    """The first sentence of the description, in place of the function's name in capitals."""
    description = " ".join(operation.get("description", "").partition("\n\n")[0].split())
    first, dot, _ = description.partition(". ")
    operation["summary"] = first.rstrip(".") if dot or first else operation["operationId"]


def _say_security(operation: dict[str, Any], scopes: Mapping[str, str | None]) -> None:
    if operation["tags"] == ["worker"]:
        operation["security"] = [{"attempt": []}]
        return
    scope = scopes.get(operation["operationId"])
    operation["security"] = [] if scope is None else [{"token": [str(scope)]}]


def _show(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """An example beside every body that has none."""
    bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
    for body in bodies:
        for media_type, content in body.get("content", {}).items():
            if media_type.endswith(("json", "yaml")) and not {"example", "examples"} & set(content):
                content["example"] = example_of(_first(content.get("schema", {})), schemas)
            elif {"schema", "itemSchema"} & set(content) and media_type.startswith("text/"):
                content.setdefault("example", TEXTS.get(media_type, "text"))


def _first(schema: dict[str, Any]) -> dict[str, Any]:
    return schema["anyOf"][0] if "anyOf" in schema else schema


def _say_problem(document: dict[str, Any]) -> None:
    """Replace the framework's own description of a 422, which is never the one that is sent."""
    problem = described(422)[422]
    for operations in document["paths"].values():
        for operation in operations.values():
            if "application/json" in operation["responses"].get("422", {}).get("content", {}):
                operation["responses"]["422"] = problem
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)

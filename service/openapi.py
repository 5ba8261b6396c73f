"""The OpenAPI document: bodies that are read by hand, and problems, described like the rest."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from service.errors import Problem
from service.problems import described

_REF = "#/components/schemas/{model}"
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


def install(app: FastAPI) -> None:
    """Let ``app.openapi()`` know the models that no signature names."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title,
                version=app.version,
                summary=app.summary,
                description=app.description,
                routes=app.routes,
                tags=app.openapi_tags,
            )
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            _, extra = models_json_schema(
                [(model, "validation") for model in _described.values()], ref_template=_REF
            )
            for name, schema in extra["$defs"].items():
                schemas.setdefault(name, schema)
            _say_problem(document)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi


def _say_problem(document: dict[str, Any]) -> None:
    """Replace the framework's own description of a 422, which is never the one that is sent."""
    problem = described(422)[422]
    for operations in document["paths"].values():
        for operation in operations.values():
            if "application/json" in operation["responses"].get("422", {}).get("content", {}):
                operation["responses"]["422"] = problem
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)

"""The OpenAPI document: bodies that are read by hand, and problems, described like the rest."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from service.errors import Problem

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
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi

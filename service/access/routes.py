"""The routes of the application, and what each asks of its callers."""

from collections.abc import Iterator

from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.types import Scope

from service.access.guard import Guard


def routes(app: FastAPI) -> Iterator[APIRoute]:
    """Every route of the application."""
    for context in iter_route_contexts(app.routes):
        if isinstance(context.original_route, APIRoute):
            yield context.original_route


def route_of(scope: Scope) -> tuple[APIRoute | None, dict[str, object]]:
    """The request's route and path parameters, also of one that was refused before it was routed."""
    if isinstance(scope.get("route"), APIRoute):
        return scope["route"], scope.get("path_params", {})
    path = scope["path"].removeprefix(str(scope.get("root_path", "")).rstrip("/"))
    for route in routes(scope["app"]):
        found = route.path_regex.match(path) if scope["method"] in route.methods else None
        if found:
            return route, dict(found.groupdict())
    return None, {}


def declared(route: APIRoute) -> Guard | None:
    """What the route asks of its callers; None where it says nothing."""
    asked = (each.dependency for each in route.dependencies)
    return next((each for each in asked if isinstance(each, Guard)), None)


def scopes(app: FastAPI) -> dict[str, str | None]:
    """By the name of a route, the scope that its callers need; None: it is open to all."""
    guards = {route.name: declared(route) for route in routes(app)}
    return {name: guard.scope if guard else None for name, guard in guards.items()}

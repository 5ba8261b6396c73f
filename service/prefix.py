"""The prefix that a proxy puts before every path, and takes off again before the service sees it."""

from starlette.requests import HTTPConnection


def base_of(request: HTTPConnection) -> str:
    """To be put before every address of ours; empty without a prefix."""
    return str(request.scope.get("root_path", "")).rstrip("/")

"""What the shell offers after TAB: studies, datasets, states and keys. Quick, or nothing at all."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

TIMEOUT_SECONDS = 1.0
OFFERED = 100
"""So many of the newest studies are offered."""
STATES = (
    *("queued", "simulating", "awaiting_approval", "training"),
    *("completed", "failed", "cancelled"),
)


def study_references(incomplete: str) -> list[tuple[str, str]]:
    """Names and ids of studies that begin so, each with what it is."""
    studies = _items("/studies", {"limit": OFFERED, "archived": "include"})
    offered: dict[str, str] = {}
    for study in studies:
        said = f"{study['state']}, {study['created_at'][:10]}"
        offered.setdefault(study["name"], f"{study['id']}, {said}")  # the newest of the name
        offered[study["id"]] = f"{study['name']}, {said}"
    # Ids are typed by their beginning, and would crowd the names out.
    return [
        (word, about)
        for word, about in offered.items()
        if word.startswith(incomplete) and (incomplete or not word.startswith("s-"))
    ]


def dataset_names(incomplete: str) -> list[str]:
    """Names of datasets that begin so."""
    names = (each["name"] for each in _items("/datasets", {}))
    return [name for name in names if name.startswith(incomplete)]


def study_states(incomplete: str) -> list[str]:
    """States that begin so."""
    return [state for state in STATES if state.startswith(incomplete)]


def study_keys(context: typer.Context, incomplete: str) -> list[str]:
    """Keys that begin so, for ``--set``, of the STUDY.yaml that was typed before it."""
    import yaml

    try:
        # An option that lacks its value keeps click from giving the argument its name.
        text = Path(context.args[0]).read_text(encoding="utf-8")
        # Our own loader stands in a package that takes longer to load than a person waits for a TAB.
        study = yaml.safe_load(text)
    except (IndexError, OSError, ValueError, yaml.YAMLError):
        return []
    return [f"{key}=" for key in _keys(study) if key.startswith(incomplete)]


def _keys(value: Any) -> Iterator[str]:
    """The paths of a mapping to what is none."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        below = [f"{name}.{key}" for key in _keys(inner)]
        yield from below or [str(name)]


def _items(path: str, query: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The items of a list of the API; none if it is away, slow or asks for a token.

    Without the typed client: its models take longer to load than a person waits for a TAB.
    """
    import httpx

    from service.cli.settings import ClientSettings
    from service.hosts import leads_here

    settings = ClientSettings.from_environment()
    headers = {"Authorization": f"Bearer {settings.token}"} if settings.token else {}
    try:
        answer = httpx.get(
            f"{settings.api_url}{path}",
            params=query,
            headers=headers,
            timeout=TIMEOUT_SECONDS,
            trust_env=not leads_here(settings.api_url),
        )
        yield from answer.raise_for_status().json()["items"]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
        return

"""``/ui/studies/{id}/statement``: a privacy statement for people who sign or read papers, and its verdict."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_CEILING, Decimal
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from service.access.guard import needs_study
from service.auth.scopes import Scope
from service.context import ContextDep
from service.dashboard.pages import StudyId
from service.dashboard.render import page
from service.dashboard.statement_check import checks_of, verdict
from service.publication.keys import public_keys
from service.publication.schemas import PublicKey
from service.studies import service as studies

FALSE_ALARMS = (0.01, 0.001, 0.0001)
"""Shares of those who are not in the data that a test may take for ones who are; the first that leaves a limit is told."""
CASES = {
    "add_or_remove_one": (
        "the data of one particular {unit} were trained on",
        "the model was trained without them",
    ),
    "zero_out": (
        "the data of one particular {unit} were trained on",
        "a blank stood in their place",
    ),
    "replace_one": (
        "the data of one particular {unit} were trained on",
        "the data of another {unit} stood in their place",
    ),
}
"""What the guarantee keeps apart from what, by the neighbouring relation."""

router = APIRouter(prefix="/ui/studies/{study_id}/statement", include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an epsilon at a delta lets somebody find out at most, in percent. Rounded up: never less than it is."""

    case: str
    other: str
    false_alarms: str | None
    """Of a test, so many percent; None: at every share that is told the limit is 100 percent."""
    recognised: str | None
    """Of those who are in the data, by such a test."""
    right: str
    """How often a guess between two cases that are equally likely is right."""


def meaning(epsilon: float, delta: float, *, relation: str, unit: str) -> Meaning:
    r"""The guarantee as limits on a test between two cases.

    For every set of outcomes, its probability in one case is at most ``exp(epsilon)`` times that in the other
    plus ``delta``. So a test that is wrong about a share ``a`` of one case is right about at most
    ``exp(epsilon) a + delta`` of the other, and of two equally likely cases the right one is guessed with
    probability at most ``(exp(epsilon) + delta) / (exp(epsilon) + 1)``.

    Raises:
        KeyError: the relation is not known.

    Example:
        >>> found = meaning(3.0, 1e-5, relation="add_or_remove_one", unit="record")
        >>> found.false_alarms, found.recognised, found.right
        ('1', '20.1', '95.3')
    """
    case, other = (each.format(unit=unit) for each in CASES[relation])
    factor = math.exp(min(epsilon, 700.0))
    limits = ((share, factor * share + delta) for share in FALSE_ALARMS)
    share, limit = next((each for each in limits if each[1] < 1), (None, None))
    return Meaning(
        case=case,
        other=other,
        false_alarms=None if share is None else f"{100 * share:g}",
        recognised=None if limit is None else _percent(limit),
        right=_percent((1 + delta / factor) / (1 + 1 / factor)),
    )


def _percent(share: float) -> str:
    """Rounded up to a tenth, or to the first decimal that tells it from all; never above what a share can be."""
    exact = 100 * Decimal(repr(min(share, 1.0)))
    rounded = (exact.quantize(Decimal(1).scaleb(-n), rounding=ROUND_CEILING) for n in range(1, 5))
    return f"{next((each for each in rounded if each < 100), Decimal('100.0')):f}"


@dataclass(frozen=True, slots=True)
class MechanismRow:
    """An event in decimals."""

    of: str | None
    """What it is of, where there are several."""
    sampling: str
    sampling_rate: float
    noise_multiplier: float
    clip_norm: float
    steps: int
    max_batch_size: int | None


def mechanisms(
    events: list[Mapping[str, Any]], of: Sequence[str | None] = ()
) -> list[MechanismRow]:
    """The events of a statement, for a reader.

    Args:
        events: as they are priced.
        of: what each is of, where there are several.

    Raises:
        KeyError, TypeError, ValueError: they are not of the form that statements have.
    """
    return [
        MechanismRow(
            of=of[place] if place < len(of) else None,
            sampling=event["sampling"],
            sampling_rate=float.fromhex(event["sampling_rate"]),
            noise_multiplier=float.fromhex(event["noise_multiplier"]),
            clip_norm=float.fromhex(event["clip_norm"]),
            steps=event["steps"],
            max_batch_size=event.get("max_batch_size"),
        )
        for place, event in enumerate(events)
    ]


@dataclass(frozen=True, slots=True)
class Told:
    """What of a statement has to be worked out before it is shown."""

    issued_at: datetime
    mechanisms: list[MechanismRow]
    meaning: Meaning | None
    """None: the data are public."""
    covered: list[str]
    not_covered: list[str]
    also: list[str]
    """Lines about coverage that say neither."""


COVERED, NOT_COVERED = "Covered: ", "Not covered: "


def told(said: Mapping[str, Any]) -> Told | None:
    """What a page adds to the statement; None where it has not the form that statements have."""
    try:
        coverage = [str(line) for line in said.get("coverage", [])]
        expected = ("study", "dataset", "search", "weights", "steps", "software", "signature")
        if any(not isinstance(said[name], Mapping) for name in expected):
            return None
        privacy = said["privacy"]
        shown = (
            (privacy, "accountant"), (said["study"], "id"), (said["study"], "name"),
            (said["dataset"], "name"), (said["dataset"], "sha256"), (said["num_examples"], "value"),
            (said["search"], "accounting"), (said["search"], "note"), (said["weights"], "sha256"),
            (said["signature"], "algorithm"), (said["signature"], "key_id"),
        )  # fmt: skip
        if any(name not in part for part, name in shown):
            return None
        return Told(
            issued_at=datetime.fromisoformat(said["issued_at"]),
            mechanisms=mechanisms(
                said["events"], [one.get("of") for one in said.get("mechanisms", [])]
            ),
            meaning=meaning(
                privacy["epsilon"],
                privacy["delta"],
                relation=said["neighboring_relation"],
                unit=said["unit"],
            )
            if said["protects"]
            else None,
            covered=_after(COVERED, coverage),
            not_covered=_after(NOT_COVERED, coverage),
            also=[line for line in coverage if not line.startswith((COVERED, NOT_COVERED))],
        )
    except (KeyError, TypeError, ValueError):
        return None


def _after(beginning: str, lines: list[str]) -> list[str]:
    found = [line.removeprefix(beginning) for line in lines if line.startswith(beginning)]
    return [f"{line[:1].upper()}{line[1:]}" for line in found]


@router.get("", dependencies=[needs_study(Scope.READ)])
async def show_statement(request: Request, context: ContextDep, study_id: StudyId) -> HTMLResponse:
    """The statement as a page; what cannot be told of it is in its JSON."""
    document = await studies.statement(context, study_id)
    found = told(document)
    keys = await to_thread.run_sync(public_keys, context.settings.home_path)
    return page(
        request,
        "statement.html",
        study_id=study_id,
        said=document,
        told=found,
        signer=_signer(document, keys) if found else None,
    )


@router.get("/verdict", dependencies=[needs_study(Scope.READ)])
async def show_verdict(request: Request, context: ContextDep, study_id: StudyId) -> HTMLResponse:
    """The statement verified as ``tan-cli statement --verify`` does, as a part of its page."""
    document = await studies.statement(context, study_id)
    return verdict(request, await checks_of(context, json.dumps(document), study_id=study_id))


def _signer(document: Mapping[str, Any], keys: list[PublicKey]) -> str:
    """Whose key has signed, in words."""
    key_id = document["signature"].get("key_id")
    state = next((key.state for key in keys if key.key_id == key_id), None)
    return {
        "signing": "the key that this service signs with",
        "retired": "an earlier key of this service",
    }.get(state or "", "a key that this service does not know")

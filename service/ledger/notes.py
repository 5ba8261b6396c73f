"""What attestations bind, and what has to be said beside every ε of a scope: what is in none of its figures."""

from collections.abc import Iterable
from typing import Any

from tan_core.accounting import SEARCH_NOTES, SearchAccounting

RESTORED = "restored_backup"
"""What an attestation of a whole scope binds where somebody went on with a restored database."""
RESTORED_NOTE = "the database was restored from an older backup: entries after it may be lost; ε is a lower bound"


OUTSIDE = "outside_release"
"""What an attestation binds of a release that is made outside of the service."""
BASELINE_NOTE = "baseline without privacy on private data NOT accounted"


def outside_reason(note: Any) -> str | None:
    """Why an outside release was charged, where this note says it."""
    release = note.get(OUTSIDE) if isinstance(note, dict) else None
    reason = release.get("reason") if isinstance(release, dict) else None
    return reason if isinstance(reason, str) else None


def search_note(unaccounted: int) -> str | None:
    """Where so many searches on the scope's data were not accounted for."""
    return SEARCH_NOTES[SearchAccounting.DECLARED_UNACCOUNTED] if unaccounted else None


def baseline_note(baselines: int) -> str | None:
    """Where so many studies trained a model on the scope's data without privacy, to compare with."""
    return BASELINE_NOTE if baselines else None


def restored_note(backups: int) -> str | None:
    """Where somebody went on with so many restored backups."""
    return RESTORED_NOTE if backups else None


def count_restored(attested: Iterable[dict[str, Any]]) -> int:
    """How many of these bodies of a scope's own attestations are of a restored backup."""
    return sum(isinstance(body.get("note"), dict) and RESTORED in body["note"] for body in attested)

"""Whether a ledger still holds the entry that a statement names, in a chain that is whole."""

from collections.abc import Mapping
from typing import Any

from service.ledger.schemas import ChainReport
from service.statements.check import Check


def check_ledger(
    statement: Mapping[str, Any],
    *,
    entry_hash: str | None,
    chain: ChainReport,
    search_accounting: str | None = None,
) -> list[Check]:
    """What was checked against the ledger, after :func:`service.statements.verify.verify_statement`.

    Args:
        statement: a statement with a ``ledger``; its ``entry`` names a ``seq`` and a ``hash``.
        entry_hash: of the entry with that number in the ledger today; None: there is none.
        chain: the verdict on that ledger's journal.
        search_accounting: what that journal says of the study's search; None: its entry is of before
            entries said it, and nothing is checked.
    """
    signed = statement["ledger"]
    holds = entry_hash is not None and entry_hash == signed["entry"]["hash"]
    where = f"entry {signed['entry']['seq']} of {signed['scope']}"
    return [
        Check(
            "ledger entry",
            holds,
            f"{where} {'is the one that was signed' if holds else 'is no longer the signed one'}",
        ),
        Check("hash chain", chain.is_valid, chain.fault or f"{chain.num_entries} entries"),
        *([] if search_accounting is None else [_check_search(statement, search_accounting)]),
    ]


def _check_search(statement: Mapping[str, Any], reserved: str) -> Check:
    stated = statement.get("search", {}).get("accounting")
    detail = f"{reserved} in the journal"
    return Check(
        "search", stated == reserved, detail if stated == reserved else f"{stated}, but {detail}"
    )

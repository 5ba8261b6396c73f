"""Whether a ledger still holds the entry that a statement names, in a chain that is whole."""

from collections.abc import Mapping
from typing import Any

from service.ledger.schemas import ChainReport
from service.statements.check import Check


def check_ledger(
    statement: Mapping[str, Any], *, entry_hash: str | None, chain: ChainReport
) -> list[Check]:
    """What was checked against the ledger, after :func:`service.statements.verify.verify_statement`.

    Args:
        statement: a statement with a ``ledger``; its ``entry`` names a ``seq`` and a ``hash``.
        entry_hash: of the entry with that number in the ledger today; None: there is none.
        chain: the verdict on that ledger's journal.
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
    ]

"""What a statement says that its epsilon covers: it follows from how the search touched the private data."""

from collections.abc import Mapping
from typing import Any

from service import text
from service.ledger.notes import baseline_note, restored_note, search_note
from service.statements.check import Check
from tan_core.accounting import SearchAccounting, note_of_search

_OUTPUTS = (
    "Covered: the released weights, every checkpoint, and everything computed from them alone."
)
_TEST_SPLIT = "Not covered: the test accuracy, which reads the test split."
_SCORED_ON = (
    "Not covered: the test accuracy, which reads the test split; the records of the validation split "
    "that simulations score on, unless the search is accounted for."
)
_BY_MODE = {
    SearchAccounting.PUBLIC_PROXY: (_OUTPUTS, _TEST_SPLIT),
    SearchAccounting.ACCOUNTED: (
        "Covered: the released weights, every checkpoint, the scores of all trials of the search, what was chosen by "
        "them, and everything computed from these alone.",
        _TEST_SPLIT,
    ),
    SearchAccounting.DECLARED_UNACCOUNTED: (
        "Covered: the private training, for hyper-parameters taken as given.",
        "Not covered: the choice of hyper-parameters, made by simulations on the private training and "
        "validation records.",
        _TEST_SPLIT,
    ),
    SearchAccounting.NO_SEARCH: (
        "Covered: the private training, for the hyper-parameters that were given, and so the released weights, every "
        "checkpoint, and everything computed from them alone.",
        "Not covered: how these hyper-parameters were found, before the study.",
        _TEST_SPLIT,
    ),
}
_LEARNT = (
    "Not covered: the choice of {}, whose hyper-parameters the study has, made by simulations on the private training "
    "and validation records."
)
_SHARES = "Not covered: how the shares of the classes were found, which were stated with the study."
_EARLIER = (
    (_OUTPUTS, _SCORED_ON),
    (_OUTPUTS, _SCORED_ON.replace("accounted for.", "accounted for below.")),
)
"""What every statement said once, whatever the search had read."""
_EARLIER_NOTES = {
    SearchAccounting.PUBLIC_PROXY: ("hyper-parameters chosen without private data",),
}


def coverage_of(
    mode: SearchAccounting, *, learnt_from: str | None = None, has_shares: bool = False
) -> tuple[str, ...]:
    """What epsilon covers where the search touched the private data so, and what it does not.

    Args:
        mode: of the search.
        learnt_from: the trial of a search that was not accounted whose parameters the study has.
        has_shares: whether the study states shares of classes.
    """
    return (
        *_BY_MODE.get(mode, (_OUTPUTS, _SCORED_ON)),
        *(() if learnt_from is None else (_LEARNT.format(learnt_from),)),
        *((_SHARES,) if has_shares else ()),
    )


def stated_coverage(statement: Mapping[str, Any]) -> list[str]:
    """What a statement says of it; of one that was issued before it followed from the mode, what is true."""
    stated = list(statement["coverage"])
    known = SearchAccounting(statement["search"]["accounting"])
    for earlier in _EARLIER:
        if tuple(stated[: len(earlier)]) == earlier:
            return [*coverage_of(known), *stated[len(earlier) :]]
    return stated


def check_beside(statement: Mapping[str, Any]) -> list[Check]:
    """Whether what is counted beside all that was charged is put in words; nothing where nothing is counted."""
    ledger = statement["ledger"]
    if not ledger or "charged_epsilon" not in ledger:
        return []
    searches = ledger["unaccounted_searches"]
    notes = {
        "search_note": search_note(searches),
        "baseline_note": baseline_note(ledger["unaccounted_baselines"]),
        "restored_note": restored_note(ledger["restored_backups"]),
    }
    wrong = [name for name, note in notes.items() if ledger.get(name) != note]
    mode = (statement.get("search") or {}).get("accounting")
    if mode == SearchAccounting.DECLARED_UNACCOUNTED and searches < 1:
        wrong.append("unaccounted_searches")
    said = f"wrong: {', '.join(wrong)}" if wrong else "; ".join(text.beside_charged(ledger, mode))
    return [Check("beside epsilon", not wrong, said or "nothing is left out of what was charged")]


def check_coverage(statement: Mapping[str, Any]) -> Check:
    """Whether the words beside epsilon are those of the mode, no more and no less."""
    search, stated = statement["search"], tuple(statement["coverage"])
    mode, learnt_from = SearchAccounting(search["accounting"]), search.get("learnt_from")
    note = note_of_search(mode, learnt_from=learnt_from)
    if search["note"] not in (note, *_EARLIER_NOTES.get(mode, ())):
        return Check("coverage", False, f"{search['note']!r:.200} is not what {mode} is called")
    if (search["epsilon"] == 0) is not mode.is_free:
        return Check("coverage", False, f"no search under {mode} has epsilon {search['epsilon']}")
    evaluation = statement.get("evaluation")
    more = () if evaluation is None else (evaluation["note"],)
    has_shares = "class_shares" in (statement.get("training") or {})
    if stated == (*coverage_of(mode, learnt_from=learnt_from, has_shares=has_shares), *more):
        return Check("coverage", True, search["note"])
    if stated not in tuple((*earlier, *more) for earlier in _EARLIER):
        return Check("coverage", False, f"its words are not those of {mode}")
    if mode is SearchAccounting.PUBLIC_PROXY:
        return Check("coverage", True, search["note"])
    return Check(
        "coverage", None, f"in the words of an earlier version; to be read as: {coverage_of(mode)[0]} "
        f"{search['note']}",
    )  # fmt: skip

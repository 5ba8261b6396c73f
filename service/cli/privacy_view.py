"""What was spent and what is promised: the ledger, the statement and the checks on both."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from service import text
from service.cli.output import printable
from service.cli.views import UNACCOUNTED, evaluation_tables, facts, table
from service.ledger import names, words
from service.ledger.schemas import Entry

if TYPE_CHECKING:
    from service.statements.check import Check

Json = dict[str, Any]

HASH_LENGTH = 12
MOST_RESERVATIONS = 50
"""That are shown, as many as entries; ``--json`` has all."""


def ledger(account: Json, dataset: Json) -> RenderableType:
    """A dataset's budget, who holds what of it, and the newest entries of its journal."""
    scope = account["scope"]
    return Group(
        facts(
            f"Ledger of {dataset['name']}",
            [
                ("budget", f"ε = {scope['epsilon']:g} at δ = {scope['delta']:g} in total"),
                (
                    "committed",
                    f"ε = {text.epsilon(account['committed_epsilon'])}, charged and reserved",
                ),
                ("charged", f"ε = {text.epsilon(account['charged_epsilon'])}, for steps begun"),
                # Rounded down: what is left must not look like more than it is.
                ("remaining", _remaining(account["remaining_epsilon"], scope["epsilon"])),
                ("accountant", str(account["accountant"]).upper()),
                ("admission", scope.get("admission")),
                ("caps", _caps(account.get("caps") or [])),
                ("protects", f"one {scope['unit']}, neighbours {scope['neighboring_relation']}"),
                ("search", _search_note(account, dataset)),
                ("baselines", _baseline_note(account)),
                ("restored", _restored_note(account)),
                ("head", f"entry {account['head']['seq']}, hash {account['head']['hash']}"),
            ],
        ),
        Text(),
        _reservations(account["reservations"]),
        _entries(account["entries"], account["head"]["seq"]),
    )


def _remaining(remaining: float, total: float) -> str:
    fits = text.what_fits(remaining, total)
    return f"ε = {text.rounded_down(remaining)}{f'; {fits}' if fits else ''}"


def chain(report: Json, dataset: str | None = None) -> RenderableType:
    """The verdict on a journal."""
    whose = "the journal" if dataset is None else f"{dataset}: the journal"
    if report["is_valid"]:
        return Text(f"{whose} is whole: {report['num_entries']} entries, chained and folded")
    where = report.get("first_bad_seq")
    place = "" if where is None else f" at entry {where}"
    return Text(f"{whose} is broken{place}: {report['fault']}", style="red")


def repricing(repriced: Json) -> RenderableType:
    """What the accountants of today say of the past, beside what was said before."""
    if not repriced["items"]:
        return Text("nothing was charged yet, so there is nothing to price")
    columns = ("ε", "ε before")
    made = table(
        f"{repriced['scope_id']} up to entry {repriced['head']['seq']}",
        "study or release", "accountant", "version", *columns, "version before", right=columns,
        prose=("study or release",),
    )  # fmt: skip
    parts = _parts(repriced["items"])
    for one in repriced["items"]:
        made.add_row(
            _whose(one, parts) if one["study_id"] else "all together",
            one["accountant"].upper(),
            one["version"],
            text.epsilon(one["epsilon"]),
            text.MISSING if one["before"] is None else text.epsilon(one["before"]),
            one["version_before"] or text.MISSING,
        )
    return made


def outside_release(release: Json, dataset: str) -> RenderableType:
    """What a release outside of the service costs and what is left; whether it was charged."""
    entry = release["entry"]
    said = "would cost, nothing was charged" if entry is None else "charged, and may be made"
    return facts(
        f"{said}: {release['reason']} (outside of the service)",
        [
            ("mechanism", _mechanism(release["mechanism"])),
            ("costs", f"ε = {text.epsilon(release['epsilon'])} by itself at δ = {release['delta']:g}"),
            (
                "committed",
                f"ε = {text.epsilon(release['epsilon_after'])} with it, "
                f"{text.epsilon(release['epsilon_before'])} before it",
            ),
            ("remaining", f"ε = {text.rounded_down(release['remaining_epsilon'])} of {dataset}"),
            ("accountant", str(release["accountant"]).upper()),
            ("tenant", release["tenant"]),
            ("release", release["id"]),
            ("entry", entry and f"{entry['seq']}, hash {entry['hash']}"),
        ],
    )  # fmt: skip


def keys(items: Sequence[Json]) -> RenderableType:
    """Public keys, the signing one first."""
    made = table("Keys", "id", "algorithm", "state")
    for key in items:
        made.add_row(key["key_id"], key["algorithm"], key["state"])
    return made


def statement(document: Json) -> RenderableType:
    """A privacy statement, its guarantee first."""
    said = body(document)
    privacy, search = said["privacy"], said["search"]
    shown = facts(
        f"Privacy statement of {said['study']['name']} ({said['study']['id']})",
        [
            (
                "guarantee",
                text.guarantee(
                    {
                        **privacy,
                        "neighboring_relation": said["neighboring_relation"],
                        "search_note": "; ".join(
                            filter(
                                None,
                                [search["note"], (said.get("ledger") or {}).get("restored_note")],
                            )
                        ),
                    }
                ),
            ),
            ("protects", f"one {said['unit']} of {said['dataset']['name']}" if said["protects"] else "nothing: the data is public"),
            ("search", _search_said(search)),
            ("waiver", search.get("waiver")),
            ("accountants", _by_accountant(privacy.get("epsilon_by_accountant") or {})),
            *(("mechanism", told) for told in _mechanisms(said)),
            ("precision", (said.get("training") or {}).get("precision")),
            ("shares", text.shares_in_words((said.get("training") or {}).get("class_shares"))),
            ("before", _began_from(said.get("pretraining") or {})),
            ("steps", ", ".join(f"{n} {word}" for word, n in said["steps"].items() if n is not None)),
            ("weights", f"sha256 {said['weights']['sha256']}"),
            ("ledger", _ledger_entry(said.get("ledger"))),
            ("charged", _charged_by_then(said.get("ledger"), search["accounting"])),
            ("software", ", ".join(f"{k} {v}" for k, v in said["software"].items())),
            ("code", f"commit {said['code_commit']}" if said.get("code_commit") else None),
            ("image", said.get("container_image")),
            *(("assumes", line) for line in said.get("assumptions", [])),
            *(("coverage", line) for line in said.get("coverage", [])),
            ("signed by", _signer(document)),
            ("issued", f"{text.when(said['issued_at'])} UTC"),
        ],
    )  # fmt: skip
    evaluation = said.get("evaluation")
    return shown if evaluation is None else Group(shown, *evaluation_tables(evaluation))


def checks(found: "Sequence[Check]") -> RenderableType:
    """What was checked, one line each."""
    made = table("Checks", "check", "verdict", "", prose=("",))
    for check in found:
        style = {"good": None, "open": "yellow", "bad": "red"}[check.verdict]
        verdict = "BAD" if check.is_bad else check.verdict
        made.add_row(check.name, verdict, printable(check.detail), style=style)
    return made


def body(document: Json) -> Json:
    """What was signed: everything but the signature."""
    return {key: part for key, part in document.items() if key != "signature"}


def _caps(caps: Sequence[Json]) -> str | None:
    def told(one: Json) -> str:
        committed = one.get("committed_epsilon")
        used = "" if committed is None else f" ({text.epsilon(committed)} committed)"
        return f"{words.whose(one['tenant'])} ε <= {one['epsilon']:g}{used}"

    return ", ".join(map(told, caps)) or None


def _reservations(reservations: Sequence[Json]) -> RenderableType:
    if not reservations:
        return Text("nothing was ever reserved")
    columns = ("reserved", "charged", "released")
    newest = reservations[-MOST_RESERVATIONS:]
    which = (
        ""
        if len(newest) == len(reservations)
        else f" the newest {len(newest)} of {len(reservations):,},"
    )
    made = table(
        f"Reservations,{which} in steps", "study or release", "state", *columns, "entry", right=columns, prose=("study or release",),
    )  # fmt: skip
    parts = _parts(reservations)
    for one in newest:
        made.add_row(
            _whose(one, parts),
            one["state"],
            *(text.number(one[f"{column}_steps"]) for column in columns),
            str(one["seq"]),
        )
    return made


def _parts(items: Iterable[Json]) -> dict[str, str]:
    """What of its study each reservation is for, where there are several."""
    held = [(one["study_id"], one.get("reservation_id") or "") for one in items]
    return names.parts(pair for pair in held if pair[0])


def _whose(one: Json, parts: Mapping[str, str]) -> str:
    """The study, and what of it where there are several parts; or the release that no study made."""
    if names.is_outside(one.get("reservation_id") or ""):
        return words.outside(one.get("reason"))
    part = parts.get(one.get("reservation_id") or "")
    return f"{one['study_id']}, {part}" if part else one["study_id"]


def _entries(entries: Sequence[Json], head: int) -> RenderableType:
    last = entries[-1]["seq"] if entries else head
    which = f"the newest {len(entries)}" if last == head else f"{len(entries)} up to {last}"
    title = "Journal" if len(entries) == head else f"Journal, {which} of {head}"
    made = table(
        title, "entry", "when (UTC)", "kind", "reservation", "what", "by", "hash",
        right=("entry",), prose=("what",),
    )  # fmt: skip
    for one in map(Entry.model_validate, entries):
        made.add_row(
            str(one.seq),
            f"{words.when(one):%Y-%m-%d %H:%M}",
            one.kind,
            one.reservation_id or text.MISSING,
            words.what(one),
            words.by_whom(one),
            one.hash[:HASH_LENGTH],
        )
    return made


def _search_note(account: Json, dataset: Json) -> str:
    if count := account.get("unaccounted_searches"):
        studies = "study" if count == 1 else "studies"
        return f"{account['search_note']}: of {count} {studies}; these figures hold no such search"
    if "declared_unaccounted" in dataset["allowed_modes"]:
        return f"where a study declared it unaccounted: {UNACCOUNTED}; these figures hold no such search"
    return "no search reads this data without being accounted"


def _baseline_note(account: Json) -> str | None:
    count = account.get("unaccounted_baselines")
    studies = "study" if count == 1 else "studies"
    return f"{account['baseline_note']}: of {count} {studies}" if count else None


def _restored_note(account: Json) -> str | None:
    count = account.get("restored_backups")
    times = "once" if count == 1 else f"{count} times"
    return f"{account['restored_note']} (accepted {times})" if count else None


def _by_accountant(figures: Json) -> str | None:
    return ", ".join(f"{text.epsilon(v)} ({k.upper()})" for k, v in figures.items()) or None


def _search_said(search: Json) -> str:
    """How the search is accounted for, and what it came to by itself where it was charged."""
    told = f"{search['accounting']}: {search['note']}"
    if search["accounting"] != "accounted" or search.get("epsilon") is None:
        return told
    trials = text.counted(search.get("trials", 0), "trial")
    return f"{told}; ε = {text.epsilon(search['epsilon'])} of its {trials} with their scores alone"


def _began_from(pretraining: Json) -> str | None:
    """What the weights have seen before, which no ε of this statement is for."""
    data, note = pretraining.get("data"), pretraining.get("note")
    return ": ".join(filter(None, [data and f"trained before on {data}", note])) or None


def _mechanisms(said: Json) -> Iterator[str]:
    """Every event, and what it is of where there are several."""
    of = [mechanism.get("of") for mechanism in said.get("mechanisms", [])]
    for place, event in enumerate(said["events"]):
        which = of[place] if place < len(of) else None
        yield f"{which}: {_mechanism(event)}" if which else _mechanism(event)


def _mechanism(event: Json) -> str:
    """A stored event for people; anything unexpected is shown as it is."""
    try:
        rate = float.fromhex(event["sampling_rate"])
        noise = float.fromhex(event["noise_multiplier"])
        sampling, steps = event["sampling"], event["steps"]
    except (KeyError, TypeError, ValueError):
        return str(event)
    cap = event.get("max_batch_size")
    cut = "" if cap is None else f" cut at {cap:,}"
    return (
        f"{event.get('kind')}, {sampling} sampling{cut}, q = {rate:.6g}, σ = {noise:.6g}, "
        f"S = {steps:,}"
    )


def _ledger_entry(entry: Json | None) -> str | None:
    if not entry:
        return None
    return f"entry {entry['entry']['seq']} of {entry['scope']}, hash {entry['entry']['hash']}"


def _charged_by_then(ledger: Json | None, search_accounting: str) -> str | None:
    """All that was charged on the dataset when the statement was issued, and what is in none of it."""
    if not ledger or "charged_epsilon" not in ledger:
        return None
    told = (
        f"ε = {text.epsilon(ledger['charged_epsilon'])} at δ = {ledger['budget']['delta']:g}, accountant "
        f"{str(ledger['accountant']).upper()}: all that was charged on this dataset by then"
    )
    return "; ".join([told, *text.beside_charged(ledger, search_accounting)])


def _signer(document: Json) -> str | None:
    signature = document.get("signature") or {}
    return f"{signature.get('algorithm')} key {signature.get('key_id')}" if signature else None

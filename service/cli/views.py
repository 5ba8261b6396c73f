"""Answers of the API as tables that a person can read."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from service import text
from service.cli.live import features_line, finals_line, steps_line, trials_line
from service.cli.progress import TERMINAL, StudyProgress, of_study
from service.cli.tables import FirstThatFits, FittingTable, table

Json = dict[str, Any]

UNACCOUNTED = "search on private data NOT accounted"
BEST_TRIALS = "best trial: validation accuracy of a simulation, not private; of an accounted search noisy, paid for"
APPROVED_BY_A_PERSON = "required: a person approves every private run, whatever its study says"
CHOSEN_BY = {"search": "by the search", "user": "by a user", None: "proposed, waits for approval"}


def facts(title: str | None, rows: Iterable[tuple[str, str | None]]) -> RenderableType:
    """Names and values, one pair a line; a pair without a value is left out."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        if value is not None:
            grid.add_row(name, value)
    return grid if title is None else Group(Text(title, style="bold"), grid)


def studies(items: Sequence[Json], *, is_filtered: bool = False) -> RenderableType:
    """A list of studies. ε stands beside δ and how the search was accounted."""
    if not items and is_filtered:
        return Text("no study fits; `tan-cli list` shows all that are not archived")
    if not items:
        return Text("no studies yet; `tan-cli submit examples/digits.yaml` makes one")
    return FirstThatFits(_wide_studies(items), _narrow_studies(items))


def _metric(study: Json) -> str | None:
    return study["spec"]["search"].get("metric")


def _accuracy(item: Json, of: str) -> str:
    """Of one in a list."""
    told = text.percent(item.get(of))
    is_told = item.get(of) is not None and text.is_balanced(item.get("metric"))
    return f"{told} balanced" if is_told else told


def _wide_studies(items: Sequence[Json]) -> FittingTable:
    made = table(
        None, "id", "name", "state", "dataset", "best trial", "test", "ε", "δ", "search", "created", "tags",
        right=("best trial", "test", "ε", "δ"), prose=("tags",), notes=_legend(items),
    )  # fmt: skip
    for item in items:
        delta = item.get("delta")
        made.add_row(
            item["id"],
            item["name"],
            item["state"],
            item["dataset"],
            _accuracy(item, "best_accuracy"),
            _accuracy(item, "test_accuracy"),
            _epsilon_of(item),
            text.MISSING if delta is None else f"{delta:g}",
            item["search_accounting"],
            text.when(item.get("created_at")),
            ", ".join(item["tags"]),
        )
    return made


def _narrow_studies(items: Sequence[Json]) -> FittingTable:
    """What matters most of each, a line long; a star stands for the words below."""
    made = table(
        None, "id", "name", "state", "test", "ε at δ", right=("test", "ε at δ"),
        notes=[line.replace("declared_unaccounted", "*") for line in _legend(items) if line != BEST_TRIALS],
    )  # fmt: skip
    for item in items:
        star = "*" if UNACCOUNTED in item["search_note"] else ""
        made.add_row(
            item["id"],
            item["name"],
            item["state"],
            _accuracy(item, "test_accuracy"),
            f"{_epsilon_of(item)}{star} at {item['delta']:g}",
        )
    return made


def _epsilon_of(item: Json) -> str:
    return f"{text.epsilon(item['epsilon'])} ({str(item['accountant']).upper()})"


def _legend(items: Sequence[Json]) -> list[str]:
    """What ε means nothing without, where it does not fit in a column."""
    lines = _relations(items)
    if any(item.get("best_accuracy") is not None for item in items):
        lines.append(BEST_TRIALS)
    if any(item["search_accounting"] == "declared_unaccounted" for item in items):
        lines.append(f"declared_unaccounted: {UNACCOUNTED}")
    lines += [
        f"{item['id']}: {item['search_note']}"
        for item in items
        if item["search_accounting"] != "declared_unaccounted"
        and UNACCOUNTED in item["search_note"]
    ]
    if restored := [item for item in items if item.get("restored_note")]:
        lines.append(
            f"{', '.join(item['id'] for item in restored)}: {restored[0]['restored_note']}"
        )
    return lines


def _relations(items: Sequence[Json]) -> list[str]:
    """For which neighbours ε holds; which studies are of another relation than most is said by their ids."""
    of = defaultdict[str, list[str]](list)
    for item in items:
        if relation := item.get("neighboring_relation"):
            of[str(relation)].append(item["id"])
    if not of:
        return []
    usual, *others = sorted(of, key=lambda relation: -len(of[relation]))
    exceptions = [f"of {', '.join(of[relation])} for {relation}" for relation in others]
    return ["; ".join([f"ε holds for neighbours {usual}", *exceptions])]


def study(item: Json, attempts: Sequence[Json] = ()) -> RenderableType:
    """Everything about one study that fits a screen, and which of its attempts ended early."""
    progress = of_study(item)
    rows: list[tuple[str, str | None]] = [
        ("id", item["id"]),
        ("state", _state(item)),
        ("priority", str(item["priority"]) if item.get("priority") else None),
        ("dataset", item["spec"]["dataset"]),
        ("model", text.model_of(item["spec"]["model"])),
        ("tags", ", ".join(item["tags"]) or None),
        ("note", item.get("note")),
        ("features", features_line(progress.features) if progress.features else None),
        ("search", _search(item, progress)),
        ("accuracies", text.BALANCED if text.is_balanced(_metric(item)) else None),
        ("finals", finals_line(progress) or None),
        ("approval", _approval(item)),
        ("best trial", best_trial(item)),
        *prediction_rows(item),
        ("private run", _run(item.get("run"), steps_line(progress), _metric(item))),
        ("privacy", text.guarantee(item["privacy"])),
        ("ledger", ledger_line(item)),
        *(("ended early", line) for line in map(_ended_early, attempts) if line),
        ("created", f"{text.when(item.get('created_at'))} UTC"),
        ("error", _error(item.get("error"))),
    ]
    shown = facts(item["name"], rows)
    evaluation = (item.get("run") or {}).get("evaluation")
    return shown if evaluation is None else Group(shown, *evaluation_tables(evaluation))


def evaluation_tables(evaluation: Json) -> Iterator[RenderableType]:
    """Accuracy by class and by group, of the private model and of the one without privacy."""
    for title, parts in (
        ("class", evaluation["classes"]),
        (evaluation["group_column"], evaluation["groups"]),
    ):
        if not parts:
            continue
        made = table(
            f"Test accuracy by {title} (95 % intervals)", title, "records", "private", "without privacy",
            right=("records", "private", "without privacy"),
        )  # fmt: skip
        for part in (evaluation["all"], *parts):
            made.add_row(
                text.part_name(part["name"]),
                text.number(part["private"]["num"]),
                _share(part["private"]),
                _share(part["baseline"]),
            )
        yield made
    if evaluation["baseline_reason"]:
        yield Text(f"no model without privacy: {evaluation['baseline_reason']}")
    yield Text(evaluation["note"])


def _share(share: Json | None) -> str:
    if share is None:
        return text.MISSING
    return f"{text.percent(share['accuracy'])} {text.interval(share['low'], share['high'])}"


def _state(study: Json) -> str:
    """The state and its reason, unless that is the promotion's, which stands by itself."""
    reason, promotion = study.get("reason"), study.get("promotion")
    state = f"{study['state']}, paused" if study.get("paused") else study["state"]
    if not reason or (promotion and promotion["reason"] in reason):
        return state
    return f"{state}: {reason}"


def _approval(study: Json) -> str | None:
    """What its private run will wait for, where that is not what the study itself says."""
    if study.get("approval") != "required" or study["state"] == "awaiting_approval":
        return None
    required = f"required by dataset {study['spec']['dataset']}"
    if study["spec"]["search"]["accounting"] == "accounted" and study["state"] == "queued":
        return f"{required}: the search waits for tan-cli promote, and so does the private run"
    if study["spec"].get("promotion") == "manual":
        return None
    return f"{required}: the private run waits for tan-cli promote"


def _search(study: Json, progress: StudyProgress) -> str:
    if not progress.trials_total:
        return study["privacy"]["search_note"]
    return f"{trials_line(progress)}; {study['spec']['search']['accounting']}"


def _ended_early(attempt: Json) -> str | None:
    """How an attempt ended that did not do all of its work."""
    if attempt["state"] in ("live", "succeeded"):
        return None
    code = attempt["exit_code"]
    how = "told to end" if attempt["paused"] else attempt["state"]
    told = [
        f"{attempt['run']} attempt {attempt['attempt']} {how}",
        None if code in (None, 0) else f"exit code {code}",
        attempt["reason"],
    ]
    return ": ".join(filter(None, told))


def best_trial(study: Json) -> str | None:
    """The best trial of a study; the score of a simulation promises nothing."""
    trial = study.get("best_trial")
    if trial is None:
        return None
    scored_by = text.scored_by(_metric(study), prefix="validation ")
    return (
        f"number {trial['number']}, {scored_by} {text.percent(trial.get('value'))} "
        f"({text.of_trial(study['privacy']['search_accounting'], study['plan'])}): {text.parameters(trial['params'])}"
    )


def prediction_rows(study: Json) -> Iterator[tuple[str, str | None]]:
    """What the search foretold, what was promoted and why, and how it came out, as far as known."""
    prediction, promotion = study.get("prediction"), study.get("promotion")
    if prediction is not None:
        yield "prediction", _predicted(prediction, study["plan"])
        yield "caution", prediction["caution"]
    if promotion is not None:
        yield "promotion", f"{CHOSEN_BY[promotion['by']]}: {promotion['reason']}"
        yield "approved", approved(promotion)
    if prediction is not None:
        yield "outcome", _outcome(prediction)


def approved(promotion: Json) -> str | None:
    """Who let the private run begin; None where nobody was asked, or that was not kept."""
    said = promotion.get("approved_by")
    if said is None:
        return None
    trial = "" if said["trial"] is None else f"trial {said['trial']}, "
    return f"{trial}by {said['name']} (token {said['token_id']}), {text.when(said['at'])} UTC"


def _predicted(prediction: Json, plan: Json) -> str:
    return (
        f"predicted {text.percent(prediction['accuracy'])} "
        f"{text.interval(prediction['low'], prediction['high'])} "
        f"at B = {text.number(prediction['expected_batch_size'])} "
        f"from {text.basis(prediction, plan)}{text.beside_the_law(prediction)}"
    )


def _outcome(prediction: Json) -> str | None:
    if prediction["reached"] is None:
        return None
    place = "inside" if prediction["inside"] else "outside"
    return f"reached {text.percent(prediction['reached'])}: {text.deviation(prediction['error'])}, {place}"


def ledger_line(study: Json) -> str | None:
    """What the ledger holds and has charged for the study; of one that is over, that it holds no more than it charged."""
    privacy, is_over = study["privacy"], study["state"] in TERMINAL
    reserved, charged = privacy.get("epsilon_reserved"), privacy.get("charged_steps")
    if reserved is None:
        return None
    line = f"reserved ε = {text.epsilon(reserved)}"
    if charged is not None:
        whose = " of the run" if privacy["search_accounting"] == "accounted" else ""
        reserved_steps = privacy.get("reserved_steps") or 0
        line += f", charged {charged:,} of {reserved_steps:,} steps{whose}"
        line += ", the rest given back" if is_over and charged < reserved_steps else ""
    entry = privacy.get("ledger_entry")
    if entry:
        line += f", entry {entry['seq']} of {entry['scope']}, hash {entry['hash']}"
    return line


def datasets(items: Sequence[Json]) -> RenderableType:
    """Registered datasets and their budgets."""
    if not items:
        return Text("no datasets yet; `tan-cli dataset add` registers one")
    return FirstThatFits(_wide_datasets(items), _narrow_datasets(items))


def _wide_datasets(items: Sequence[Json]) -> FittingTable:
    made = table(
        None, "name", "source", "classes", "train", "validation", "test", "budget ε", "δ", "relation",
        "search modes", right=("classes", "train", "validation", "test", "budget ε", "δ"),
        prose=("search modes",),
    )  # fmt: skip
    for item in items:
        budget = item.get("budget")
        made.add_row(
            item["name"],
            item["source"],
            text.number(item["num_classes"]),
            _training(item),
            text.number(item["num_validation"]),
            text.number(item["num_test"]),
            f"{budget['epsilon']:g}" if budget else "public",
            f"{budget['delta']:g}" if budget else text.MISSING,
            item.get("neighboring_relation") or text.MISSING,
            ", ".join(item["allowed_modes"]),
        )
    return made


def _narrow_datasets(items: Sequence[Json]) -> FittingTable:
    """What matters most of each, a line long."""
    relations = sorted({r for item in items if (r := item.get("neighboring_relation"))})
    note = f"budgets are totals, for neighbours {', '.join(relations)}; `tan-cli dataset show NAME`"
    made = table(
        None, "name", "classes", "train", "budget", right=("classes", "train"),
        notes=[note] if relations else [],
    )  # fmt: skip
    for item in items:
        budget = item.get("budget")
        total = f"ε = {budget['epsilon']:g} at δ = {budget['delta']:g}" if budget else "public"
        made.add_row(item["name"], text.number(item["num_classes"]), _training(item), total)
    return made


def _training(item: Json) -> str:
    """Records, as validation and test are counted, and of how many users where those are protected."""
    users = "" if item["unit"] == "record" else f" of {item['num_train']:,} users"
    return f"{item['num_train_records']:,}{users}"


def _classes(item: Json) -> str:
    names = item.get("classes")
    return f"{item['num_classes']:,}{f': {text.first_of(names)}' if names else ''}"


def _validation(item: Json) -> str:
    users = item.get("num_validation_users")
    whose = f" of {users:,} users" if users else ""
    return f"{item['num_validation']:,} validation{whose}"


def dataset(item: Json) -> RenderableType:
    """One registered dataset."""
    budget = item.get("budget")
    relation = item.get("neighboring_relation")
    return facts(
        item["name"],
        [
            ("source", item["source"]),
            ("path", item.get("path")),
            ("label", item.get("label")),
            ("classes", _classes(item)),
            ("features", "; ".join(text.stated_features(item.get("features") or [])) or None),
            ("shape", " x ".join(map(str, item["shape"]))),
            (
                "examples",
                f"{item['num_train_records']:,} train, {_validation(item)}, {item['num_test']:,} test",
            ),
            ("privacy unit", _unit(item)),
            ("group", item.get("group")),
            (
                "budget",
                f"ε = {budget['epsilon']:g}, δ = {budget['delta']:g} in total, neighbours {relation}"
                if budget
                else "none: public data",
            ),
            ("search modes", ", ".join(item["allowed_modes"])),
            ("waiver", item.get("waiver")),
            ("approval", APPROVED_BY_A_PERSON if item.get("approval") == "required" else None),
            *(("warning", each) for each in item.get("warnings") or []),
            ("overlap", _overlap(item.get("overlap"))),
            ("sha256", item["content_sha256"]),
        ],
    )


def _overlap(overlap: Json | None) -> str | None:
    if overlap is None:
        return None
    others = ", ".join(
        f"{one['shared']:,} of {one['of']:,} distinct records are of {one['dataset']} too"
        for one in overlap["others"]
    )
    return f"{others}; accepted by {overlap['accepted']}"


def _unit(dataset: Json) -> str:
    if dataset["unit"] == "record":
        return "record"
    return (
        f"user, by column {dataset['unit']}: {dataset['num_train']:,} in train, at most "
        f"{dataset['records_per_unit']} records of each"
    )


def _run(run: Json | None, steps: str, metric: str | None) -> str | None:
    if run is None:
        return None
    line = f"{run['state']}, {steps}"
    if run.get("began_from_trial") is not None:
        line += f", from the weights of trial {run['began_from_trial']}"
        if run.get("learning_rate") is not None:
            line += f" at learning rate {text.number(run['learning_rate'])}"
    if run.get("test_accuracy") is not None:
        line += f", {text.scored_by(metric, prefix='test ')} {text.percent(run['test_accuracy'])}"
    return line


def _error(error: Json | None) -> str | None:
    if not error:
        return None
    return str(error.get("detail") or error.get("message") or error.get("reason") or error)

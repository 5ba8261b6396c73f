"""Published results, reproduced by the product itself: each row is a study of a running service.

    python benchmarks/published.py [--only NAME] [--seed N] [--again] [--list] [--quick] [--json FILE]

A service is started in a home of its own, which is kept (``--home``): features of frozen extractors are
computed once, and a study that was under way when the benchmark was killed goes on. For each row the study is
submitted, simulates, promotes what it predicts to be best, trains it privately, and is read back with its
signed statement; the test split was read once, by the private run. The result is stored in
``benchmarks/results/published``, and a row that is stored is not run again unless ``--again`` is given.

MNIST and CIFAR-10 (JPEG) are looked for in ``TAN_DATA_DIR``. The searches read the private data and are not
accounted, as in the papers they are compared with; the statement of every study says so. What epsilon other
accountants and conversions find for the very mechanism that ran stands beside it.

A private run draws from the operating system: no second run gives the same digits. The seed is the search's.
"""

import argparse
import json
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from _published_studies import QUICK, ROWS, Row
from _report import circumstances, origin, row
from _search_tasks import DATA
from _stored import FOLDER, study_path, write

from service.client import Client
from service.local.handle import LocalService
from tan_core.accounting import Conversion, price
from tan_core.errors import AccountantError
from tan_core.mechanism import Accountant, Mechanism

Json = dict[str, Any]

HOME = Path(tempfile.gettempdir()) / "tan-search" / "published"
POLL_SECONDS = 1.0
BUDGET = {"epsilon": 1000.0, "delta": 0.5}
"""Of a registered dataset: for some hundred studies, each of which states an epsilon of its own."""

_ENDED = ("completed", "failed", "cancelled")
_KEPT = ("number", "state", "params", "scores", "repeats", "reason")


def epsilons(mechanism: Mechanism, delta: float) -> dict[str, float | None]:
    """What each accountant makes of what ran, and what papers that use the classical conversion would say.

    None where it has no answer, or not in time on a busy machine: a finished study is worth more.
    """
    ways = {accountant.value: (accountant, Conversion.IMPROVED) for accountant in Accountant}
    ways["rdp_classical"] = (Accountant.RDP, Conversion.CLASSICAL)
    found: dict[str, float | None] = {}
    for name, (accountant, conversion) in ways.items():
        try:
            answer = price([mechanism], delta=delta, accountant=accountant, conversion=conversion)
            found[name] = answer.epsilon
        except AccountantError:
            found[name] = None
    return found


def register(client: Client, dataset: str) -> None:
    """The dataset, unless the home has it already."""
    if dataset in {each.name for each in client.list_datasets().items}:
        return
    client.register_dataset(
        {
            "name": dataset,
            "path": str((DATA / dataset).resolve()),
            "source": "parquet",
            "label": "label",
            "num_classes": 10,
            "allow": ["declared_unaccounted"],
            "waiver": "benchmark: the data are published; the search on them is shown as not accounted",
            **BUDGET,
        }
    )


def ended(client: Client, study_id: str) -> Json:
    """The study at its end; a line for each change on the way."""
    told = ""
    while True:
        study = client.get_study(study_id).model_dump(mode="json")
        progress = study["progress"]
        done = f"{progress['trials_finished']} of {progress['trials_total']} trials"
        line = f"  {study['state']}: {done}, step {progress['step']} of {progress['steps']}"
        if study["state"] != "training" and line != told:
            told = line
            print(line, flush=True)
        if study["state"] in _ENDED:
            return study
        time.sleep(POLL_SECONDS)


def result(client: Client, row_: Row, seed: int, study: Json) -> Json:
    """What is stored of a completed study."""
    statement = client.get_statement(study["id"])
    mechanism = Mechanism.from_json(statement["events"][0])
    delta = study["privacy"]["delta"]
    trials = [each.model_dump(mode="json") for each in client.every_trial(study["id"])]
    return {
        "name": row_.name,
        "seed": seed,
        "command": f"python benchmarks/published.py --only {row_.name} --seed {seed}",
        **origin(),
        "study": study["spec"],
        "num_examples": study["plan"]["reference"]["num_examples"],
        "mechanism": statement["mechanisms"][0],
        "epsilon": epsilons(mechanism, delta),
        "delta": delta,
        "stated": statement["privacy"],
        "software": statement["software"],
        "promotion": study["promotion"],
        "winner": study["best_trial"]["params"],
        "prediction": study["prediction"],
        "test_accuracy": study["run"]["test_accuracy"],
        "num_test": study["run"]["num_test"],
        "search_examples": _examples(trials),
        "started_at": study["started_at"],
        "finished_at": study["finished_at"],
        "trials": [_short(trial) for trial in trials],
    }


def _examples(trials: list[Json]) -> int:
    scores = [score for trial in trials for score in (*trial["scores"], *trial["repeats"])]
    return sum(
        round(each["expected_batch_size"] * each["steps"] * each["views"]) for each in scores
    )


def _short(trial: Json) -> Json:
    """Without the curves: their ends are the scores."""
    kept = {key: trial[key] for key in _KEPT}
    for key in ("scores", "repeats"):
        kept[key] = [
            {name: value for name, value in score.items() if name != "curve"} for score in kept[key]
        ]
    return kept


def run(client: Client, row_: Row, seed: int, *, again: bool) -> Json:
    """Submit, wait, read back."""
    if row_.recipe.dataset != "digits":
        register(client, row_.recipe.dataset)
    # The same key is the same study: after a kill it is found again, and not begun anew.
    key = f"{row_.name}-seed{seed}" + (f"-{time.time_ns()}" if again else "")
    submitted = client.submit_study(row_.study(seed), idempotency_key=key)
    print(f"{row_.name}, seed {seed}: {submitted.id}", flush=True)
    study = ended(client, submitted.id)
    if study["state"] != "completed":
        raise SystemExit(f"{row_.name}: {study['state']}: {study['reason']}; --again begins anew")
    return result(client, row_, seed, study)


def told(found: Json) -> str:
    """One line of the table."""
    shown = found["prediction"]
    return (
        f"| {found['name']} | {found['seed']} | {found['test_accuracy']:.2%} "
        f"| {shown['accuracy']:.2%} [{shown['low']:.2%}, {shown['high']:.2%}] "
        f"| {found['epsilon']['pld']:.3f} | {found['epsilon']['rdp_classical']:.3f} |"
    )


def chosen(options: argparse.Namespace) -> list[Row]:
    """The rows that were asked for."""
    rows = [QUICK] if options.quick else ROWS
    by_name = {each.name: each for each in rows}
    for name in options.only or ():
        if name not in by_name:
            raise SystemExit(f"--only {name}: accepted: {', '.join(by_name)}")
    return [by_name[name] for name in options.only] if options.only else rows


def main() -> None:
    """Run what is missing, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="digits alone, within a minute; not kept"
    )
    parser.add_argument("--json", type=Path, help="also write rows for scripts to this file")
    parser.add_argument("--only", action="append", help="only this row; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="of the search")
    parser.add_argument("--again", action="store_true", help="also what is stored")
    parser.add_argument("--list", action="store_true", help="the rows, and which are stored")
    parser.add_argument("--home", type=Path, default=HOME, help="of the service; it is kept")
    options = parser.parse_args()
    rows = chosen(options)
    if options.list:
        for each in rows:
            is_there = study_path(each.name, options.seed).exists()
            print(f"{each.name:40} {'stored' if is_there else '-'}")
        return
    print(circumstances(), flush=True)
    with ExitStack() as stack:
        folder = FOLDER
        if options.quick:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            options.home = folder / "home"
        missing = [
            each
            for each in rows
            if options.again or not study_path(each.name, options.seed, folder=folder).exists()
        ]
        if missing:
            # Simulations run side by side, one thread each, as do the two ranks of a private run.
            environment = {"TAN_CPUS": os.environ.get("TAN_CPUS", "2")}
            url = stack.enter_context(LocalService(options.home, environment=environment))
            client = stack.enter_context(Client(url))
            for each in missing:
                found = run(client, each, options.seed, again=options.again)
                write(study_path(each.name, options.seed, folder=folder), found)
                print(told(found), flush=True)
        documents = [
            json.loads(study_path(each.name, options.seed, folder=folder).read_text())
            for each in rows
        ]
    print("\n| study | seed | reached | predicted [90 %] | ε (PLD) | ε (RDP, classical) |")
    print("| --- | --- | --- | --- | --- | --- |")
    for found in documents:
        print(told(found))
    if options.json:
        figures = [row(each["name"], each["test_accuracy"], "test accuracy") for each in documents]
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()

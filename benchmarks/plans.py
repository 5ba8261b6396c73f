"""How long a plan takes, and each accountant's part in it.

    python benchmarks/plans.py [--quick] [--json FILE] [--repeats N]

Plans of the studies in ``examples/``, by turns, with every cache of ``tan_core`` empty; wall time, as a user
waits. The first plan of a process imports the libraries too and is told apart. To compare two commits, run
the file of this one with ``PYTHONPATH`` at a checkout of the other.
"""

import argparse
import functools
import gc
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import yaml
from _report import circumstances, row

from tan_core.accounting import price
from tan_core.mechanism import Accountant, Mechanism
from tan_core.planner import plan_study
from tan_core.spec import StudySpec

EXAMPLES = {"digits": 1295, "mnist": 60_000, "cifar10-wrn": 50_000, "accounted": 1295}
"""And the records of each."""
REPEATS, QUICK_REPEATS = 15, 2


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two repeats, within a minute")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int)
    asked = parser.parse_args()
    repeats = asked.repeats or (QUICK_REPEATS if asked.quick else REPEATS)
    folder = Path(__file__).parents[1] / "examples"
    questions = {
        f"plan of {name}": _plan(folder / f"{name}.yaml", size) for name, size in EXAMPLES.items()
    }
    run = Mechanism(sampling_rate=4096 / 50_000, noise_multiplier=3.0, clip_norm=1.0, steps=2500)
    for accountant in Accountant:
        questions[f"a price by {accountant}"] = functools.partial(
            price, [run], delta=1e-5, accountant=accountant
        )
    first = _seconds(next(iter(questions.values())))
    took = {name: [] for name in questions}
    for _ in range(repeats):
        for name, ask in questions.items():
            took[name].append(_seconds(ask))
    print(f"medians of {repeats}, by turns; the first plan of the process {first:.2f} s")
    print(circumstances(), "\n")
    print("| | median ms | fastest | slowest |\n| --- | --- | --- | --- |")
    rows = [row("first plan", first, "s")]
    for name, seconds in took.items():
        in_ms = [1e3 * each for each in seconds]
        print(f"| {name} | {statistics.median(in_ms):.0f} | {min(in_ms):.0f} | {max(in_ms):.0f} |")
        rows.append(row(name, statistics.median(in_ms), "ms"))
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=2))


def _plan(path: Path, num_examples: int) -> Callable[[], object]:
    spec = StudySpec.model_validate(yaml.safe_load(path.read_text()))
    return lambda: plan_study(spec, num_examples=num_examples, num_validation=num_examples // 10)


def _seconds(ask: Callable[[], object]) -> float:
    for each in gc.get_objects():
        if isinstance(each, functools._lru_cache_wrapper) and each.__module__.startswith(
            "tan_core"
        ):
            each.cache_clear()
    begun = time.perf_counter()
    ask()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()

"""The product beside what a user would pick instead: one run, one table, ratios, versions.

    python benchmarks/peers.py [--quick] [--json FILE] [--state FILE] [--only PIECE] [--jax PYTHON]

==========  ==========================================================================================
step        clipped sum, noise and update of Opacus and JAX-Privacy: CPU time, one thread
accounting  the noise for a target, by Opacus' and dp_accounting's accountants: wall time
trial       Ray Tune's default trial, the very same simulations: core time beside them
==========  ==========================================================================================

Each piece is that of a benchmark of its own (``engine``, ``accounting``, ``trials``), with fewer cases; ``search`` has a whole
study beside Optuna over Opacus at full batch. What is done is kept in ``--state`` and not done again. A peer that is not
here or fails is a row with its reason. JAX-Privacy runs by ``--jax``, a Python that has it; its turns do not alternate with
ours.
"""

import argparse
import json
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import accounting
import engine
import torch
import trials
from _peer_tune import default_trials
from _report import circumstances, row
from _search_tasks import QUICK, TASKS
from _units import Result, Units

from tan_core.engine.memory import keep_freed_memory

PACKAGES = ("torch", "opacus", "dp-accounting", "optuna", "ray")
JAX_STEP = Path(__file__).with_name("_peer_jax.py")


@dataclass(frozen=True)
class Options:
    """What is run, and how much of it."""

    is_quick: bool
    jax: str | None
    units: Units

    @property
    def size(self) -> str:
        """In the names of what is kept."""
        return "quick" if self.is_quick else "full"


def steps(options: Options) -> list[Result]:
    """Opacus and JAX-Privacy on the networks of ``engine``."""
    results: list[Result] = []
    for load in engine.QUICK[:1] if options.is_quick else engine.WORKLOADS[:3]:
        rounds = engine.QUICK_ROUNDS if options.is_quick else engine.ROUNDS

        def timed(load: engine.Workload = load, rounds: int = rounds) -> Result:
            ways = {"ours": engine.ours(load)}
            for mode in ("hooks", "ghost"):
                ways[f"Opacus, {mode}"] = engine.opacus(load.build, load.batch(), mode=mode)
            return engine.seconds_of(ways, rounds)

        seconds = options.units.once(f"{options.size}/step/{load.name}", timed)
        ours = 1000 * seconds["ours"]
        for name, taken in seconds.items():
            if name != "ours":
                results.append(_found(f"step: {name} ({load.name})", ours, 1000 * taken, "ms"))
        results.append(_jax_step(options, load, rounds, ours))
    return results


def _jax_step(options: Options, load: engine.Workload, rounds: int, ours: float) -> Result:
    name = f"step: JAX-Privacy ({load.name})"
    if options.jax is None:
        return _missing(name, "no Python with jax-privacy was named by --jax")

    def timed() -> Result:
        command = [str(options.jax), str(JAX_STEP), str(load.examples), str(rounds)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return {"failed": (done.stderr.strip().splitlines() or ["it died"])[-1]}
        return json.loads(done.stdout)

    found = options.units.once(f"{options.size}/jax/{load.name}", timed)
    if "failed" in found:
        return _missing(name, found["failed"])
    said = ", ".join(f"{package} {number}" for package, number in found["versions"].items())
    return _found(f"{name[:-1]}; {said})", ours, 1000 * found["seconds"], "ms")


def accountants(options: Options) -> list[Result]:
    """Median time of the same targets, ours against each."""
    count = 3 if options.is_quick else 24

    def timed() -> Result:
        targets = accounting.realistic_targets(count, seed=1)
        results = accounting.run(targets, peers_every=1)
        return {
            name: {"seconds": result.seconds, "failures": result.failures}
            for name, result in results.items()
        }

    found = options.units.once(f"{options.size}/accounting", timed)
    results: list[Result] = []
    for ours, peers in (
        ("ours, planning", ("opacus, rdp",)),
        ("ours, certified", ("opacus, prv", "dp_accounting, pld")),
    ):
        for peer in peers:
            name = f"accounting: {peer} against {ours} ({count} targets"
            if failures := found[peer]["failures"]:
                name += f", {len(failures)} of the peer's failed"
            if not found[peer]["seconds"]:
                results.append(_missing(f"{name})", failures[0]))
                continue
            taken = (1000 * median(found[each]["seconds"]) for each in (ours, peer))
            results.append(_found(f"{name})", *taken, "ms"))
    return results


def tune_trials(options: Options) -> list[Result]:
    """What a trial costs beside its simulation."""
    task = replace(QUICK[0], steps=200) if options.is_quick else replace(TASKS[0], steps=100)
    number = 4 if options.is_quick else 24
    name = f"trial: Ray Tune's default, beside {number} simulations ({task.name})"
    if not task.is_there():
        return [_missing(name, f"{task.dataset} is not here")]

    def timed() -> Result:
        with tempfile.TemporaryDirectory() as folder:
            ours = trials.measure(task, trials=number, cache_dir=Path(folder))
            work = trials.work_of(task, trials=number)
            peer = default_trials(work, task, trials=number, cache_dir=Path(folder))
        return {"ours": ours, "peer": peer}

    found = options.units.once(f"{options.size}/trial", timed)
    what = "between, ms a trial"
    return [_found(name, found["ours"][what], found["peer"][what], "ms of core time")]


PIECES: dict[str, Callable[[Options], list[Result]]] = {
    "step": steps,
    "accounting": accountants,
    "trial": tune_trials,
}


def _found(name: str, ours: float, peer: float, unit: str) -> Result:
    """A line of the table, of what is better the less it is; the ratio is above 1 where ours is less."""
    return {"name": name, "ours": ours, "peer": peer, "unit": unit, "ratio": peer / ours}


def _missing(name: str, reason: str) -> Result:
    return {"name": name, "reason": reason}


def show(results: list[Result]) -> None:
    """The table for people."""
    print("\n| peer | ours | the peer's | ratio |\n| --- | --- | --- | --- |")
    for each in results:
        if "reason" in each:
            print(f"| {each['name']} | - | not measured: {each['reason']} | - |")
            continue
        cells = (f"{each[who]:.4g} {each['unit']}" for who in ("ours", "peer"))
        print(f"| {each['name']} | {' | '.join(cells)} | {each['ratio']:.3g} |")


def rows_of(results: list[Result]) -> list[dict[str, Any]]:
    """For scripts: ours, versus the peer."""
    return [
        row(each["name"], each["ours"], each["unit"], each["name"], each["ratio"])
        for each in results
        if "reason" not in each
    ]


def main() -> None:
    """Run, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a case or two of each, in a minute")
    parser.add_argument("--json", type=Path, help="also write rows for scripts to this file")
    parser.add_argument("--state", type=Path, help="what was done so far; not kept with --quick")
    parser.add_argument("--only", action="append", choices=PIECES, help="may be repeated")
    parser.add_argument("--jax", metavar="PYTHON", help="that has jax-privacy installed")
    given = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    warnings.simplefilter("ignore")
    said = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    print(f"{said}\n{circumstances()}", flush=True)
    with ExitStack() as stack:
        state = given.state or Path(tempfile.gettempdir()) / "tan-peers" / "state.jsonl"
        if given.quick and not given.state:
            state = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "units.jsonl"
        options = Options(is_quick=given.quick, jax=given.jax, units=Units(state))
        results = [each for piece in given.only or PIECES for each in PIECES[piece](options)]
    show(results)
    if given.json:
        given.json.write_text(json.dumps(rows_of(results), indent=1) + "\n")


if __name__ == "__main__":
    main()

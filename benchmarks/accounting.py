"""How long it takes to find the noise for a target, by whose library, and where the answer lands.

    python benchmarks/accounting.py [--quick] [--json FILE] [--targets N] [--seed N]

Contenders answer one target after the other, so that a busy moment of the machine hits all of them; ours
answers every target, the others, which take seconds each, every fourth (``--peers-every``). Wall time of each answer is taken with caches empty. Each runs in a process of its own under a
limit of a minute and of 8 GiB, as an answer may need either without bound. The epsilon that an
answer achieves is priced by one referee for all: dp-accounting's PLD on the adaptive grid.
"""

import argparse
import json
import math
import multiprocessing as mp
import resource
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from _report import circumstances, row

from tan_core.accounting import calibrate_noise_multiplier, price
from tan_core.errors import AccountantError
from tan_core.mechanism import Mechanism

PATIENCE_SECONDS = 60.0
MEMORY_BYTES = 8 * 2**30
TARGETS, QUICK_TARGETS = 200, 8
PEERS_EVERY = 4


@dataclass(frozen=True)
class Target:
    """One question: the noise at which S Poisson batches end at (epsilon, delta)."""

    sampling_rate: float
    steps: int
    epsilon: float
    delta: float


Answer = Callable[[Target], float]


def realistic_targets(count: int, seed: int) -> list[Target]:
    """MNIST- to ImageNet-size data, batches of 256 to 32,768, 200 to 50,000 steps, epsilon .5 to 10."""
    rng = np.random.default_rng(seed)
    targets: list[Target] = []
    while len(targets) < count:
        num_examples = int(rng.choice([10_000, 50_000, 60_000, 250_000, 1_281_167]))
        batch = 2 ** int(rng.integers(8, 16))
        if batch > num_examples / 2:
            continue
        targets.append(
            Target(
                sampling_rate=batch / num_examples,
                steps=int(10 ** rng.uniform(math.log10(200), math.log10(50_000))),
                epsilon=float(10 ** rng.uniform(math.log10(0.5), 1)),
                delta=float(10 ** rng.uniform(-7, -5)),
            )
        )
    return targets


def ours(target: Target, *, certified: bool) -> float:
    """``calibrate_noise_multiplier``, nothing remembered from earlier targets."""
    sys.modules["tan_core.accounting.calibrate"]._least_noise.cache_clear()
    sys.modules["tan_core.accounting.price"]._price.cache_clear()  # type: ignore[attr-defined]
    return calibrate_noise_multiplier(
        sampling_rate=target.sampling_rate,
        steps=target.steps,
        epsilon=target.epsilon,
        delta=target.delta,
        certified=certified,
    )


def by_opacus(target: Target, *, accountant: str) -> float:
    """Opacus' ``get_noise_multiplier``, as it comes."""
    from opacus.accountants.utils import get_noise_multiplier

    return float(
        get_noise_multiplier(
            target_epsilon=target.epsilon,
            target_delta=target.delta,
            sample_rate=target.sampling_rate,
            steps=target.steps,
            accountant=accountant,
        )
    )


def by_dp_accounting(target: Target) -> float:
    """dp_accounting's ``calibrate_dp_mechanism`` over its PLD accountant, both as they come."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    def event(sigma: float) -> dp_accounting.DpEvent:
        step = dp_accounting.PoissonSampledDpEvent(
            target.sampling_rate, dp_accounting.GaussianDpEvent(sigma)
        )
        return dp_accounting.SelfComposedDpEvent(step, target.steps)

    return float(
        dp_accounting.calibrate_dp_mechanism(PLDAccountant, event, target.epsilon, target.delta)
    )


CONTENDERS: dict[str, Answer] = {
    "ours, planning": lambda target: ours(target, certified=False),
    "ours, certified": lambda target: ours(target, certified=True),
    "opacus, rdp": lambda target: by_opacus(target, accountant="rdp"),
    "opacus, prv": lambda target: by_opacus(target, accountant="prv"),
    "dp_accounting, pld": by_dp_accounting,
}
BASELINE = "ours, planning"


class Contender:
    """A process that answers; replaced when it does not."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._start()

    def _start(self) -> None:
        context = mp.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_answer, args=(self.name, theirs), daemon=True)
        self.process.start()
        self.pipe.recv()  # imports are not part of an answer

    def ask(self, target: Target) -> tuple[float, float] | str:
        """(seconds, noise multiplier), or why there is none."""
        self.pipe.send(target)
        if self.pipe.poll(PATIENCE_SECONDS):
            try:
                return self.pipe.recv()
            except EOFError:
                reason = "died"
        else:
            reason = f"more than {PATIENCE_SECONDS:g} s"
        self.process.kill()
        self._start()
        return reason


def _answer(name: str, pipe: Connection) -> None:
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    answer = CONTENDERS[name]
    answer(Target(0.01, 100, 1.0, 1e-5))
    pipe.send("ready")
    while True:
        try:
            target = pipe.recv()
        except EOFError:  # nobody asks any more
            return
        start = time.perf_counter()
        try:
            sigma = answer(target)
        except Exception as error:  # noqa: BLE001 - a failure is a result
            pipe.send(f"{type(error).__name__}: {str(error)[:60]}")
            continue
        pipe.send((time.perf_counter() - start, sigma))


@dataclass
class Result:
    """What one contender did."""

    seconds: list[float] = field(default_factory=list)
    achieved: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def run(targets: Sequence[Target], peers_every: int) -> dict[str, Result]:
    """Every contender, interleaved; the others on every ``peers_every``-th target."""
    contenders = {name: Contender(name) for name in CONTENDERS}
    results = {name: Result() for name in CONTENDERS}
    for number, target in enumerate(targets, 1):
        for name, contender in contenders.items():
            if not name.startswith("ours") and (number - 1) % peers_every:
                continue
            answer = contender.ask(target)
            if isinstance(answer, str):
                results[name].failures.append(answer)
                continue
            seconds, sigma = answer
            results[name].seconds.append(seconds)
            results[name].achieved.append(_achieved(target, sigma))
        print(f"\r{number}/{len(targets)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return results


def _achieved(target: Target, sigma: float) -> float:
    """The exact epsilon over the target; NaN where even the referee fails."""
    mechanism = Mechanism(
        sampling_rate=target.sampling_rate,
        noise_multiplier=sigma,
        clip_norm=1.0,
        steps=target.steps,
    )
    try:
        return price([mechanism], delta=target.delta).epsilon / target.epsilon
    except AccountantError:
        return math.nan


def rows_of(results: dict[str, Result]) -> list[dict[str, Any]]:
    """One row per figure, for scripts."""
    rows: list[dict[str, Any]] = []
    base = float(np.median(results[BASELINE].seconds))
    for name, result in results.items():
        if result.seconds:
            for label, quantile in (("median", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)):
                value = float(np.quantile(result.seconds, quantile)) * 1000
                rows.append(row(f"{name}: {label}", value, "ms"))
            rows[-4] |= {
                "versus": BASELINE,
                "ratio": float(np.median(result.seconds)) / base,
            }
            for label, value in (
                ("least epsilon over target", np.nanmin(result.achieved)),
                ("median epsilon over target", np.nanmedian(result.achieved)),
                ("greatest epsilon over target", np.nanmax(result.achieved)),
            ):
                rows.append(row(f"{name}: {label}", float(value), "1"))
        rows.append(row(f"{name}: failures", len(result.failures), "targets"))
    return rows


def show(results: dict[str, Result], count: int) -> None:
    """The table for people."""
    versions = ", ".join(f"{each} {metadata.version(each)}" for each in ("dp-accounting", "opacus"))
    print(f"{count} targets; {circumstances()}; {versions}\n")
    head = (
        "calibration",
        "targets",
        "median ms",
        "p90",
        "p99",
        "max",
        "ratio",
        "epsilon/target",
        "failed",
    )
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    base = float(np.median(results[BASELINE].seconds))
    for name, result in results.items():
        if not result.seconds:
            print(f"| {name} |" + " - |" * 7 + f" {len(result.failures)} |")
            continue
        times = [1000 * float(np.quantile(result.seconds, q)) for q in (0.5, 0.9, 0.99, 1.0)]
        landed = f"{np.nanmin(result.achieved):.4f} to {np.nanmax(result.achieved):.4f}"
        cells = [
            name,
            str(len(result.seconds)),
            *(f"{value:.1f}" for value in times),
            f"{float(np.median(result.seconds)) / base:.1f}",
            landed,
            str(len(result.failures)),
        ]
        print("| " + " | ".join(cells) + " |")
    for name, result in results.items():
        for reason in sorted(set(result.failures)):
            print(f"\n{name}, {result.failures.count(reason)} times: {reason}")


def main() -> None:
    """Run, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few targets, within a minute")
    parser.add_argument("--json", type=Path, help="also write rows for scripts to this file")
    parser.add_argument("--targets", type=int, help=f"how many; default {TARGETS}")
    parser.add_argument("--peers-every", type=int, default=PEERS_EVERY)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    count = options.targets or (QUICK_TARGETS if options.quick else TARGETS)
    results = run(realistic_targets(count, options.seed), options.peers_every)
    show(results, count)
    if options.json:
        options.json.write_text(json.dumps(rows_of(results), indent=1) + "\n")


if __name__ == "__main__":
    main()

"""What a private run gains by ranks, and whether it grows.

    python benchmarks/ranks.py [--quick] [--json FILE]

Whole steps of a private run (cryptographic draws and noise, global Poisson mask, all-reduce of the clipped
sum, noise once, update) by two ranks of one thread each over gloo, against one rank of two threads; the same
mechanism, the same data. The two ranks send the sum beside the work, as runs do, or *wait* for each piece of it.
Wall-clock, so it wants a quiet machine. All take turns; a figure is the median over the rounds. *Grown*: what the
peak memory of a rank rose by in the second half of its steps. *Model*: what docs/scale.md expects of R ranks of
one thread, (T + (R - 1) F) / min(R, cores) + A: T the step of one such rank, F one of a single example expected (the
draw, the noise and the update that each rank makes for itself), A an all-reduce of as many numbers.

Over loopback a sum costs next to nothing. Root can have a slower link in a network of its own:

    unshare --net sh -c 'ip link set lo up && tc qdisc add dev lo root tbf rate 1gbit burst 1mb latency 1s && \
        python benchmarks/ranks.py --link 1gbit'
"""

import argparse
import json
import os
import socket
import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from _processes import waiting
from _report import circumstances, row
from engine import CNN, WRN, Workload, peak_kb
from simulations import NUM_EXAMPLES, split

from tan_core.engine import Trainer
from tan_core.engine.memory import keep_freed_memory
from tan_core.engine.randomness import PrivateRandomness
from tan_core.execution import PrivateRun
from tan_core.mechanism import Mechanism
from tan_core.spec.train import TrainerConfig

LOADS = [Workload(*CNN, 4096), Workload(*WRN, 64, microbatch_size=16)]
FIXED = [replace(load, examples=1) for load in LOADS]
KEY = bytes(range(32))
ROUNDS, QUICK_ROUNDS = 9, 3
SECONDS_AT_ONCE = 2.0
WARM_UP = 3
SUMS = 20
CONFIG = TrainerConfig(learning_rate=1e-6)


def trainer_of(
    load: Workload, rank: int, size: int, config: TrainerConfig = CONFIG, *, waits: bool = False
) -> Trainer:
    """One rank's part of a private run without end."""
    inputs, labels = split(load)
    mechanism = Mechanism(
        sampling_rate=load.examples / NUM_EXAMPLES, noise_multiplier=1.0, clip_norm=1.0, steps=10**6
    )
    return Trainer(
        model=load.build(),
        execution=PrivateRun(mechanism=mechanism, num_examples=NUM_EXAMPLES),
        config=config,
        inputs=inputs,
        labels=labels,
        randomness=PrivateRandomness(KEY, 1),
        microbatch_size=load.microbatch_size,
        rank=rank,
        world_size=size,
        all_reduce=partial(dist.all_reduce, async_op=not waits) if size > 1 else None,
    )


def serve(connection: Connection, own: "Team", rank: int, port: int) -> None:
    """A rank that makes steps, or sums alone, when told how many, until it is told None."""
    torch.set_num_threads(own.threads)
    keep_freed_memory()
    if own.ranks > 1:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        dist.init_process_group("gloo", rank=rank, world_size=own.ranks)
    trainers: dict[int, Trainer] = {}
    while (order := connection.recv()) is not None:
        index, number, sums_only = order
        if index not in trainers:
            trainers.clear()
            load = [*LOADS, *FIXED][index]
            trainers[index] = trainer_of(load, rank, own.ranks, waits=own.waits)
        whole = torch.zeros_like(trainers[index].released, dtype=torch.float64)
        for _ in range(number):
            if sums_only:
                dist.all_reduce(whole)
            else:
                trainers[index].step()
        connection.send(peak_kb() / 1024)
    if own.ranks > 1:
        dist.destroy_process_group()


@dataclass(frozen=True)
class Team:
    """Ranks that make the steps of one run."""

    name: str
    ranks: int
    threads: int = 1
    waits: bool = False

    def started(self) -> AbstractContextManager[list[Connection]]:
        """They wait for orders."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        return waiting(serve, [(self, rank, port) for rank in range(self.ranks)])


BASE = Team("1 rank of 2 threads", 1, threads=2)
ALONE = Team("1 rank of 1 thread", 1)
TEAMS = (
    BASE,
    ALONE,
    Team("2 ranks of 1 thread", 2),
    Team("2 ranks that wait", 2, waits=True),
    Team("4 ranks of 1 thread", 4),
)


def together(
    ranks: list[Connection], index: int, number: int, *, sums_only: bool = False
) -> tuple[float, float]:
    """Seconds until all have made their steps, and the peak memory of the largest, in MB."""
    start = time.perf_counter()
    for connection in ranks:
        connection.send((index, number, sums_only))
    peak = max(connection.recv() for connection in ranks)
    return time.perf_counter() - start, peak


def measured(index: int, rounds: int) -> list[dict[str, Any]]:
    """One workload by all teams."""
    load = LOADS[index]
    seconds: dict[Team, list[float]] = {}
    sums: dict[Team, list[float]] = {}
    before: dict[Team, float] = {}
    grown: dict[Team, float] = {}
    with ExitStack() as stack:
        teams = {team: stack.enter_context(team.started()) for team in TEAMS}
        numbers: dict[Team, int] = {}
        for team, ranks in teams.items():
            together(ranks, index, WARM_UP)
            taken, _ = together(ranks, index, WARM_UP)
            numbers[team] = max(1, round(SECONDS_AT_ONCE * WARM_UP / taken))
        order = np.random.default_rng(0)
        for number in range(rounds):
            for at in order.permutation(len(TEAMS)):
                team = TEAMS[at]
                taken, peak = together(teams[team], index, numbers[team])
                seconds.setdefault(team, []).append(taken / numbers[team])
                if number <= rounds // 2:
                    before[team] = peak
                grown[team] = peak - before[team]
                if team.ranks > 1:
                    taken, _ = together(teams[team], index, SUMS, sums_only=True)
                    sums.setdefault(team, []).append(taken / SUMS)
        together(teams[ALONE], index + len(LOADS), SUMS)
        fixed = together(teams[ALONE], index + len(LOADS), SUMS)[0] / SUMS
    steps = {team: float(np.median(each)) for team, each in seconds.items()}
    cores = len(os.sched_getaffinity(0))
    rows: list[dict[str, Any]] = []
    for team in TEAMS:
        speed, ratio = load.examples / steps[team], steps[BASE] / steps[team]
        cell = ""
        if team.threads == 1 and not team.waits:
            alone = float(np.median(sums.get(team, [0.0])))
            made = steps[ALONE] + (team.ranks - 1) * fixed
            expected = load.examples / (made / min(team.ranks, cores) + alone)
            cell = f"{expected:,.0f} ({1000 * fixed:.1f}, {1000 * alone:.1f} ms)"
            rows.append(row(f"{load.name}: {team.name}: model", expected, "examples/s"))
        name = f"{load.name}: {team.name}"
        print(
            f"| {name} | {speed:,.0f} | {ratio:.2f} | {cell} | {grown[team]:.0f} MB |", flush=True
        )
        rows.append(row(name, speed, "examples/s", BASE.name, ratio))
        rows.append(row(f"{name}: memory grown", grown[team], "MB"))
    return rows


def main() -> None:
    """Run, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--json", type=Path, help="also write rows for scripts to this file")
    parser.add_argument("--link", default="loopback", help="what lies between the ranks; only said")
    options = parser.parse_args()
    # As in the processes of a run: what waits sleeps.
    os.environ["GOMP_SPINCOUNT"] = "0"
    print(f"torch {torch.__version__}, {options.link}; {circumstances()}\n")
    print(f"| steps of a private run | examples/s | of {BASE.name} | model (F, A) | grown |")
    print("| --- | --- | --- | --- | --- |")
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    rows = [each for index in range(len(LOADS)) for each in measured(index, rounds)]
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

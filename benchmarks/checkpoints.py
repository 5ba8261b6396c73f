"""What checkpoints take of a private run, waited for and on their way.

    python benchmarks/checkpoints.py [--quick] [--json FILE] [--folder FOLDER]

wrn-16-4 with momentum and averaged weights, B = 64, two ranks of one thread over gloo, a checkpoint every four
steps: the loop and the leader of a private run, charging and reporting over HTTP to a stand-in that answers at
once. *Waited for*: the next segment begins once the checkpoint is durable and reported. *On its way*: the
product's own. *None* writes nothing. The three take turns; a figure is the median over the rounds. ``FOLDER`` is
on the storage to be measured.
"""

import argparse
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from _processes import waiting
from _report import circumstances, row
from engine import WRN, Workload
from pydantic import SecretStr
from ranks import trainer_of
from simulations import split

from tan_core.engine import Trainer
from tan_core.engine.memory import keep_freed_memory
from tan_core.spec.train import TrainerConfig
from tan_core.wire import HeartbeatReply, PrivateAssignment, SegmentGrant, SegmentRequest
from worker.leader import Leader
from worker.selftest.rig import Setup
from worker.settings import WorkerSettings
from worker.train_loop import Team, run_segments

LOAD = Workload(*WRN, 64, microbatch_size=16)
CONFIG = TrainerConfig(learning_rate=1e-6, momentum=0.9, ema_decay=0.999)
RANKS = 2
SEGMENT_STEPS, SEGMENTS = 4, 3
ROUNDS, QUICK_ROUNDS = 5, 1


class StandIn(ThreadingHTTPServer):
    """A control plane that grants so many steps, and takes down everything."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.steps_left = 0


class Answers(BaseHTTPRequestHandler):
    """What it says."""

    protocol_version = "HTTP/1.1"
    server: StandIn

    def do_POST(self) -> None:
        """Heartbeats, charges and checkpoints."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        reply = ""
        if self.path.endswith("/heartbeat"):
            reply = HeartbeatReply(desired="run").model_dump_json()
        elif self.path.endswith("/segments"):
            asked = SegmentRequest.model_validate_json(body)
            granted = min(asked.num_steps, self.server.steps_left)
            self.server.steps_left -= granted
            reply = SegmentGrant(segment=asked.start_step, num_steps=granted).model_dump_json()
        self.send_response(200 if reply else 204)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class TimedLeader(Leader):
    """Rank 0's line to the stand-in; it knows how long the run stood still for checkpoints."""

    kind = "on its way"
    seconds = 0.0

    def close_segment(self, segment: int, trainer: Trainer) -> None:
        """As told: not at all, with or without waiting."""
        start = time.perf_counter()
        if self.kind != "none":
            super().close_segment(segment, trainer)
        if self.kind == "waited for":
            self.settle()
        self.seconds += time.perf_counter() - start


class Pair(Team):
    """This rank of two, without Ray."""

    def __init__(self, rank: int) -> None:
        self.rank, self.size, self.threads = rank, RANKS, 1
        self.device = torch.device("cpu")


def serve(connection: Connection, rank: int, port: int, url: str, folder: str) -> None:
    """A rank that trains until no more steps are granted, each time it is told how."""
    torch.set_num_threads(1)
    keep_freed_memory()
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    trainer, assignment = trainer_of(LOAD, rank, RANKS, CONFIG), assignment_of(folder)
    settings = WorkerSettings(api_url=url, run_id="r", fence=1, run_token=SecretStr("t"))
    with ExitStack() as stack:
        leader = TimedLeader(assignment, settings, stack) if rank == 0 else None
        while (kind := connection.recv()) is not None:
            dist.barrier()
            start, blocked = time.perf_counter(), 0.0
            if leader is not None:
                leader.kind, leader.seconds = kind, 0.0
            run_segments(trainer, assignment, Pair(rank), leader)
            if leader is not None:
                leader.settle()
                blocked = leader.seconds
            connection.send((time.perf_counter() - start, blocked))
    dist.destroy_process_group()


def assignment_of(folder: str) -> PrivateAssignment:
    """Of a run whose checkpoints lie in ``folder``."""
    inputs, labels = split(LOAD)
    setup = Setup(
        mechanism=trainer_of(LOAD, 0, 1, CONFIG).mechanism,
        model={"name": LOAD.model},
        inputs=inputs.numpy(),
        labels=labels.numpy(),
        num_classes=LOAD.num_classes,
        segment_steps=SEGMENT_STEPS,
    )
    return setup.assignment(attempt=1, workers=RANKS, folder=Path(folder))


@contextmanager
def stand_in() -> Generator[StandIn]:
    """A control plane on this machine."""
    server = StandIn()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def measured(rounds: int, folder: str) -> list[dict[str, Any]]:
    """Seconds of a run of three segments, and for how many of them it stood still for checkpoints."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    kinds = ("none", "waited for", "on its way")
    taken: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    with stand_in() as control:
        url = f"http://127.0.0.1:{control.server_address[1]}"
        arguments = [(rank, port, url, folder) for rank in range(RANKS)]
        with waiting(serve, arguments) as ranks:
            order = np.random.default_rng(0)
            for number in range(rounds + 1):
                for kind in order.permutation(kinds):
                    control.steps_left = SEGMENTS * SEGMENT_STEPS
                    for rank in ranks:
                        rank.send(str(kind))
                    leader, _ = [rank.recv() for rank in ranks]
                    if number > 0:  # the first round warms up
                        taken[kind].append(leader)
    rows: list[dict[str, Any]] = []
    for kind in kinds:
        total, blocked = np.median(np.array(taken[kind]), 0)
        print(
            f"| {kind} | {total / SEGMENTS:.2f} s | {1000 * blocked / SEGMENTS:.0f} ms "
            f"| {100 * blocked / total:.1f} % |",
            flush=True,
        )
        rows.append(row(f"{kind}: seconds of a segment", total / SEGMENTS, "s"))
        rows.append(row(f"{kind}: share of the run", blocked / total, ""))
    return rows


def main() -> None:
    """Run, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--json", type=Path, help="also write rows for scripts to this file")
    parser.add_argument("--folder", type=Path, help="where the checkpoints go")
    options = parser.parse_args()
    print(f"torch {torch.__version__}; {circumstances()}\n")
    print(f"| checkpoints | a segment of {SEGMENT_STEPS} steps | of it at a standstill | share |")
    print("| --- | --- | --- | --- |")
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        rows = measured(rounds, folder)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""A study's search without a service: the worker's own code on a Ray of one core, reports in memory."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _search_tasks import Params, Task
from pydantic import SecretStr

from service.local.ray_head import free_port
from tan_core.execution import PrivateRun
from tan_core.wire import (
    HeartbeatReply,
    MechanismMessage,
    SearchAssignment,
    TrialRecord,
    TrialState,
)
from worker.driver import Driver
from worker.report import Heartbeats
from worker.settings import WorkerSettings, quieten_ray

_START_SECONDS = 120


class Reports:
    """A control plane as far as a search needs one."""

    def __init__(self) -> None:
        self.trials: dict[int, TrialRecord] = {}

    def report_trial(self, trial: TrialRecord) -> None:
        """Keep the newest record of a trial."""
        self.trials[trial.number] = trial

    def heartbeat(self, **progress: Any) -> HeartbeatReply:
        """Nobody cancels."""
        return HeartbeatReply(desired="run")


def assignment(
    task: Task, reference: PrivateRun, *, seed: int, given: Iterable[Params]
) -> SearchAssignment:
    """The search of a study; ``given`` are trials that it has to begin with."""
    study, plan = task.study(seed), task.plan()
    private_run = task.batch_size * task.steps
    return SearchAssignment(
        run_id=f"{study.name}-{seed}",
        study_id=study.name,
        study_name=study.name,
        attempt=1,
        fence=1,
        search=study.search,
        model=task.spec,
        trainer=study.train.trainer(),
        reference=MechanismMessage(event=reference.mechanism.to_json()),
        target=None,
        num_examples=reference.num_examples,
        rungs=plan.rungs,
        max_examples=round(study.search.budget * private_run),
        dataset=task.ref,
        trials=[
            TrialRecord(number=number, state=TrialState.INTERRUPTED, params=params)
            for number, params in enumerate(given)
        ],
    )


def searched(work: SearchAssignment, cache_dir: Path) -> dict[str, Any]:
    """Run it; every trial's record and the seconds by the clock on the wall."""
    quieten_ray()
    # Ray reads the environment when it is imported.
    import ray

    from worker.search import search

    reports: Any = Reports()
    settings = WorkerSettings(
        api_url="", run_id=work.run_id, fence=1, run_token=SecretStr(""), cache_dir=cache_dir
    )
    driver = Driver(settings=settings, control=reports, heartbeats=Heartbeats(reports))
    started = time.perf_counter()
    outcome = search(work, driver)
    seconds = time.perf_counter() - started
    ray.shutdown()
    if outcome.outcome != "succeeded":
        raise SystemExit(f"{work.run_id}: {outcome.reason}")
    trials = sorted(reports.trials.values(), key=lambda trial: trial.number)
    return {"seconds": seconds, "trials": [trial.model_dump(mode="json") for trial in trials]}


@contextmanager
def ray_head() -> Generator[None]:
    """A Ray of one core on the loopback, and the environment to join it."""
    port = free_port()
    command = [
        str(Path(sys.executable).with_name("ray")), "start", "--head", "--block",
        "--disable-usage-stats", "--node-ip-address=127.0.0.1", f"--port={port}",
        "--include-dashboard=false", f"--dashboard-agent-listen-port={free_port()}",
        f"--dashboard-agent-grpc-port={free_port()}", "--num-cpus=1", "--num-gpus=0",
    ]  # fmt: skip
    os.environ |= {
        "RAY_AUTH_MODE": "disabled",
        "RAY_ADDRESS": f"127.0.0.1:{port}",
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
        "OMP_NUM_THREADS": "1",
    }
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as home:
        head = subprocess.Popen(
            [*command, f"--temp-dir={home}"],
            env={key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_for(port, head)
            yield
        finally:
            head.terminate()
            head.wait()


def _wait_for(port: int, head: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and head.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit("Ray did not start")

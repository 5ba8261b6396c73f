"""A thousand searches that report: what the control plane bears.

    python benchmarks/drivers.py [--quick] [--json FILE] [--drivers N] [--trial-seconds T] [--api-workers N]

1,000 studies under way in an embedded PostgreSQL, each with a driver and ten running trials (``--quick``: 100
studies). Each driver is a coroutine with a connection of its own that speaks the wire's language to the real
API, which runs in processes of its own (``--api-workers``): a heartbeat every two seconds or as seldom as it
is asked to, and for every trial a report at its beginning, at each of three rungs and at its end, one report
after another. An orchestrator, a process too, looks after all studies; its cluster is a stand-in that calls every job running. Drivers, API, orchestrator and PostgreSQL
share the machine. Latency counts from when a message was due. At the end every report is looked for in the
database: one that is not there is lost. Drivers begin within ten seconds. Before all that one driver alone says what drivers say, message after
message: what one costs in processor time hardly depends on what else the machine does.
"""

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import psycopg
import uvloop
from _load import Answers
from _report import circumstances, row
from api import one_study, served
from pydantic import SecretStr

from service.auth.secrets import run_token, server_secret
from service.db.clock import clock
from service.db.embedded import APP, EmbeddedPostgres
from service.db.migrate import upgrade
from service.db.session import Database
from service.orchestrator import claims
from service.orchestrator.launcher import Job, JobInfo, JobStatus
from service.orchestrator.reconcile import Reconciler
from service.settings import Settings
from tan_core.wire import HEARTBEAT_PAUSE
from worker.report import HEARTBEAT_SECONDS

DRIVERS, RUNNING, RUNGS = 1000, 10, 3
TRIAL_SECONDS = 300.0
SECONDS = 60.0
JOINING = 10.0
"""Seconds within which the drivers begin, each at its own time: no cluster starts a thousand at once."""
ALONE = 500
"""Messages of each kind, of one driver alone."""
LEASE = timedelta(seconds=15)
GOALS = {"report p99": 250.0, "lost reports": 0.0, "orchestrator": 1.0}

COPIES = """
INSERT INTO study
SELECT copy.* FROM study AS s, generate_series(1, %(drivers)s) AS n,
    jsonb_populate_record(s, jsonb_build_object(
        'id', 'd-' || to_char(n, 'FM000000'), 'name', 'driver-' || n, 'state', 'simulating',
        'started_at', now(), 'event_seq', 0, 'reservation_id', NULL)) AS copy
WHERE s.id = %(study)s;
DELETE FROM event WHERE study_id = %(study)s;
UPDATE study SET state = 'cancelled', finished_at = now() WHERE id = %(study)s;
INSERT INTO run (id, study_id, kind, state, assignment)
SELECT id || '-search', id, 'search', 'active', '{}' FROM study WHERE state = 'simulating';
INSERT INTO attempt (run_id, number, state, submission_id, submitted_at, heartbeat_at)
SELECT id, 1, 'live', id || '-a1', now(), now() FROM run;
INSERT INTO trial (study_id, number, state, params, scores, attempt)
SELECT id, k, 'running', '{"learning_rate": 0.5}', '[]', 1
FROM study, generate_series(0, %(running)s - 1) AS k WHERE state = 'simulating';
"""
"""One stored study is copied: whatever columns there are, they hold what the service wrote."""


class Calm:
    """A cluster on which every job runs and says nothing."""

    def __init__(self) -> None:
        self.stopped: set[str] = set()

    async def submit(self, job: Job) -> None:
        """Only the successors of drivers that were taken for dead are ever submitted: they say nothing."""

    async def status(self, submission_id: str) -> JobInfo:
        """It runs."""
        return JobInfo(JobStatus.RUNNING, None, None)

    async def stop(self, submission_id: str) -> None:
        """Only a driver that was not heard for too long."""
        self.stopped.add(submission_id)

    async def log(self, submission_id: str) -> str:
        """Silence."""
        return ""


@dataclass
class Told:
    """What the drivers saw."""

    heartbeats: list[float] = field(default_factory=list[float])
    reports: list[float] = field(default_factory=list[float])
    refused: int = 0
    latest: dict[tuple[str, int], tuple[str, int]] = field(
        default_factory=dict[tuple[str, int], tuple[str, int]]
    )
    """By study and trial: the state and the number of scores that was acknowledged last."""


class Connection:
    """One kept-open connection; every answer has a length or no content."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.heartbeat_pause = 0.0
        """As the last answer asked for."""

    async def send(self, method: str, path: str, body: dict[str, object]) -> int:
        """The status of the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        content = json.dumps(body).encode()
        writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n".encode()
            + content
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        self.heartbeat_pause = float(headers.get(HEARTBEAT_PAUSE.lower(), self.heartbeat_pause))
        await reader.readexactly(int(headers.get("content-length", 0)))
        return int(head.split()[1])


async def drive(
    number: int, port: int, secret: bytes, told: Told, until: float, pace: float
) -> None:
    """One driver: heartbeats and reports, each at its time, until the end."""
    study = f"d-{number:06d}"
    connection = Connection(port, run_token(secret, f"{study}-search-a1"))
    base = f"/worker/runs/{study}-search"
    rng = random.Random(number)
    now = time.perf_counter() + JOINING * rng.random()
    beat = now + rng.random() * HEARTBEAT_SECONDS
    step = pace / (RUNGS + 2)  # between two reports of a trial
    # Trials are at different places when the clock starts.
    trials = [
        [now + rng.random() * step, place, rng.randrange(RUNGS + 1)] for place in range(RUNNING)
    ]
    unused = RUNNING
    while True:
        trial = min(trials)
        due = min(beat, trial[0])
        if due > until:
            return
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        if beat <= trial[0]:
            status = await connection.send("POST", f"{base}/heartbeat", {"fence": 1})
            told.heartbeats.append(time.perf_counter() - due)
            told.refused += status != 200
            beat += max(HEARTBEAT_SECONDS, connection.heartbeat_pause)
            continue
        _, name, scores = trial
        is_over = scores > RUNGS
        record = record_of(int(name), min(int(scores), RUNGS), is_over=is_over)
        status = await connection.send(
            "PUT", f"{base}/trials/{name:.0f}", {"fence": 1, "trial": record}
        )
        told.reports.append(time.perf_counter() - due)
        if status == 204:
            told.latest[study, int(name)] = (str(record["state"]), min(int(scores), RUNGS))
        else:
            told.refused += 1  # a real driver would say it again
        trial[0] += step
        if is_over:
            trial[1], trial[2], unused = unused, 0, unused + 1
        else:
            trial[2] = scores + 1


def record_of(number: int, scores: int, *, is_over: bool) -> dict[str, object]:
    """A trial as the wire has it."""
    return {
        "number": number,
        "state": "completed" if is_over else "running",
        "params": {"learning_rate": 0.5},
        "scores": [
            {
                "rung": rung, "seed": 0, "expected_batch_size": 32.0 * 4**rung, "steps": 300,
                "noise_multiplier": 0.6, "accuracy": 0.7 + rung / 100, "train_loss": 0.3, "seconds": 2.4,
            }
            for rung in range(scores)
        ],
        "value": 0.72 if is_over else None,
    }  # fmt: skip


async def orchestrate(database_url: str, home: Path, seconds: float) -> None:
    """What the orchestrator's ticks do, for a time; prints seconds between looks at a study, and of CPU."""
    settings = Settings(home=home, database_url=SecretStr(database_url))
    database = Database(database_url)
    cluster = Calm()
    reconciler = Reconciler(
        settings=settings, database=database, launcher=cluster, worker_url="http://127.0.0.1:1",
        secret=server_secret(home), owner="bench", lease=LEASE,
    )  # fmt: skip
    looks = 0
    begin, burnt = time.monotonic(), time.process_time()
    async with database.session() as session:
        since = await clock(session)
    while time.monotonic() - begin < seconds:
        async with database.session() as session:
            claimed = await claims.claim_open(session, owner="bench", lease=LEASE)
        for study_id in claimed:
            await reconciler.advance(study_id, listening_since=since)
        looks += len(claimed)
        await asyncio.sleep(settings.tick_seconds)
    took = time.monotonic() - begin
    cores = (time.process_time() - burnt) / took
    print(json.dumps({"looks": looks / took, "cores": cores, "dead": len(cluster.stopped)}))
    await database.close()


@asynccontextmanager
async def orchestrator(
    database_url: str, home: Path, seconds: float
) -> AsyncGenerator[dict[str, float]]:
    """A process of its own; what it printed is there when the block has ended."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--orchestrate", database_url, str(home), str(seconds),
        stdout=subprocess.PIPE,
    )  # fmt: skip
    answer: dict[str, float] = {}
    yield answer
    output, _ = await process.communicate()
    answer |= json.loads(output)


@dataclass(frozen=True)
class Plant:
    """What is measured: an API behind one port, and its database."""

    port: int
    api: list[int]
    """Process ids."""
    postgres: int
    database_url: str
    home: Path

    def burnt(self) -> tuple[float, float]:
        """Processor seconds so far: of the API, and of PostgreSQL."""
        return cpu_seconds(self.api), cpu_seconds(family(self.postgres))


async def measure(
    plant: Plant, *, drivers: int, seconds: float, pace: float
) -> tuple[Told, dict[str, float]]:
    """One driver alone, then everybody at work for a time."""
    told = Told()
    secret = server_secret(plant.home)
    costs = await alone(plant, secret)
    async with orchestrator(plant.database_url, plant.home, seconds) as orchestrated:
        before, begin, own = plant.burnt(), time.perf_counter(), time.process_time()
        until = begin + seconds
        await asyncio.gather(
            *(drive(number + 1, plant.port, secret, told, until, pace) for number in range(drivers))
        )
        took = time.perf_counter() - begin
        api, postgres = (
            (after - earlier) / took for after, earlier in zip(plant.burnt(), before, strict=True)
        )
        simulator = (time.process_time() - own) / took
    return told, {
        **orchestrated, **costs, "api": api, "postgres": postgres, "simulator": simulator, "took": took,
    }  # fmt: skip


async def alone(plant: Plant, secret: bytes) -> dict[str, float]:
    """Processor milliseconds of one message, in the API and in PostgreSQL, of a driver that nobody disturbs."""
    connection = Connection(plant.port, run_token(secret, "d-000001-search-a1"))
    base = "/worker/runs/d-000001-search"

    async def beat(_: int) -> None:
        await connection.send("POST", f"{base}/heartbeat", {"fence": 1})

    async def report(count: int) -> None:
        place, scores = divmod(count, RUNGS + 2)
        number = 1000 + place
        record = record_of(number, min(scores, RUNGS), is_over=scores > RUNGS)
        body: dict[str, object] = {"fence": 1, "trial": record}
        await connection.send("PUT", f"{base}/trials/{number}", body)

    costs: dict[str, float] = {}
    for kind, say in (("heartbeat", beat), ("report", report)):
        for count in range(2 * ALONE):
            if count == ALONE:  # what is made once is not the question
                before = plant.burnt()
            await say(count)
        spent = [after - earlier for after, earlier in zip(plant.burnt(), before, strict=True)]
        costs[f"{kind}, API"], costs[f"{kind}, PostgreSQL"] = (
            each * 1000 / ALONE for each in spent
        )
    return costs


def family(pid: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def cpu_seconds(pids: list[int]) -> float:
    """Of these processes so far and of their children that have ended, as Linux tells it."""
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(sum(map(int, fields[11:15])) for fields in stats) / 100


def lost(owner_url: str, told: Told) -> int:
    """Acknowledged reports that the database does not have."""
    with psycopg.connect(owner_url) as connection:
        stored = {
            (study, number): (state, scores)
            for study, number, state, scores in connection.execute(
                "SELECT study_id, number, state, jsonb_array_length(scores) FROM trial"
            )
        }
    return sum(stored.get(key) != said for key, said in told.latest.items())


def seed(postgres: EmbeddedPostgres, home: Path, drivers: int) -> None:
    """Studies under way."""
    upgrade(postgres.url_owner, APP)
    study = asyncio.run(one_study(Settings(home=home, database_url=SecretStr(postgres.url_app))))
    with psycopg.connect(postgres.url_owner, autocommit=True) as connection:
        given = {"drivers": drivers, "running": RUNNING, "study": study}
        for statement in COPIES.split(";\n"):
            if statement.strip():
                connection.execute(statement.encode(), given)
        connection.execute("VACUUM ANALYZE")


def main() -> None:
    """Measure, print, and write what was asked for."""
    if sys.argv[1:2] == ["--orchestrate"]:
        asyncio.run(orchestrate(sys.argv[2], Path(sys.argv[3]), float(sys.argv[4])))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="100 drivers, 15 seconds")
    parser.add_argument("--drivers", type=int, help="how many")
    parser.add_argument("--trial-seconds", type=float, default=TRIAL_SECONDS, help="of one trial")
    parser.add_argument("--api-workers", type=int, default=1, help="processes behind one port")
    parser.add_argument("--json", type=Path, help="write rows for scripts")
    arguments = parser.parse_args()
    workers: int = arguments.api_workers
    drivers = arguments.drivers or (100 if arguments.quick else DRIVERS)
    seconds = 15.0 if arguments.quick else SECONDS
    with (
        tempfile.TemporaryDirectory(prefix="tan-bench-") as folder,
        EmbeddedPostgres(Path(folder)) as postgres,
    ):
        home = Path(folder)
        seed(postgres, home, drivers)
        with served(postgres.url_app, home, workers=workers) as (port, pids, _):
            assert postgres.pid is not None
            plant = Plant(port, pids, postgres.pid, postgres.url_app, home)
            told, cores = uvloop.run(
                measure(plant, drivers=drivers, seconds=seconds, pace=arguments.trial_seconds)
            )
        gone = lost(postgres.url_owner, told)
    print(f"{workers} API processes behind one port" if workers > 1 else "one API process")
    show(told, cores, gone, drivers=drivers, path=arguments.json, pace=arguments.trial_seconds)


def show(
    told: Told, cores: dict[str, float], gone: int, *, drivers: int, path: Path | None, pace: float
) -> None:
    """The table for people, and the rows for scripts."""
    figures = {
        "heartbeats a second": (len(told.heartbeats) / cores["took"], ""),
        "reports a second": (len(told.reports) / cores["took"], ""),
        "heartbeat p50": (statistics.median(told.heartbeats) * 1000, "ms"),
        "heartbeat p99": (Answers(told.heartbeats).quantile(0.99) * 1000, "ms"),
        "report p50": (statistics.median(told.reports) * 1000, "ms"),
        "report p99": (Answers(told.reports).quantile(0.99) * 1000, "ms"),
        "refused": (float(told.refused), ""),
        "drivers taken for dead": (cores["dead"], ""),
        "lost reports": (float(gone), ""),
        "API": (cores["api"], "cores"),
        "orchestrator": (cores["cores"], "cores"),
        "PostgreSQL": (cores["postgres"], "cores"),
        "drivers": (cores["simulator"], "cores"),
        "looks at a study a second": (cores["looks"], ""),
        **{
            f"one {name}": (cores[name], "ms of a core")
            for kind in ("report", "heartbeat")
            for name in (f"{kind}, API", f"{kind}, PostgreSQL")
        },
    }
    print(
        f"{drivers:,} drivers, {drivers * RUNNING:,} running trials of {pace:g} s; {circumstances()}\n\n"
        "| what | measured | goal |\n| --- | --- | --- |"
    )
    for name, (value, unit) in figures.items():
        goal = f"{GOALS[name]:g}" if name in GOALS else ""
        print(f"| {name} | {value:.2f} {unit} | {goal} |")
    if path:
        path.write_text(
            json.dumps(
                [row(name, value, unit) for name, (value, unit) in figures.items()], indent=2
            )
        )


if __name__ == "__main__":
    main()

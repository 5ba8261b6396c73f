"""The API under load, with a database that has seen years of studies.

    python benchmarks/api.py [--quick] [--json FILE] [--keep HOME]

10,000 studies and 1,000,000 trials (a twentieth with ``--quick``) in an embedded PostgreSQL of its own, and
the real API as a process of its own. 200 clients, each on its connection, read random studies at 300
requests a second together for 20 seconds, after two that are not counted; then one client reads list pages and the dashboard's pages in
turn. Client, API and PostgreSQL share the machine. Latencies count from when a request was due, so a
queue is not hidden. Medians of three rounds. ``--keep`` keeps the database in a folder, and takes it from there.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import yaml
from _load import Answers, in_turn, steady
from _report import circumstances, row
from pydantic import SecretStr

from service.app import create_app
from service.datasets.service import ensure_digits
from service.db.embedded import APP, EmbeddedPostgres
from service.db.migrate import upgrade
from service.settings import Settings, bare_environment
from service.studies import service as studies
from tan_core.spec import StudySpec

ROOT = Path(__file__).parents[1]
STUDIES = 10_000
TRIALS_EACH = 100
CLIENTS = 200
PER_SECOND = 300.0
ROUNDS = 3
GOALS = {
    "study p99": 50.0,
    "list page": 200.0,
    "study page": 200.0,
    "start": 2000.0,
    "memory": 300.0,
}

# One stored study is copied: whatever columns there are, they hold what the service wrote.
COPY_STUDIES = """
INSERT INTO study
SELECT copy.* FROM study AS s, generate_series(1, %(studies)s) AS n,
    jsonb_populate_record(s, jsonb_build_object(
        'id', 's-' || to_char(n, 'FM00000000'), 'name', 'load-' || n,
        'state', (ARRAY['completed', 'failed', 'cancelled', 'completed'])[1 + n %% 4],
        'created_at', s.created_at - n * interval '1 minute',
        'started_at', s.created_at - n * interval '1 minute',
        'finished_at', s.created_at - n * interval '30 seconds', 'event_seq', 2
    )) AS copy
WHERE s.id = %(study)s
"""
FILL_TRIALS = """
INSERT INTO trial (study_id, number, state, params, scores, value, attempt, finished_at)
SELECT 's-' || to_char(n, 'FM00000000'), k,
    CASE WHEN k %% 5 < 3 THEN 'completed' ELSE 'pruned' END,
    jsonb_build_object('learning_rate', 0.25 + k / 50.0, 'momentum', 0.9, 'ema_decay', 0.98),
    (SELECT jsonb_agg(%(score)s::jsonb || jsonb_build_object('rung', rung, 'accuracy',
        0.7 + 0.2 * (k %% 97) / 97.0 + rung / 100.0)) FROM generate_series(0, 1) AS rung),
    0.7 + 0.2 * (k %% 97) / 97.0, 1, now()
FROM generate_series(1, %(studies)s) AS n, generate_series(0, %(trials)s - 1) AS k
"""
FILL_RUNS = """
INSERT INTO run (id, study_id, kind, state, assignment)
SELECT id || '-search', id, 'search', 'succeeded', '{}' FROM study WHERE name LIKE 'load-%%'
"""
FILL_EVENTS = """
INSERT INTO event (study_id, seq, kind, data)
SELECT id, seq, 'state', '{"state": "completed"}' FROM study, generate_series(1, 2) AS seq
WHERE name LIKE 'load-%%'
"""
SCORE = {
    "seed": 0, "expected_batch_size": 32.0, "noise_multiplier": 0.6, "steps": 300,
    "train_loss": 0.31, "seconds": 2.4,
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """One measured thing."""

    name: str
    value: float
    unit: str


def main() -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the data, one round")
    parser.add_argument("--json", type=Path, help="write rows for scripts")
    parser.add_argument("--keep", type=Path, help="keep the database in this folder")
    arguments = parser.parse_args()
    num_studies = STUDIES // 20 if arguments.quick else STUDIES
    home = arguments.keep or Path(tempfile.mkdtemp(prefix="tan-bench-"))
    try:
        with EmbeddedPostgres(home) as postgres:
            seed(postgres, home, num_studies)
            figures = measure(
                postgres.url_app, home, num_studies,
                rounds=1 if arguments.quick else ROUNDS, seconds=5 if arguments.quick else 20,
            )  # fmt: skip
    finally:
        if arguments.keep is None:
            shutil.rmtree(home, ignore_errors=True)
    show(figures, num_studies)
    if arguments.json:
        rows = [
            row(each.name, each.value, each.unit, "goal" if each.name in GOALS else None,
                each.value / GOALS[each.name] if each.name in GOALS else None)
            for each in figures
        ]  # fmt: skip
        arguments.json.write_text(json.dumps(rows, indent=2))


def seed(postgres: EmbeddedPostgres, home: Path, num_studies: int) -> None:
    """Fill a fresh database; one that holds so many studies is left as it is."""
    upgrade(postgres.url_owner, APP)
    with psycopg.connect(postgres.url_owner, autocommit=True) as connection:
        stored = connection.execute(
            "SELECT count(*) FROM study WHERE name LIKE 'load-%'"
        ).fetchone()
        if stored == (num_studies,):
            return
        study = asyncio.run(
            one_study(Settings(home=home, database_url=SecretStr(postgres.url_app)))
        )
        start = time.perf_counter()
        given = {
            "studies": num_studies,
            "study": study,
            "trials": TRIALS_EACH,
            "score": json.dumps(SCORE),
        }
        connection.execute("ALTER TABLE event DISABLE TRIGGER event_notify")
        for statement in (COPY_STUDIES, FILL_TRIALS, FILL_RUNS, FILL_EVENTS):
            connection.execute(statement, given)
        connection.execute("ALTER TABLE event ENABLE TRIGGER event_notify")
        connection.execute("VACUUM ANALYZE")
    print(f"seeded in {time.perf_counter() - start:.0f} s", file=sys.stderr)


async def one_study(settings: Settings) -> str:
    """The id of a study of the digits, submitted to a fresh database."""
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        await ensure_digits(app.state.context.database)
        spec = yaml.safe_load((ROOT / "examples" / "digits.yaml").read_text())
        view, _ = await studies.submit(app.state.context, StudySpec.model_validate(spec))
    return view.id


def measure(
    database_url: str, home: Path, num_studies: int, *, rounds: int, seconds: float
) -> list[Figure]:
    """Every figure, the median over the rounds."""
    measured: list[dict[str, tuple[float, str]]] = []
    for number in range(rounds):
        with served(database_url, home) as (port, (pid,), started):
            measured.append(
                asyncio.run(_round(port, num_studies, random.Random(number), seconds=seconds))
            )
            measured[-1]["start"] = (started * 1000, "ms")
            measured[-1]["memory"] = (_resident_megabytes(pid), "MB")
    return [
        Figure(name, statistics.median(each[name][0] for each in measured), unit)
        for name, (_, unit) in measured[0].items()
    ]


async def _round(
    port: int, num_studies: int, rng: random.Random, *, seconds: float
) -> dict[str, tuple[float, str]]:
    def some(template: str) -> Callable[[int], str]:
        return lambda _: template.format(f"s-{rng.randint(1, num_studies):08d}")

    async def turns(path: Callable[[int], str]) -> Answers:
        return await in_turn("127.0.0.1", port, [path(number) for number in range(20)])

    # What is made once is not the question: connections to the database, statements, caches.
    await steady(
        "127.0.0.1", port, some("/studies/{}"), clients=CLIENTS, per_second=PER_SECOND, seconds=2.0
    )
    reads = await steady(
        "127.0.0.1", port, some("/studies/{}"),
        clients=CLIENTS, per_second=PER_SECOND, seconds=seconds,
    )  # fmt: skip
    alone = await turns(some("/studies/{}"))
    listed = await turns(lambda _: "/studies?limit=50")
    listed_deep = await turns(lambda _: "/studies?limit=50&state=failed")
    shown = await turns(some("/ui/studies/{}"))
    front = await turns(lambda _: "/")
    scraped = await turns(lambda _: "/metrics")
    return {
        "study p50": (reads.quantile(0.5) * 1000, "ms"),
        "study p99": (reads.quantile(0.99) * 1000, "ms"),
        "reads refused": (reads.refused, "answers"),
        "study alone": (alone.quantile(0.5) * 1000, "ms"),
        "list": (listed.quantile(0.5) * 1000, "ms"),
        "list, failed only": (listed_deep.quantile(0.5) * 1000, "ms"),
        "list page": (front.quantile(0.5) * 1000, "ms"),
        "study page": (shown.quantile(0.5) * 1000, "ms"),
        "metrics": (scraped.quantile(0.5) * 1000, "ms"),
    }


@contextlib.contextmanager
def served(
    database_url: str, home: Path, *, workers: int = 1
) -> Iterator[tuple[int, list[int], float]]:
    """The API's port, the ids of its processes, and the seconds from their start to a good answer."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    port, descriptor = listener.getsockname()[1], listener.fileno()
    environment: dict[str, Any] = {
        "TAN_HOME": str(home), "TAN_LISTEN_FD": str(descriptor), "TAN_DATABASE_URL": database_url,
        "TAN_RATE_LIMIT": "100000,100000",
    }  # fmt: skip
    start = time.perf_counter()
    with (home / "api.log").open("ab") as log:
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "service.app"],
                env=bare_environment(**environment),
                cwd=ROOT,
                stderr=log,
                pass_fds=(descriptor,),
            )
            for _ in range(workers)
        ]
    try:
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code == 200:
                    break
            if any(process.poll() is not None for process in processes):
                raise SystemExit("the API ended")
            time.sleep(0.01)
        yield port, [process.pid for process in processes], time.perf_counter() - start
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
        listener.close()


def _resident_megabytes(pid: int) -> float:
    """Resident memory of a process, as Linux tells it."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def show(figures: list[Figure], num_studies: int) -> None:
    """The table for people."""
    print(
        f"{num_studies:,} studies, {num_studies * TRIALS_EACH:,} trials; {CLIENTS} clients, "
        f"{PER_SECOND:g} requests/s; {circumstances()}\n"
    )
    print("| what | measured | goal |\n| --- | --- | --- |")
    for each in figures:
        goal = f"{GOALS[each.name]:g} {each.unit}" if each.name in GOALS else ""
        print(f"| {each.name} | {each.value:.0f} {each.unit} | {goal} |")


if __name__ == "__main__":
    main()

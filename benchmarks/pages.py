"""How soon a page of the dashboard is seen and answers: a study of 10,000 trials, in a browser.

    python benchmarks/pages.py [--quick] [--json FILE]

The real API as a process of its own on an embedded PostgreSQL, and Debian's Chromium, which shares the machine
with them. Each round opens each page in a fresh profile with an empty cache, the pages in turn; times are the
browser's own, from the beginning of the navigation. A round that is not counted goes before. Medians of nine
rounds (three with ``--quick``, and a tenth of the trials). Then the planner is asked for 200 settings that it has
not seen, one after the other over one connection, of up to 1.28 million records.
"""

import argparse
import asyncio
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx
import psycopg
from _report import circumstances, row
from api import SCORE, one_study, served
from playwright.sync_api import Browser, Page, sync_playwright
from pydantic import SecretStr

from service.db.embedded import APP, EmbeddedPostgres
from service.db.migrate import upgrade
from service.settings import Settings

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
TRIALS = 10_000
ROUNDS = 9
GOALS = {"study, first view": 300.0, "study, answers": 1000.0, "planner, answers": 100.0}
SETTINGS = 200
BEGIN_SEARCH = """
WITH begun AS (
    UPDATE study SET state = 'simulating', started_at = now() - interval '95 seconds' WHERE id = %(study)s
    RETURNING id
)
INSERT INTO run (id, study_id, kind, state, assignment) SELECT id || '-search', id, 'search', 'active', '{}' FROM begun
"""
FILL_TRIALS = """
INSERT INTO trial (study_id, number, state, params, scores, value, attempt, finished_at)
SELECT %(study)s, k, CASE WHEN climbed = 2 THEN 'completed' ELSE 'pruned' END,
    jsonb_build_object('learning_rate', 0.125 * 32 ^ random(), 'ema_decay', 0.9 + 0.08 * (k %% 2)),
    (SELECT jsonb_agg(%(score)s::jsonb || jsonb_build_object('rung', rung, 'accuracy', share - rung / 100.0,
        'curve', jsonb_build_array(jsonb_build_object('step', 150, 'accuracy', share - 0.1),
            jsonb_build_object('step', 300, 'accuracy', share)))) FROM generate_series(0, climbed - 1) AS rung),
    share - (climbed - 1) / 100.0, 1, now() - (%(trials)s - k) * interval '1 second'
FROM generate_series(0, %(trials)s - 1) AS k, LATERAL (SELECT 0.7 + 0.25 * random() + 0 * k) AS drawn (share),
    LATERAL (SELECT CASE WHEN share > 0.88 THEN 2 ELSE 1 END) AS ladder (climbed)
"""
TIMES = """() => {
  const [page] = performance.getEntriesByType("navigation");
  const [seen] = performance.getEntriesByName("first-contentful-paint");
  return { "first view": seen.startTime, "scripts have run": page.domContentLoadedEventEnd };
}"""
ANSWERED = """async () => {
  const sorted = new Promise((resolve) => addEventListener("htmx:after:swap", resolve, { once: true }));
  document.getElementById("sort-seconds").click();
  await sorted;
  await new Promise(requestAnimationFrame);
  return performance.now();
}"""
"""From the beginning of the navigation: the table was sorted as soon as a script could ask for it."""
DRAWN = """async () => {
  while (!document.querySelector("#history canvas")) await new Promise(requestAnimationFrame);
  return performance.now();
}"""


def main() -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a tenth of the trials, three rounds")
    parser.add_argument("--json", type=Path, help="write rows for scripts")
    arguments = parser.parse_args()
    if not CHROMIUM.exists():
        print(f"{CHROMIUM} is missing: apt-get install chromium", file=sys.stderr)
        return
    trials = TRIALS // 10 if arguments.quick else TRIALS
    home = Path(tempfile.mkdtemp(prefix="tan-bench-"))
    try:
        with EmbeddedPostgres(home) as postgres:
            study = seed(postgres, home, trials)
            with served(postgres.url_app, home) as (port, *_), sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
                url = f"http://127.0.0.1:{port}"
                look(browser, url, study)
                rounds = [
                    look(browser, url, study) for _ in range(3 if arguments.quick else ROUNDS)
                ]
                browser.close()
                answers = planned(url, SETTINGS // 10 if arguments.quick else SETTINGS)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    times = {name: [one[name] for one in rounds] for name in sorted(rounds[0])}
    show(times | {"planner, answers": answers}, trials)
    if arguments.json:
        rows = [row(name, statistics.median(values), "ms") for name, values in times.items()]
        rows.append(row("planner, answers", max(answers), "ms"))
        arguments.json.write_text(json.dumps(rows, indent=2))


def seed(postgres: EmbeddedPostgres, home: Path, trials: int) -> str:
    """The id of a study that simulates, with so many trials."""
    upgrade(postgres.url_owner, APP)
    study = asyncio.run(one_study(Settings(home=home, database_url=SecretStr(postgres.url_app))))
    with psycopg.connect(postgres.url_owner, autocommit=True) as connection:
        given = {"study": study, "trials": trials, "score": json.dumps(SCORE)}
        for statement in (BEGIN_SEARCH, FILL_TRIALS):
            connection.execute(statement, given)
        connection.execute("VACUUM ANALYZE")
    return study


def look(browser: Browser, url: str, study: str) -> dict[str, float]:
    """Milliseconds of everything, once."""
    times: dict[str, float] = {}
    for name, path in (("list", "/"), ("study", f"/ui/studies/{study}"), ("planner", "/ui/plan")):
        context = browser.new_context(viewport={"width": 1280, "height": 900}, base_url=url)
        page = context.new_page()
        page.goto(path, wait_until="load")
        if name == "study":
            times["study, answers"] = page.evaluate(ANSWERED)
            times["study, charts drawn"] = page.evaluate(DRAWN)
        times |= {f"{name}, {what}": value for what, value in seen(page).items()}
        context.close()
    return times


def planned(url: str, count: int) -> list[float]:
    """Milliseconds of answers to dials at random, as the page asks for them."""
    rng = random.Random(7)
    times: list[float] = []
    with httpx.Client(base_url=url, headers={"HX-Request": "true"}) as client:
        client.get("/ui/plan").raise_for_status()
        for _ in range(count):
            dials = {
                "num_examples": rng.choice([4000, 50_000, 60_000, 1_281_167]),
                "epsilon": round(rng.uniform(0.5, 10), 3),
                "delta": rng.choice(["1e-05", "1e-06"]),
                "batch_size": rng.choice([512, 1024, 2000]),
                "steps": rng.randrange(100, 4000),
            }
            begun = time.perf_counter()
            client.get("/ui/plan", params=dials).raise_for_status()
            times.append((time.perf_counter() - begun) * 1000)
    return times


def seen(page: Page) -> dict[str, float]:
    """When the page was painted first, and when its scripts had run."""
    page.wait_for_function("() => performance.getEntriesByName('first-contentful-paint').length")
    return page.evaluate(TIMES)


def show(times: dict[str, list[float]], trials: int) -> None:
    """The table for people."""
    print(f"{trials:,} trials in one study; {circumstances()}\n")
    print("| what | median | least, most | goal |\n| --- | --- | --- | --- |")
    for name, values in times.items():
        goal = f"{GOALS[name]:g} ms" if name in GOALS else ""
        middle = statistics.median(values)
        print(f"| {name} | {middle:.0f} ms | {min(values):.0f}, {max(values):.0f} | {goal} |")


if __name__ == "__main__":
    main()

"""``tan-cli`` against the real API on a real PostgreSQL. Nothing runs the studies here."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from service.app import create_app
from service.client import Client, WaitTimeoutError
from service.datasets.service import ensure_digits
from service.db.session import Database
from service.settings import Settings
from tests.fixtures.postgres import DatabaseUrls
from tests.support.commands import Cli, cli_of

EXAMPLE = "examples/digits.yaml"
NOTE = "search on private data NOT accounted"


@pytest.fixture
def api(
    database_urls: DatabaseUrls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The real application on a free port, with ``digits`` registered as ``tan-cli serve`` does."""
    threads = _in_thread(_register_digits(database_urls.app))
    threads.join()
    settings = Settings(home=tmp_path, database_url=database_urls.app, api_token=None)  # type: ignore[arg-type]
    config = uvicorn.Config(create_app(settings), port=0, log_level="error", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    monkeypatch.setenv("TAN_API_URL", url)
    monkeypatch.delenv("TAN_API_TOKEN", raising=False)
    yield url
    server.should_exit = True
    thread.join(15)


@pytest.fixture
def cli(api: str, capsys: pytest.CaptureFixture[str]) -> Cli:
    return cli_of(capsys)


async def _register_digits(url: str) -> None:
    database = Database(url)
    try:
        await ensure_digits(database)
    finally:
        await database.close()


def _in_thread(coroutine) -> threading.Thread:
    thread = threading.Thread(target=asyncio.run, args=(coroutine,))
    thread.start()
    return thread


def edited(tmp_path: Path, before: str, after: str) -> str:
    """The example with one thing changed."""
    text = Path(EXAMPLE).read_text()
    assert before in text
    path = tmp_path / "edited.yaml"
    path.write_text(text.replace(before, after))
    return str(path)


@pytest.mark.slow
def test_the_first_study_can_be_planned_submitted_listed_shown_and_cancelled(cli: Cli) -> None:
    planned = cli("plan", EXAMPLE)
    assert planned.code == 0, planned.err
    assert "not private" in planned.out

    submitted = json.loads(cli("submit", EXAMPLE, "--json").out)
    assert submitted["state"] == "queued"
    assert submitted["privacy"]["epsilon_reserved"] <= 3.0

    listed = cli("list").out
    assert submitted["id"] in listed
    assert NOTE in listed
    assert NOTE in cli("show", submitted["id"][:8]).out
    assert cli("show", "digits-eps3", "--json").code == 0
    assert cli("statement", submitted["id"]).code == 1
    assert cli("download", submitted["id"]).code == 1
    assert cli("promote", submitted["id"]).code == 1
    assert "being cancelled" in cli("cancel", submitted["id"]).out


def test_what_a_study_reserves_stands_in_the_ledger_and_the_chain_verifies(cli: Cli) -> None:
    study = json.loads(cli("submit", EXAMPLE, "--json").out)
    ledger = cli("ledger", "digits", "--verify")
    assert ledger.code == 0, ledger.err
    assert study["id"] in ledger.out
    assert "the journal is whole" in ledger.out
    assert NOTE in ledger.out
    assert "PLD" in ledger.out


def test_the_same_key_makes_one_study(cli: Cli) -> None:
    ids = {
        json.loads(cli("submit", EXAMPLE, "--json", "--idempotency-key", "k").out)["id"]
        for _ in range(2)
    }
    assert len(ids) == 1


def test_a_study_begins_from_one_that_its_search_can_learn_from(cli: Cli, tmp_path: Path) -> None:
    first = json.loads(cli("submit", EXAMPLE, "--json").out)

    again = cli("submit", "--from", first["id"][:8], "--json")
    assert again.code == 0, again.err
    spec = json.loads(again.out)["spec"]
    warm = {**first["spec"]["search"], "warm_start": [first["id"]]}
    assert spec == {**first["spec"], "search": warm}

    other = edited(tmp_path, "name: mlp\n  hidden: [64]", "name: linear")
    refused = cli("submit", other, "--from", first["id"])
    assert refused.code == 2
    assert "search.warm_start.0" in refused.err
    assert "it is a study of model mlp" in refused.err
    assert len(json.loads(cli("list", "--json").out)) == 2


def test_one_file_is_submitted_at_several_targets_and_faults_are_told_by_what_was_set(
    cli: Cli,
) -> None:
    for epsilon in (1, 2):
        words = (f"privacy.epsilon={epsilon}", f"name=digits-eps{epsilon}")
        done = cli("submit", EXAMPLE, "--set", words[0], "--set", words[1], "--json")
        assert done.code == 0, done.err
        study = json.loads(done.out)
        assert study["name"] == f"digits-eps{epsilon}"
        assert epsilon / 2 < study["privacy"]["epsilon"] <= epsilon

    refused = cli("plan", EXAMPLE, "--set", "search.space.learning_rate.high=-1")
    assert refused.code == 2
    assert "  search.space.learning_rate" in refused.err
    assert "high=-1" in refused.err


def test_a_study_that_nobody_runs_is_waited_for_no_longer_than_asked(cli: Cli, api: str) -> None:
    study = json.loads(cli("submit", EXAMPLE, "--json").out)

    begun = time.monotonic()
    with Client(api) as client:
        with pytest.raises(WaitTimeoutError, match="it is queued"):
            client.wait_study(study["id"], timeout=1)
        assert client.trial_rows(study["id"]) == []
    assert 1 <= time.monotonic() - begun < 10


def test_before_any_search_has_ended_nothing_is_predicted(cli: Cli) -> None:
    study = json.loads(cli("submit", EXAMPLE, "--json").out)

    assert "each study that completes" in cli("calibration", "--dataset", "digits").out
    assert json.loads(cli("calibration", "--json").out)["studies"] == 0
    assert "no trial can be promoted yet" in cli("promote", study["id"], "--list").out
    assert cli("calibration", "--dataset", "no such/name").code == 2


@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        ("epsilon: 3.0", "epsilon: -3.0", "privacy.epsilon"),
        ("delta: 1.0e-5", "delta: 1.5", "privacy.delta"),
        ("trials: 12", "trials: 0", "search.trials"),
        ("dataset: digits", "dataset: nowhere", "dataset"),
        ("workers: 2", "worker: 2", "train.worker"),
        ("declared_unaccounted", "disjoint_split", "search.accounting"),
        ("name: mlp\n  hidden: [64]", "name: gpt", "model.name"),
    ],
)
def test_a_fault_exits_2_with_its_path_and_stores_nothing(
    cli: Cli, tmp_path: Path, before: str, after: str, path: str
) -> None:
    done = cli("submit", edited(tmp_path, before, after))
    assert done.code == 2
    assert done.out == ""
    assert f"  {path.partition('.name')[0]}" in done.err
    assert json.loads(cli("list", "--json").out) == []


def test_a_mode_that_no_study_runs_under_is_not_allowed_for_ever(cli: Cli, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("a,label\n" + "".join(f"{i},{i % 2}\n" for i in range(100)))
    add = ("dataset", "add", "table", "--path", str(table), "--epsilon", "1", "--delta", "1e-5")

    refused = cli(*add, "--allow", "disjoint_split")

    assert refused.code == 2
    for words in ("allow", "disjoint_split", "public_proxy, accounted and declared_unaccounted"):
        assert words in " ".join(refused.err.split())
    assert cli("dataset", "show", "table").code == 1
    assert cli(*add, "--allow", "public_proxy").code == 0


@pytest.mark.slow
def test_over_budget_exits_3_and_stores_nothing(cli: Cli, tmp_path: Path) -> None:
    done = cli("submit", edited(tmp_path, "epsilon: 3.0", "epsilon: 400.0"))
    assert done.code == 3, done.err
    assert json.loads(cli("list", "--json").out) == []


def test_a_dataset_is_registered_shown_and_refused_a_second_time(cli: Cli, tmp_path: Path) -> None:
    table = tmp_path / "train.csv"
    table.write_text("x,y,label\n" + "".join(f"{i},{i % 7},{i % 2}\n" for i in range(200)))
    arguments = [
        "dataset",
        "add",
        "mine",
        "--path",
        str(table),
        "--epsilon",
        "8",
        "--delta",
        "1e-5",
    ]

    added = cli(*arguments)
    assert added.code == 0, added.err
    assert "ε = 8, δ = 1e-05 in total" in added.out
    assert "mine" in cli("dataset", "list").out
    assert cli("dataset", "show", "mine").code == 0
    assert cli(*[word if word != "mine" else "again" for word in arguments]).code == 1
    refused = cli("dataset", "add", "other", "--path", str(tmp_path / "no"), "--public")
    assert refused.code == 2
    assert "path" in refused.err

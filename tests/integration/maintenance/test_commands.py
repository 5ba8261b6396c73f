"""``tan-cli db`` on a real database."""

import json
import re

import pytest

from service.cli.main import run
from service.db.migrate import head_revision
from tests.fixtures.postgres import DatabaseUrls


@pytest.fixture
def urls(empty_database: DatabaseUrls, monkeypatch, tmp_path) -> DatabaseUrls:
    monkeypatch.setenv("TAN_DATABASE_URL", empty_database.app)
    monkeypatch.setenv("TAN_DATABASE_OWNER_URL", empty_database.owner)
    monkeypatch.setenv("TAN_HOME", str(tmp_path / "home"))
    return empty_database


@pytest.mark.slow
def test_from_an_empty_database_to_a_backup(urls, tmp_path, capfd):
    assert run(["db", "status", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["state"] == "empty"
    assert run(["db", "upgrade"]) == 0
    assert f"schema {head_revision()}, needed {head_revision()}: current" in capfd.readouterr().out

    file = tmp_path / "tan.backup"
    assert run(["db", "backup", str(file), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["schema_version"] == head_revision()
    assert run(["db", "restore", str(file)]) == 1
    refusal = capfd.readouterr()
    assert refusal.out == ""
    assert "`--force` replaces all it holds" in refusal.err
    assert "secret" not in refusal.err
    assert run(["db", "restore", str(file), "--force"]) == 0
    assert "0 ledger chains verified\nNext: tan-cli serve" in capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "fault"),
    [("", "x cannot be reached"), ("?sslmod=require", 'URL of a database: invalid URI .*"sslmod"')],
)
def test_an_error_is_one_line_without_a_traceback(monkeypatch, capfd, query, fault):
    monkeypatch.setenv("TAN_DATABASE_URL", f"postgresql://who:hunter2@127.0.0.1:1/x{query}")
    assert run(["db", "status"]) == 1
    said = capfd.readouterr().err
    assert re.search(rf"127.0.0.1:1/.*{fault}", said)
    assert "Traceback" not in said
    assert "hunter2" not in said

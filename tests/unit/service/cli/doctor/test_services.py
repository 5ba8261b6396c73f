"""What the command line talks to, there and away, as ``tan-cli doctor`` says it."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from service.cli.doctor import check, services
from service.cli.settings import ClientSettings
from service.settings import Settings
from tests.unit.service.cli.conftest import Cli
from tests.unit.service.cli.recorded import DATASET, RecordedServer

AWAY = "http://127.0.0.1:1"
REFUSED = {"detail": "no"}


@pytest.fixture
def known(server: RecordedServer) -> ClientSettings:
    server.answers |= {
        "GET /readyz": (200, {"status": "ok"}),
        "GET /healthz": (200, {"status": "ok"}),
        "GET /tokens": (200, {"items": []}),
    }
    return ClientSettings(api_url=server.url, token="t")


class TestApi:
    def test_it_answers_and_the_token_may_do_everything(self, known: ClientSettings) -> None:
        found = services.api(known)
        assert (found.verdict, "everything (admin)" in found.found) == ("ok", True)

    def test_a_token_without_admin_is_good(
        self, known: ClientSettings, server: RecordedServer
    ) -> None:
        server.answers["GET /tokens"] = (403, REFUSED)
        found = services.api(known)
        assert (found.verdict, "not administer" in found.found) == ("ok", True)

    @pytest.mark.parametrize("status", [401, 403])
    def test_a_token_that_is_refused_is_a_failure(
        self, known: ClientSettings, server: RecordedServer, status: int
    ) -> None:
        server.answers["GET /studies"] = (status, REFUSED)
        found = services.api(known)
        assert (found.verdict, "token create" in (found.next or "")) == ("failure", True)

    @pytest.mark.parametrize("token", ["sekret\r", "sékret"])
    def test_a_token_that_cannot_be_sent_is_not_told(
        self, known: ClientSettings, token: str
    ) -> None:
        found = services.api(replace(known, token=token))
        assert found.verdict == "failure"
        assert found.found.startswith("TAN_API_TOKEN holds a character that a header cannot carry")
        assert "kret" not in f"{found.found} {found.next}"
        assert (found.next or "").startswith("export TAN_API_TOKEN=")

    def test_an_api_that_cannot_serve_says_why(
        self, known: ClientSettings, server: RecordedServer
    ) -> None:
        server.answers["GET /readyz"] = (503, {"detail": "the database does not answer"})
        found = services.api(known)
        assert (found.verdict, "the database does not" in found.found) == ("failure", True)

    def test_a_restored_backup_is_told_with_its_way_out(
        self, known: ClientSettings, server: RecordedServer
    ) -> None:
        told = "tan-cli ledger verify digits --accept-restored-backup"
        server.answers["GET /readyz"] = (
            200,
            {"status": "ok", "restored_backup": True, "detail": told},
        )
        found = services.api(known)
        assert (found.verdict, told in found.found) == ("failure", True)

    def test_nobody_there_is_a_failure_only_where_one_was_named(self) -> None:
        assert services.api(ClientSettings(api_url=AWAY)).verdict == "warning"
        assert services.api(ClientSettings(api_url=AWAY, is_stated=True)).verdict == "failure"


class TestClock:
    def test_it_is_compared_with_both(self, known: ClientSettings) -> None:
        found = services.clock(known, lambda: 0.25)
        assert found.verdict == "ok"
        assert "the API differs by" in found.found
        assert "the database differs by +0.2 s" in found.found

    def test_a_clock_that_is_off_is_told(self, known: ClientSettings) -> None:
        assert services.clock(known, lambda: -7200.0).verdict == "warning"

    def test_with_nothing_to_compare_there_is_nothing_to_say(self) -> None:
        assert services.clock(ClientSettings(api_url=AWAY), lambda: None).verdict == "ok"


class TestRay:
    def test_a_cluster_answers_with_its_version(self, server: RecordedServer, tmp_path) -> None:
        server.answers["GET /api/version"] = (200, {"ray_version": services.version("ray")})
        token = tmp_path / "token"
        token.write_text("secret\n")
        stated = Settings(ray_address=server.url, ray_token_path=token)
        assert services.ray(stated).verdict == "ok"
        ((_, headers),) = server.asked("GET /api/version")
        assert headers["authorization"] == "Bearer secret"
        server.answers["GET /api/version"] = (200, {"ray_version": "1.0"})
        assert services.ray(stated).verdict == "warning"

    def test_a_cluster_that_is_away_or_is_none_is_a_failure(self, server: RecordedServer) -> None:
        assert services.ray(Settings(ray_address=AWAY)).verdict == "failure"
        assert services.ray(Settings(ray_address=server.url)).verdict == "failure"

    def test_an_api_needs_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(_: str) -> str:
            raise services.PackageNotFoundError

        monkeypatch.setattr(services, "version", missing)
        assert services.ray(Settings()).verdict == "failure"
        named = SecretStr("postgresql://tan@db/tan")
        assert services.ray(Settings(database_url=named)).verdict == "warning"


class TestWorkers:
    def test_the_api_answers_where_drivers_look(self, server: RecordedServer) -> None:
        server.answers["GET /healthz"] = (200, {"status": "ok"})
        found = services.workers(Settings(worker_url=server.url))
        assert (found.verdict, server.url in found.found) == ("ok", True)

    def test_where_nobody_answers_it_is_told(self) -> None:
        found = services.workers(Settings(worker_url=AWAY))
        assert (found.verdict, AWAY in found.found) == ("warning", True)
        assert "TAN_WORKER_URL" in (found.next or "")

    @pytest.mark.parametrize("stated", [{}, {"worker_url": "http://localhost:8321"}])
    def test_an_address_of_this_machine_alone_is_told(self, stated: dict[str, str]) -> None:
        found = services.workers(Settings(ray_address="http://ray-head:8265", **stated))
        assert (found.verdict, "their own machine" in found.found) == ("warning", True)

    def test_drivers_of_this_machine_find_it(self) -> None:
        assert services.workers(Settings()).verdict == "ok"


class TestData:
    def test_files_of_datasets_are_looked_for(
        self, known: ClientSettings, server: RecordedServer, tmp_path: Path
    ) -> None:
        server.datasets.append({**DATASET, "name": "mine", "path": str(tmp_path)})
        assert services.data(Settings(), known).verdict == "ok"
        server.datasets.append({**DATASET, "name": "gone", "path": str(tmp_path / "gone")})
        found = services.data(Settings(), known)
        assert (found.verdict, "gone" in found.found, "mine" in found.found) == (
            *("failure", True, False),
        )

    def test_a_stated_folder_has_to_be_there(self, tmp_path: Path) -> None:
        away = ClientSettings(api_url=AWAY)
        assert services.data(Settings(data_dir=tmp_path), away).verdict == "ok"
        assert services.data(Settings(data_dir=tmp_path / "no"), away).verdict == "failure"


class TestCommand:
    @pytest.fixture(autouse=True)
    def _alone(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        for name in ("TAN_API_URL", "TAN_DATABASE_URL", "TAN_DATABASE_OWNER_URL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("TAN_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("TAN_PORT", "0")
        # Whatever else this machine has to do meanwhile.
        monkeypatch.setattr(check, "LIMIT_SECONDS", 120)
        monkeypatch.setattr(services, "PROGRAM_SECONDS", 120)

    @pytest.mark.slow
    def test_with_nothing_running_nothing_has_failed_and_nothing_was_made(
        self, cli: Cli, tmp_path: Path
    ) -> None:
        done = cli("doctor", "--json")
        report = json.loads(done.out)
        assert done.code == 0, report
        found = {each["name"]: each for each in report["checks"]}
        assert set(found) == {
            *("settings", "python", "api", "gpu", "kernels", "memory", "database", "clock"),
            *("ray", "workers", "data", "disk", "port", "keys"),
        }
        assert "tan-cli serve" in found["api"]["next"]
        assert "not made yet" in found["database"]["found"]
        assert report["failures"] == 0
        assert not (tmp_path / "home").exists()

    @pytest.mark.slow
    def test_what_failed_comes_with_what_to_do_and_exit_1(
        self, cli: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAN_DATABASE_URL", "postgresql://who:hunter2@127.0.0.1:1/x")
        done = cli("doctor")
        assert done.code == 1
        assert "failure  database" in done.out
        assert "look at TAN_DATABASE_URL" in done.out
        assert "hunter2" not in done.out

    def test_a_setting_that_cannot_be_read_is_named(
        self, cli: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAN_MAX_ATTEMPTS", "many")
        done = cli("doctor")
        assert done.code == 1
        assert "TAN_MAX_ATTEMPTS" in done.out
        assert "memory" in done.out


class TestDatabase:
    @pytest.fixture
    def answer(self, monkeypatch: pytest.MonkeyPatch):
        """Let the process that looks at the database answer so."""

        def set_answer(seen: dict | Exception) -> services.Database:
            def run(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
                if isinstance(seen, Exception):
                    raise seen
                return subprocess.CompletedProcess([], 0, json.dumps(seen), "")

            monkeypatch.setattr(subprocess, "run", run)
            return services.Database()

        return set_answer

    @staticmethod
    def seen(state: str) -> dict:
        database = {"database": "postgresql://x", "postgres": "18", "schema_version": "1"}
        database |= {"needed": "2", "state": state}
        return {"is_made": True, "home": "h", "database": database, "clock_ahead_seconds": 0.5}

    @pytest.mark.parametrize(
        ("state", "verdict", "advice"),
        [
            ("current", "ok", None),
            ("behind", "failure", "db upgrade"),
            ("empty", "failure", "db upgrade"),
            ("newer", "failure", "upgrade this program"),
        ],
    )
    def test_the_schema_has_to_be_the_one_that_is_needed(
        self, answer, state: str, verdict: str, advice: str | None
    ) -> None:
        database = answer(self.seen(state))
        found = database.check()
        assert found.verdict == verdict
        assert (found.next is None) if advice is None else (advice in (found.next or ""))
        assert database.ahead_seconds() == 0.5

    def test_one_that_does_not_answer_holds_up_nobody(
        self, answer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(check.os, "getloadavg", lambda: (0.1, 0.1, 0.1))
        database = answer(subprocess.TimeoutExpired("look", 3.5))
        found = database.check()
        assert (found.verdict, " s" in found.found) == ("failure", True)
        assert database.ahead_seconds() is None

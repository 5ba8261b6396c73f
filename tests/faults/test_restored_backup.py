"""An old backup below a running product: it is refused with a way out, and the way out works."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live import LiveService, digits_study
from tests.support.studies import assert_nothing_was_lost

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.timeout(420),
]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LiveService]:
    live = LiveService(tmp_path / "home").start()
    yield live
    live.stop()


def tan_cli(service: LiveService, *arguments: str) -> str:
    """What a verb of the command line says; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "service.cli.main", *arguments],
        env={**os.environ, "TAN_HOME": str(service.home), "TAN_API_URL": service.url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_refused_with_a_way_out_that_leads_on(service: LiveService, tmp_path: Path) -> None:
    backup = tmp_path / "old.backup"
    tan_cli(service, "db", "backup", str(backup))
    lost = service.submit(digits_study("after-the-backup"))
    left = service.get("/datasets/digits/ledger/export")["head"]
    service.stop()
    tan_cli(service, "db", "restore", str(backup), "--force")

    service.start()
    said = "\n".join(service.lines)
    assert f"has no entry {left['seq']}" in said
    assert "tan-cli ledger verify digits --accept-restored-backup" in said
    refused = service.request_once("POST", "/studies", json=digits_study("too-early"))
    assert (refused.status_code, refused.json()["type"]) == (503, "/problems/restored-backup")

    tan_cli(service, "ledger", "verify", "digits", "--accept-restored-backup", "dpo: disk lost")
    assert service.request("GET", f"/studies/{lost}").status_code == 404
    study = service.complete(service.submit(digits_study("afterwards")))
    assert_nothing_was_lost(service, study, finished_before=[])
    ledger = service.get("/datasets/digits/ledger?entries=1000")
    assert any("dpo: disk lost" in entry["body"] for entry in ledger["entries"])

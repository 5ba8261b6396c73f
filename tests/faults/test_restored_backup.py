"""An old backup below a running product: it is refused with a way out, and the way out works."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tan_core.planner.segments import segment_rule
from tests.support.live import LiveService, digits_study
from tests.support.studies import assert_nothing_was_lost, has_run, segments, training

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


def test_a_private_run_goes_on_from_what_storage_has_and_charges_what_the_backup_lacks(
    service: LiveService, tmp_path: Path
) -> None:
    """The checkpoint that the backup knows was dropped when the next one came."""
    backup = tmp_path / "of-a-run.backup"
    study = training("in-the-middle")
    study["train"]["steps"] = 3000
    study_id = service.submit(study)
    segment = segment_rule(3000).segment_steps
    service.wait(study_id, has_run(1, 2 * segment))  # by then it has a checkpoint
    tan_cli(service, "db", "backup", str(backup))
    known = service.get(f"/studies/{study_id}")["run"]["step"]
    service.wait(study_id, has_run(1, known + 200))
    service.stop()
    tan_cli(service, "db", "restore", str(backup), "--force")
    service.start()
    tan_cli(service, "ledger", "verify", "digits", "--accept-restored-backup", "dpo: disk lost")

    done = service.complete(study_id)

    assert done["run"]["attempt"] == 2
    begun, ended = segments(service, study_id)
    # One charge for all that the backup lacks, where each other one is of a segment.
    assert max(begun.values()) > segment
    assert done["run"]["step"] == sum(begun[number] for number in ended) == 3000
    assert done["privacy"]["charged_steps"] == sum(begun.values())
    assert done["privacy"]["epsilon"] <= 3.0
    assert done["privacy"]["restored_note"]

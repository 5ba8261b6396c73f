"""The benchmark of published results, on the bundled digits: a service, a study, and what is read of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "published.py"


def test_a_study_is_run_and_its_result_is_told(tmp_path: Path) -> None:
    figures = tmp_path / "rows.json"

    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--quick", "--json", str(figures)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "digits-linear-eps3, seed 0: s-" in done.stdout
    (row,) = json.loads(figures.read_text())
    assert row["name"] == "digits-linear-eps3"
    assert 0.7 < row["value"] < 1
    told = next(line for line in done.stdout.splitlines() if line.startswith("| digits"))
    pld, classical = (float(cell) for cell in told.strip("| ").split(" | ")[-2:])
    assert pld <= 3 < classical


def test_an_unknown_row_is_refused_with_those_that_exist() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--only", "mnist-eps3"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 1
    assert "--only mnist-eps3: accepted: mnist-scatter-linear-eps3, " in done.stderr

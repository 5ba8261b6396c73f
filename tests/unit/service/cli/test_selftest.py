"""``tan-cli selftest privacy``: what another process found, as a table, as JSON and as an exit code."""

import json
import stat
import sys
from pathlib import Path

import pytest
from rich.console import Console

from service.cli import selftest
from service.cli.selftest_view import findings as view
from tests.unit.service.cli.conftest import Cli

PASSED = {
    "check": "noise.one_rank",
    "claim": "a step that draws nobody adds noise of sigma C",
    "statistic": "variance over (sigma C)^2",
    "value": 1.0003,
    "low": 0.9919,
    "high": 1.0081,
    "p_value": 0.87,
    "false_alarm": 5e-5,
    "fault": "noise of 0.98 sigma C",
    "power": 0.9996,
    "error": None,
    "passed": True,
}
FAILED = {**PASSED, "value": 0.25, "p_value": 0.0, "passed": False}
UNMADE = {
    **PASSED, "check": "audit", "value": None, "low": None, "high": None, "p_value": None,
    "error": "RuntimeError: no model", "passed": False,
}  # fmt: skip


@pytest.fixture
def process(monkeypatch, tmp_path: Path):
    """Let a script that prints these lines stand for the process of the checks."""

    def stands(*lines: object, code: int = 0) -> Path:
        script, seen = tmp_path / "python", tmp_path / "arguments"
        printed = "\n".join(line if line == "{" else json.dumps(line) for line in lines)
        script.write_text(
            f'#!/bin/sh\necho "$@" > {seen}\ncat <<END\n{printed}\nEND\nexit {code}\n'
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(sys, "executable", str(script))
        return seen

    return stands


def end(num_findings: int, num_failed: int) -> dict[str, int]:
    return {"num_findings": num_findings, "num_failed": num_failed}


class TestPrivacy:
    def test_all_passed_is_exit_code_0_and_a_table(self, cli: Cli, process) -> None:
        process(PASSED, end(1, 0))

        done = cli("selftest", "privacy")

        assert done.code == 0
        assert "noise.one_rank" in done.out
        assert "0.9919 to 1.008" in done.out
        assert "all 1 checks passed" in done.out

    def test_a_failure_is_exit_code_1_and_said_in_words(self, cli: Cli, process) -> None:
        process(PASSED, FAILED, UNMADE, end(3, 2), code=1)

        done = cli("selftest", "privacy")

        assert done.code == 1
        assert "2 of 3 checks failed" in done.out
        assert "variance over (sigma C)^2 is 0.25, accepted 0.9919 to 1.008" in done.out
        assert "audit: RuntimeError: no model" in done.out

    def test_json_is_one_document(self, cli: Cli, process) -> None:
        process(PASSED, FAILED, end(2, 1), code=1)

        done = cli("selftest", "privacy", "--json", "--seed", "7")

        document = json.loads(done.out)
        assert done.code == 1
        assert document["passed"] is False
        assert document["seed"] == 7
        assert document["false_alarm"] == pytest.approx(1e-4)
        assert document["findings"] == [PASSED, FAILED]

    def test_options_reach_the_checks(self, cli: Cli, process) -> None:
        seen = process(PASSED, end(1, 0))

        cli("selftest", "privacy", "--seed", "7", "--quick")

        assert seen.read_text().split() == ["-m", "worker.selftest", "--seed", "7", "--quick"]

    @pytest.mark.parametrize(
        "lines", [[], [PASSED], [end(0, 0)], [PASSED, end(2, 0)], [PASSED, "{"]],
        ids=["nothing", "no-end", "none", "one-lost", "cut"],
    )  # fmt: skip
    def test_what_broke_off_has_not_passed(self, cli: Cli, process, lines) -> None:
        process(*lines, code=1)

        done = cli("selftest", "privacy")

        assert done.code == 1
        assert "passed" not in done.out
        assert "broke off" in done.err

    def test_without_torch_it_says_what_to_install(self, cli: Cli, monkeypatch) -> None:
        monkeypatch.setattr(selftest, "NEEDED", ("json", "no_such_package"))

        done = cli("selftest", "privacy")

        assert done.code == 1
        assert "no_such_package is not installed here" in done.err

    @pytest.mark.statistical
    def test_the_product_passes_and_says_so(self, cli: Cli) -> None:
        done = cli("selftest", "privacy", "--json", "--seed", "0", "--quick")

        document = json.loads(done.out)
        assert done.code == 0
        assert document["passed"] is True
        assert 0 < document["false_alarm"] < 1e-3


class TestView:
    @staticmethod
    def shown(width: int) -> str:
        document = {"findings": [PASSED, FAILED], "passed": False, "false_alarm": 1e-4}
        screen = Console(width=width)
        with screen.capture() as captured:
            screen.print(view(document))
        return captured.get()

    def test_a_power_is_never_rounded_up(self) -> None:
        assert "0.999 " in self.shown(200)

    def test_what_a_power_is_against_is_told_where_there_is_room(self) -> None:
        assert "noise of 0.98 sigma C" in self.shown(110)
        assert "noise of 0.98 sigma C" not in self.shown(80)

    def test_a_narrow_terminal_has_a_line_for_each_check(self) -> None:
        (line,) = [line for line in self.shown(80).splitlines() if "FAILED" in line]

        assert "noise.one_rank" in line
        assert "0.9919 to 1.008" in line

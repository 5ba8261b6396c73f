"""The self-test on the product, and on faults that it must find within a second each."""

import json

import pytest

from tan_core.spec.models import MODEL_TYPES
from tests.privacy_faults import FAULTS, Edit, Fault, StaleFaultError
from worker.selftest import suite
from worker.selftest.__main__ import main
from worker.selftest.finding import FALSE_ALARM
from worker.selftest.sensitivity import models

QUICK = (
    "noise",
    "noise.low_bits",
    "sensitivity.views",
    "sensitivity.bfloat16",
    "sensitivity.mixing",
    "attempts",
)
"""Checks of a second and less."""


def failures(**how) -> list[str]:
    return [finding.check for finding in suite.run(quick=True, **how) if not finding.is_passed]


class TestTheProduct:
    @pytest.mark.slow
    def test_quick_checks_pass(self) -> None:
        assert failures(seed=0, only=QUICK) == []

    @pytest.mark.statistical
    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_all_checks_pass_with_all_but_the_largest_models(self, seed: int) -> None:
        findings = list(suite.run(seed=seed, quick=True))

        assert [finding.check for finding in findings if not finding.is_passed] == []
        assert sum(finding.false_alarm for finding in findings) < 1e-3
        assert min(finding.power for finding in findings) > 0.99

    @pytest.mark.slow
    def test_every_registered_model_is_probed_and_passes(self) -> None:
        findings = list(suite.run(seed=0, only=["sensitivity"]))

        assert [f.check for f in findings] == [f"sensitivity.{name}" for name in MODEL_TYPES]
        assert all(finding.is_passed for finding in findings)

    def test_the_seed_decides_everything(self) -> None:
        first, again, other = (list(suite.run(seed=s, only=["attempts"])) for s in (0, 0, 1))

        assert first == again
        assert first != other

    def test_without_a_seed_nothing_is_twice_the_same(self) -> None:
        first, again = (list(suite.run(only=["attempts"])) for _ in range(2))

        assert first != again

    def test_quickly_the_largest_models_are_left_out_and_no_other(self) -> None:
        assert set(models(quick=False)) == set(MODEL_TYPES)
        assert set(MODEL_TYPES) - set(models(quick=True)) == {
            "wrn-40-4",
            "wrn-28-10",
            "nf-resnet-50",
        }


class TestFaults:
    @pytest.mark.parametrize(
        "fault",
        [
            pytest.param(f, id=f.name, marks=() if set(f.checks) <= set(QUICK) else pytest.mark.statistical)
            for f in FAULTS
            if f.checks
        ],
    )  # fmt: skip
    def test_each_is_measured_by_a_check_that_passes_without_it(self, fault: Fault) -> None:
        with fault.seeded():
            found = list(suite.run(seed=0, only=fault.checks))

        failed = [finding for finding in found if not finding.is_passed]
        assert failed
        assert all(finding.error is None for finding in failed)
        assert all(f.p_value is None or f.p_value < FALSE_ALARM for f in failed)
        assert failures(seed=0, only=fault.checks) == []

    def test_only_without_a_seed_keys_come_from_the_operating_system(self) -> None:
        (fault,) = (fault for fault in FAULTS if fault.name == "a key that is not fresh")

        with fault.seeded():
            unseeded, seeded = (failures(seed=seed, only=["attempts"]) for seed in (None, 0))

        assert unseeded == ["attempts.noise", "attempts.draws"]
        assert seeded == []

    def test_all_that_are_promised_are_there(self) -> None:
        assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 11

    def test_each_one_fits_the_code_of_today(self) -> None:
        for fault in FAULTS:
            with fault.seeded():
                pass

    def test_one_that_fits_no_longer_is_an_error(self) -> None:
        stale = Edit("worker.selftest.suite", "checks", "no such text", "")

        with pytest.raises(StaleFaultError, match="no single 'no such text'"):
            stale.applied("def checks(): ...")


class TestRun:
    def test_a_check_that_cannot_be_made_fails_and_the_others_are_made(self, monkeypatch) -> None:
        def unmade(lab):
            raise RuntimeError("no such thing")
            yield

        monkeypatch.setattr(
            suite, "checks", lambda *, quick: {"first": unmade, "mixing": suite.mixing_models}
        )

        broken, *others = suite.run(seed=0)

        assert (broken.check, broken.is_passed) == ("first", False)
        assert broken.error == "RuntimeError: no such thing"
        assert len(others) == 2
        assert all(finding.is_passed for finding in others)


class TestMain:
    def test_the_last_line_counts_what_was_found(self, monkeypatch, capsys) -> None:
        monkeypatch.setattr(suite, "checks", lambda *, quick: {"mixing": suite.mixing_models})

        code = main(["--seed", "0", "--quick"])

        *findings, end = map(json.loads, capsys.readouterr().out.splitlines())
        assert code == 0
        assert [finding["passed"] for finding in findings] == [True, True]
        assert end == {"num_findings": 2, "num_failed": 0}

    def test_a_fault_is_exit_code_1(self, monkeypatch, capsys) -> None:
        monkeypatch.setattr(suite, "checks", lambda *, quick: {"mixing": suite.mixing_models})
        (fault,) = (fault for fault in FAULTS if fault.name == "BatchNorm let through")

        with fault.seeded():
            code = main(["--seed", "0"])

        assert code == 1
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["num_failed"] == 2

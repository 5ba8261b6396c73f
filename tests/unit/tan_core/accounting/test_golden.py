"""Every accountant against the golden table: published settings, other implementations, oracles."""

import csv
from fractions import Fraction
from pathlib import Path

import pytest

from tan_core.accounting import price
from tan_core.mechanism import Accountant, Mechanism
from tan_core.tan import epsilon_tan, signal_to_noise

TABLE = Path(__file__).parents[3] / "golden" / "accountants.csv"
with TABLE.open(newline="") as _file:
    ALL_ROWS = list(csv.DictReader(_file))


def rows_with(column: str) -> pytest.MarkDecorator:
    """Every row that has a value in a column; the id of the row is the id of the test."""
    rows = [row for row in ALL_ROWS if row[column]]
    return pytest.mark.parametrize("row", rows, ids=[f"row-{row['id']}" for row in rows])


def mechanism_of(row: dict[str, str]) -> Mechanism:
    return Mechanism(
        sampling_rate=float(Fraction(row["sampling_rate"])),
        noise_multiplier=float(row["noise_multiplier"]),
        clip_norm=1.0,
        steps=int(row["steps"]),
    )


class TestGoldenTable:
    @rows_with("pld")
    def test_pld_reproduces_the_reference(self, row: dict[str, str]) -> None:
        expected = float(row["pld"])

        found = price([mechanism_of(row)], delta=float(row["delta"])).epsilon

        assert found == pytest.approx(expected, abs=0.02 if expected > 15 else 0.01)

    @rows_with("pld_low")
    def test_pld_lies_between_both_roundings_of_the_loss(self, row: dict[str, str]) -> None:
        found = price([mechanism_of(row)], delta=float(row["delta"])).epsilon

        assert float(row["pld_low"]) <= found <= float(row["pld_high"])

    @rows_with("rdp_exact")
    def test_rdp_is_a_bound_close_to_the_best_order(self, row: dict[str, str]) -> None:
        exact = float(row["rdp_exact"])

        found = price(
            [mechanism_of(row)], delta=float(row["delta"]), accountant=Accountant.RDP
        ).epsilon

        assert exact - 2e-5 <= found <= exact + 0.01
        if row["rdp"]:
            assert found == pytest.approx(float(row["rdp"]), abs=0.01)

    @rows_with("signal_to_noise")
    def test_the_closed_forms_reproduce_the_paper(self, row: dict[str, str]) -> None:
        run = mechanism_of(row)

        eta = signal_to_noise(
            sampling_rate=run.sampling_rate,
            noise_multiplier=run.noise_multiplier,
            steps=run.steps,
        )

        assert eta == pytest.approx(float(row["signal_to_noise"]), abs=0.0005)
        found = epsilon_tan(signal_to_noise=eta, delta=float(row["delta"]))
        assert found == pytest.approx(float(row["epsilon_tan"]), abs=0.001)

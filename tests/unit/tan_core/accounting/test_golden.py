"""Every accountant against the golden table: published settings, other implementations, oracles."""

import csv
import re
from fractions import Fraction
from pathlib import Path

import pytest

from tan_core.accounting import Conversion, price
from tan_core.accounting.events import sampled_gaussian
from tan_core.accounting.loss_distribution import loss_profile
from tan_core.accounting.pld import pld_excess
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation
from tan_core.tan import epsilon_tan, eta_of

TABLE = Path(__file__).parents[3] / "golden" / "accountants.csv"
with TABLE.open(newline="") as _file:
    ALL_ROWS = list(csv.DictReader(_file))


with TABLE.with_name("compositions.csv").open(newline="") as _file:
    COMPOSITIONS = list(csv.DictReader(_file))


def rows_with(column: str) -> pytest.MarkDecorator:
    """Every row that has a value in a column; the id of the row is the id of the test."""
    rows = [
        pytest.param(row, id=f"row-{row['id']}", marks=[pytest.mark.slow] * _is_long(row))
        for row in ALL_ROWS
        if row[column]
    ]
    return pytest.mark.parametrize("row", rows)


def _is_long(row: dict[str, str]) -> bool:
    """Whether a price takes ten seconds."""
    return int(row["steps"]) > 1_000_000


def mechanism_of(row: dict[str, str]) -> Mechanism:
    return Mechanism(
        sampling_rate=float(Fraction(row["sampling_rate"])),
        noise_multiplier=float(row["noise_multiplier"]),
        clip_norm=1.0,
        steps=int(row["steps"]),
    )


def mechanisms_of(row: dict[str, str]) -> list[Mechanism]:
    """The run, and the unsampled Gaussian releases beside it."""
    count, _, sigma = row["releases"].partition("@")
    releases = [
        Mechanism(sampling_rate=1, noise_multiplier=float(sigma), clip_norm=1.0, steps=int(count))
        for _ in [count]
        if count
    ]
    return [mechanism_of(row), *releases]


def epsilon(row: dict[str, str], accountant: Accountant, **options: Conversion) -> float:
    found = price(mechanisms_of(row), delta=float(row["delta"]), accountant=accountant, **options)
    return found.epsilon


class TestGoldenTable:
    def test_the_table_is_whole(self) -> None:
        assert {int(row["id"].rstrip("b")) for row in ALL_ROWS} == set(range(1, 44))

    @rows_with("pld")
    def test_pld_reproduces_the_reference(self, row: dict[str, str]) -> None:
        expected = float(row["pld"])

        assert epsilon(row, Accountant.PLD) == pytest.approx(
            expected, abs=0.02 if expected > 15 else 0.01
        )

    @rows_with("pld_low")
    def test_pld_lies_between_both_roundings_of_the_loss(self, row: dict[str, str]) -> None:
        assert float(row["pld_low"]) <= epsilon(row, Accountant.PLD) <= float(row["pld_high"])

    @rows_with("pld")
    def test_our_own_loss_distribution_confirms_it(self, row: dict[str, str]) -> None:
        delta = float(row["delta"])
        events = [sampled_gaussian(mechanism) for mechanism in mechanisms_of(row)]

        own = loss_profile([event for event in events if event], delta=delta)

        loose = pld_excess(mechanisms_of(row)).relative + 1e-3
        assert own.epsilon(delta) == pytest.approx(epsilon(row, Accountant.PLD), rel=loose)

    @rows_with("rdp_exact")
    def test_rdp_is_a_bound_close_to_the_best_order(self, row: dict[str, str]) -> None:
        exact, found = float(row["rdp_exact"]), epsilon(row, Accountant.RDP)

        assert exact - 2e-5 <= found <= exact + 0.01
        if row["rdp"]:
            assert found == pytest.approx(float(row["rdp"]), abs=0.01)

    @rows_with("rdp_classical")
    def test_the_classical_conversion_reproduces_what_papers_print(
        self, row: dict[str, str]
    ) -> None:
        found = epsilon(row, Accountant.RDP, conversion=Conversion.CLASSICAL)

        assert found == pytest.approx(float(row["rdp_classical"]), abs=0.01)

    @rows_with("signal_to_noise")
    def test_the_closed_forms_reproduce_the_paper(self, row: dict[str, str]) -> None:
        run = mechanism_of(row)

        eta = eta_of(run)

        assert eta == pytest.approx(float(row["signal_to_noise"]), abs=0.0005)
        found = epsilon_tan(signal_to_noise=eta, delta=float(row["delta"]))
        assert found == pytest.approx(float(row["epsilon_tan"]), abs=0.001)


@pytest.mark.parametrize("row", COMPOSITIONS, ids=[row["id"] for row in COMPOSITIONS])
def test_unlike_steps_and_replaced_units_cost_what_an_oracle_says(row: dict[str, str]) -> None:
    """An upper bound, and above it by the width of its cells alone."""
    runs = [
        Mechanism(
            sampling_rate=float(rate),
            noise_multiplier=float(sigma),
            clip_norm=1.0,
            steps=int(count),
            neighboring_relation=NeighboringRelation(row["relation"]),
        )
        for count, rate, sigma in (re.split("[x@]", part) for part in row["parts"].split())
    ]

    found = price(runs, delta=float(row["delta"])).epsilon

    assert float(row["low"]) <= found <= float(row["high"]) * (1 + 5e-4)

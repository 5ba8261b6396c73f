"""300 random runs against two accountants that nobody here wrote (``random_settings.csv``)."""

import csv
from pathlib import Path

import pytest

from tan_core.accounting import price
from tan_core.accounting.events import sampled_gaussian
from tan_core.accounting.loss_distribution import loss_profile
from tan_core.mechanism import Accountant, Mechanism

TABLE = Path(__file__).parents[3] / "golden" / "random_settings.csv"
with TABLE.open(newline="") as _file:
    ROWS = list(csv.DictReader(_file))

settings = pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row["id"], marks=[pytest.mark.slow] if at % 5 else [])
        for at, row in enumerate(ROWS)
    ],
)
ROUND_OFF = 1e-4


def mechanism_of(row: dict[str, str]) -> Mechanism:
    return Mechanism(
        sampling_rate=float(row["sampling_rate"]),
        noise_multiplier=float(row["noise_multiplier"]),
        clip_norm=1.0,
        steps=int(row["steps"]),
    )


def test_there_are_300_of_them_and_nearly_all_have_an_interval() -> None:
    assert len(ROWS) == 300
    assert sum(bool(row["prv_low"]) for row in ROWS) >= 290


@settings
def test_price_equals_dp_accounting_and_lies_in_the_interval_of_prv_accountant(
    row: dict[str, str],
) -> None:
    found = price([mechanism_of(row)], delta=float(row["delta"])).epsilon

    assert found == pytest.approx(float(row["pld"]), rel=1e-3, abs=ROUND_OFF)
    if row["prv_low"]:
        assert float(row["prv_low"]) <= found <= float(row["prv_high"])


@settings
def test_our_own_loss_distribution_does_too(row: dict[str, str]) -> None:
    delta, event = float(row["delta"]), sampled_gaussian(mechanism_of(row))
    assert event

    found = loss_profile([event], delta=delta).epsilon(delta)

    assert found == pytest.approx(float(row["pld"]), rel=1e-3, abs=ROUND_OFF)
    if row["prv_low"]:
        assert float(row["prv_low"]) <= found <= float(row["prv_high"])


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS[::30], ids=[row["id"] for row in ROWS[::30]])
def test_opacus_prv_is_above_by_two_hundredths_at_most(row: dict[str, str]) -> None:
    run, delta = mechanism_of(row), float(row["delta"])

    by_prv = price([run], delta=delta, accountant=Accountant.PRV).epsilon

    assert float(row["pld"]) - ROUND_OFF <= by_prv <= float(row["pld"]) + 0.02

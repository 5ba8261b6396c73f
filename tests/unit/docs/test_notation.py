"""The notation is that of the code: every name exists where it is said to, every price is had."""

import inspect
import re
from dataclasses import fields
from functools import reduce
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import tan_core
from tan_core import Mechanism, NeighboringRelation, Sampling
from tan_core.accounting import Price, price
from tan_core.accounting.prv import PrvProfile
from tan_core.accounting.rdp import ORDERS
from tan_core.errors import UnsupportedEventError
from tan_core.mechanism import Accountant
from tan_core.tan import Observation, Setting

TEXT = (Path(__file__).parents[3] / "docs" / "notation.md").read_text()


def rows(section: str) -> list[list[str]]:
    """The cells of a section's table, without its head."""
    body = TEXT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in body.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


NAMES = {row[0].strip("`"): re.findall(r"`([\w.]+)`", row[3]) for row in rows("Names")}
PLACES = [(name, place) for name, places in NAMES.items() for place in places]
ACCOUNTANTS = {
    (Sampling(row[0].strip("`")), relation): cell
    for row in rows("Samplings, and who can price them")
    for relation, cell in zip(NeighboringRelation, row[1:], strict=True)
}
SIZES: dict[Sampling, dict[str, int]] = {
    Sampling.TRUNCATED_POISSON: {"num_examples": 1000, "max_batch_size": 200},
    Sampling.FIXED_SIZE: {"num_examples": 1000},
}


def found(place: str) -> Any:
    """What a dotted place below tan_core is; its first part may be a package not yet imported."""
    head, *_ = place.split(".")
    if not hasattr(tan_core, head):
        import_module(f"tan_core.{head}")
    return reduce(getattr, place.split("."), tan_core)


def has(thing: Any, name: str) -> bool:
    return (
        thing.__name__ == name
        or name in inspect.signature(thing).parameters
        or isinstance(getattr(thing, name, None), property)
    )


class TestNames:
    @pytest.mark.parametrize(("name", "place"), PLACES)
    def test_every_name_is_where_the_table_says(self, name: str, place: str) -> None:
        assert has(found(place), name)

    def test_every_name_has_a_place(self) -> None:
        assert [name for name, places in NAMES.items() if not places] == []

    @pytest.mark.parametrize("kind", [Mechanism, Setting, Observation])
    def test_every_field_is_in_the_table(self, kind: type) -> None:
        assert {field.name for field in fields(kind)} - {*NAMES} == set()


def can_price(accountant: Accountant, mechanism: Mechanism) -> bool:
    try:
        if accountant is Accountant.PRV:  # refuses before it starts its process
            PrvProfile([mechanism], rough=lambda: price([mechanism], delta=1e-5))
        else:
            assert isinstance(price([mechanism], delta=1e-5, accountant=accountant), Price)
    except UnsupportedEventError:
        return False
    return True


@pytest.mark.parametrize(("sampling", "relation"), [*product(Sampling, NeighboringRelation)])
def test_each_sampling_is_priced_by_the_accountants_listed_and_no_others(
    sampling: Sampling, relation: NeighboringRelation
) -> None:
    mechanism = Mechanism(
        sampling_rate=0.1,
        noise_multiplier=2.0,
        clip_norm=1.0,
        steps=10,
        sampling=sampling,
        neighboring_relation=relation,
        **SIZES.get(sampling, {}),
    )
    voices = [str(accountant) for accountant in Accountant if can_price(accountant, mechanism)]
    assert ACCOUNTANTS[sampling, relation] == (", ".join(voices) or "none")


def test_the_orders_are_those_named() -> None:
    assert f"orders from {min(ORDERS):g} to {max(ORDERS):g}" in TEXT

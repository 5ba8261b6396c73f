"""Budgets that many unlike studies share: priced as ever, and only once."""

import importlib
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tan_core.accounting import loss_distribution, pld, price
from tan_core.accounting.sums import FEW, Counted, Sums, coarsened
from tan_core.errors import AccountantError
from tan_core.mechanism import Mechanism, NeighboringRelation

prices = importlib.import_module("tan_core.accounting.price")


def unlike(count: int, seed: int = 0) -> list[Mechanism]:
    rng = random.Random(seed)
    return [
        Mechanism(
            sampling_rate=rng.choice([10 ** rng.uniform(-3, -1), 1.0]),
            noise_multiplier=rng.uniform(4, 12),
            clip_norm=1.0,
            steps=rng.randint(1, 40),
        )
        for _ in range(count)
    ]


@pytest.fixture(autouse=True)
def _as_after_a_start() -> Iterator[None]:
    _forget()
    yield
    _forget()


def _forget() -> None:
    prices._price.cache_clear()
    pld._sums.clear()
    loss_distribution._sums.clear()


class TestPrice:
    @pytest.mark.parametrize("relation", list(NeighboringRelation))
    @pytest.mark.parametrize("count", [FEW + 1, 20])
    @pytest.mark.parametrize("delta", [1e-5, 1e-9])
    def test_it_is_no_less_than_of_all_in_a_row_and_hardly_more(
        self,
        relation: NeighboringRelation,
        count: int,
        delta: float,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        runs = [replace(run, neighboring_relation=relation) for run in unlike(count)]
        found = pld.pld_profile(runs).epsilon(delta)
        monkeypatch.setattr(pld, "FEW", count)
        in_a_row = pld.pld_profile(runs).epsilon(delta)
        assert in_a_row <= found <= 1.0003 * in_a_row

    def test_few_are_on_the_grid_that_is_theirs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pld, "coarsened", lambda *_, **__: pytest.fail("coarsened"))
        assert price(unlike(FEW), delta=1e-5).epsilon > 0

    def test_it_is_the_same_in_whatever_order_and_after_whatever_else(self) -> None:
        runs = unlike(12)
        found = price(runs, delta=1e-5).epsilon
        _forget()
        price(runs[:10], delta=1e-5)
        assert price(runs[::-1], delta=1e-5).epsilon == found

    def test_releases_of_one_total_noise_are_priced(self) -> None:
        """Four of noise 40 are one of noise 20: two equal parts had no place apart, and the price ended in an error."""
        sampled = [run for run in unlike(40) if run.sampling_rate < 1][: FEW + 1]
        release = replace(sampled[0], sampling_rate=1.0, noise_multiplier=40.0, steps=4)
        alike = replace(release, noise_multiplier=20.0, steps=1)

        found = price([*sampled, release, alike], delta=1e-5).epsilon

        of_both = replace(release, noise_multiplier=40.0, steps=8)
        assert found == pytest.approx(price([*sampled, of_both], delta=1e-5).epsilon, rel=3e-4)

    def test_one_more_study_is_composed_with_what_is_known(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runs = [run for run in unlike(80) if run.sampling_rate < 1]
        price(runs, delta=1e-5)
        made: list[object] = []
        of_event = pld._of_event

        def counting(event: object, *rest: int, **on: object) -> object:
            made.append(event)
            return of_event(event, *rest, **on)  # type: ignore[arg-type]

        monkeypatch.setattr(pld, "_of_event", counting)
        price([*runs[1:], runs[0].with_steps(runs[0].steps + 1)], delta=1e-5)
        assert 1 <= len(made) <= 4

    def test_our_own_loss_distribution_still_has_a_voice(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        added = loss_distribution._added

        def moved(one: object, other: object, tail: float) -> object:
            found = added(one, other, tail)  # type: ignore[arg-type]
            return replace(found, first=found.first + 20)

        monkeypatch.setattr(loss_distribution, "_added", moved)
        with pytest.raises(AccountantError, match="two accountants differ"):
            price(unlike(3 * FEW), delta=1e-5)


class TestSums:
    @staticmethod
    def of(sums: Sums[str, int], parts: dict[str, int], made: list[str]) -> int:
        def leaf(part: Counted[str]) -> int:
            made.append(part.part)
            return part.count

        counted = [Counted(name, count) for name, count in parts.items()]
        return sums.of(counted, on="a grid", leaf=leaf, add=lambda one, other: one + other)

    def test_they_hold_no_more_than_they_may_and_forget_the_oldest(self) -> None:
        sums, made = Sums[str, int](size=lambda _: 1, whole=3), list[str]()
        many = {str(n): n for n in range(64)}
        assert self.of(sums, many, made) == sum(many.values())
        assert (len(sums._kept), sums._held) == (3, 3)
        made.clear()
        assert self.of(sums, many, made) == sum(many.values())
        assert made == []  # the whole was the last one

    def test_what_is_another_part_is_made_anew(self) -> None:
        sums, made = Sums[str, int](size=lambda _: 1), list[str]()
        many = {str(n): n for n in range(64)}
        self.of(sums, many, made)
        made.clear()
        assert self.of(sums, many | {"7": 8}, made) == sum(many.values()) + 1
        assert "7" in made
        assert len(made) <= 8

    def test_widths_are_few_and_none_is_finer(self) -> None:
        widths = [1e-5 * 1.01**n for n in range(500)]
        found = [coarsened(width, coarsest=2e-3) for width in widths]
        for width, coarser in zip(widths, found, strict=True):
            assert width <= coarser <= max(1.21 * width, 2e-3)
            assert coarser >= 1.01 * width or coarser >= 2e-3
        assert len({width for width in found if width < 2e-3}) <= 31

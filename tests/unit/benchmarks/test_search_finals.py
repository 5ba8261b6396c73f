"""Rules for who is confirmed, over records that are known by heart."""

from _search_finals import PLACES, Records, replays

NUM = 24
LAST = NUM - 1


def records(*, at_128: float, at_256: float) -> Records:
    """Of 24 candidates, the later the better after a heat and at 512 and 2048 the worse; the last one else as told."""

    def level(one: int) -> float:
        return 0.6 - 0.01 * one

    def scored(of_last: float) -> dict[int, list[tuple[float, float]]]:
        known = {one: level(one) for one in range(NUM - PLACES, NUM)} | {LAST: of_last}
        return {one: [(score, score)] for one, score in known.items()}

    return Records(
        batch_size=2048,
        guessing=0.1,
        heats=[{one: 0.01 * one for one in range(NUM)}],
        simulated={128: scored(at_128), 256: scored(at_256), 512: scored(level(LAST))},
        tests={one: level(one) for one in range(NUM - PLACES, NUM)},
        validated={one: level(one) for one in range(NUM - PLACES, NUM)},
    )


def regrets(known: Records) -> list[float]:
    return [round(each.regrets[0], 6) for each in replays(known)]


def test_rules_choose_by_what_they_simulate() -> None:
    fooled = records(at_128=0.9, at_256=0.9)

    # Now, raced, confirmed two, three, four and six: one hundredth for each place in the heat.
    assert regrets(fooled) == [7, 7, 6, 5, 4, 2]


def test_who_is_not_fooled_loses_nothing() -> None:
    plain = records(at_128=0.37, at_256=0.37)

    assert regrets(plain) == [0, 6, 6, 5, 4, 2]
    for each in replays(plain):
        assert max(map(abs, each.errors)) < 1e-6


def test_costs_are_those_of_the_rungs() -> None:
    costs = [each.cost for each in replays(records(at_128=0.4, at_256=0.4))]

    assert costs == [
        each / 64
        for each in (24 + 8 * 3 + 16, 24 + 2 * 11 + 16, *(24 + 19 * n for n in (2, 3, 4, 6)))
    ]

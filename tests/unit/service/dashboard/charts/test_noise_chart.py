"""The chart of searched steps."""

from hypothesis import given
from hypothesis import strategies as st

from service.dashboard.charts.noise import MAX_GROUPS, NoisePoint, noise_chart
from tests.unit.service.dashboard.charts.marks import dots


def point(steps: int, accuracy: float = 0.9, *, rung: int = 0) -> NoisePoint:
    return NoisePoint(
        rung=rung,
        batch_size=64.0 * 4**rung,
        noise_multiplier=steps**0.5 / 10,
        steps=steps,
        accuracy=accuracy,
    )


class TestNoiseChart:
    def test_one_number_of_steps_leaves_nothing_to_compare(self) -> None:
        assert noise_chart([]) is None
        assert noise_chart([point(300, 0.8), point(300, 0.9)]) is None

    def test_trials_are_compared_at_the_highest_rung_that_every_group_reached(self) -> None:
        points = [
            *(point(300, 0.9, rung=rung) for rung in range(3)),
            *(point(600, 0.8, rung=rung) for rung in range(2)),
            point(300, 0.7, rung=0),
        ]

        chart = noise_chart(points)

        assert chart is not None
        assert (chart.best.rung, chart.best.batch_size) == (1, 256)
        assert [len(dots(group.dots)) for group in chart.groups] == [1, 1]

    def test_more_noise_stands_further_right_and_more_accuracy_higher(self) -> None:
        chart = noise_chart([point(100, 0.80), point(400, 0.95), point(900, 0.90)])

        assert chart is not None
        marks = [dots(group.dots)[0] for group in chart.groups]
        assert [x for x, _ in marks] == sorted(x for x, _ in marks)
        assert marks[1][1] < marks[2][1] < marks[0][1]
        assert chart.best.steps == 400
        assert "best is 95.0 % at σ 2 and 400 steps" in chart.summary

    @given(steps=st.lists(st.integers(1, 10_000), min_size=1, max_size=60))
    def test_every_trial_is_drawn_once_under_a_mark_of_its_own_steps(
        self, steps: list[int]
    ) -> None:
        chart = noise_chart([point(each) for each in steps])

        if chart is None:
            assert len(set(steps)) == 1
            return
        assert 2 <= len(chart.groups) <= MAX_GROUPS
        assert sum(len(dots(group.dots)) for group in chart.groups) == len(steps)
        labels = [group.label for group in chart.groups]
        assert len(set(labels)) == len(labels)
        if len(set(steps)) <= MAX_GROUPS:
            assert labels == [f"{each:,}" for each in sorted(set(steps))]

from hypothesis import given
from hypothesis import strategies as st

from service.trials.merge import merged
from tan_core.wire import RungScore, TrialRecord, TrialState


def scores(seeds: st.SearchStrategy[int]) -> st.SearchStrategy[list[RungScore]]:
    return st.lists(
        st.builds(
            RungScore,
            rung=st.integers(0, 2),
            seed=seeds,
            expected_batch_size=st.just(16.0),
            noise_multiplier=st.just(0.2),
            steps=st.just(100),
            accuracy=st.sampled_from([None, 0.25, 0.5]),
            seconds=st.just(1.0),
            curve=st.just([]),
        ),
        max_size=6,
    )


def records(*states: TrialState) -> st.SearchStrategy[TrialRecord]:
    """As they are stored: each (seed, rung) once, in order."""
    empty = TrialRecord(number=0, state=TrialState.RUNNING, params={})
    reported = st.builds(
        TrialRecord,
        number=st.just(0),
        state=st.sampled_from(states),
        params=st.just({"learning_rate": 1.0}),
        scores=scores(st.just(0)),
        repeats=scores(st.integers(1, 3)),
        value=st.sampled_from([None, 0.25, 0.5]),
        source=st.none(),
        reason=st.sampled_from([None, "cut"]),
    )
    return reported.map(lambda report: merged(empty, report))


ANY = records(*TrialState)
FINISHED = records(*(state for state in TrialState if state.is_finished))
OPEN = records(TrialState.RUNNING, TrialState.INTERRUPTED)


def places(scores: list[RungScore]) -> list[tuple[int, int]]:
    return [(score.seed, score.rung) for score in scores]


class TestMerged:
    @given(known=ANY, report=ANY)
    def test_a_report_that_comes_twice_changes_nothing_more(
        self, known: TrialRecord, report: TrialRecord
    ) -> None:
        once = merged(known, report)
        assert merged(once, report) == once

    @given(known=ANY, report=ANY)
    def test_nothing_that_was_scored_is_lost_and_nothing_is_there_twice(
        self, known: TrialRecord, report: TrialRecord
    ) -> None:
        result = merged(known, report)

        for before, after in ((known.scores, result.scores), (known.repeats, result.repeats)):
            assert set(places(before)) <= set(places(after))
            assert places(after) == sorted(set(places(after)))

    @given(known=FINISHED, report=ANY)
    def test_of_a_finished_trial_repeats_grow_and_nothing_else_changes(
        self, known: TrialRecord, report: TrialRecord
    ) -> None:
        result = merged(known, report)

        assert result.model_copy(update={"repeats": known.repeats}) == known
        assert [score for score in result.repeats if score in known.repeats] == known.repeats
        assert set(places(result.repeats)) == {*places(known.repeats), *places(report.repeats)}

    @given(known=OPEN, report=ANY)
    def test_of_an_open_trial_the_report_is_believed(
        self, known: TrialRecord, report: TrialRecord
    ) -> None:
        result = merged(known, report)

        assert (result.state, result.reason) == (report.state, report.reason)
        assert [score for score in result.scores if score in report.scores] == report.scores

    def test_a_trial_that_begins_again_keeps_what_it_had_until_it_is_scored_again(self) -> None:
        score = RungScore(
            rung=0,
            expected_batch_size=16.0,
            noise_multiplier=0.2,
            steps=100,
            accuracy=0.5,
            seconds=1.0,
        )
        known = TrialRecord(
            number=0, state=TrialState.INTERRUPTED, params={}, scores=[score], value=0.5
        )
        again = known.model_copy(update={"state": TrialState.RUNNING, "scores": [], "value": None})
        better = score.model_copy(update={"accuracy": 0.75})

        begun = merged(known, again)
        scored = merged(begun, again.model_copy(update={"scores": [better], "value": 0.75}))

        assert (begun.scores, begun.value) == ([score], 0.5)
        assert (scored.scores, scored.value) == ([better], 0.75)

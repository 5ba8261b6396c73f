from dataclasses import replace

import pytest

from tan_core.accounting.conditions import Candidates, Released, Scores, SelectionConditions
from tan_core.accounting.trial_count import NegativeBinomialTrials
from tan_core.errors import ParameterError, UnsupportedEventError

LAW = NegativeBinomialTrials(mean=10.0, shape=0.0)
SOUND = SelectionConditions(
    trial_count=LAW,
    candidates=Candidates.FIXED_LAW,
    released=Released.BEST_ONLY,
    scores=Scores.TRIAL_OUTPUT,
)


class TestSelectionConditions:
    def test_a_sound_search_yields_its_law(self) -> None:
        assert SOUND.broken == ()
        assert SOUND.check() is LAW

    @pytest.mark.parametrize(
        ("broken", "says"),
        [
            ({"trial_count": 24}, r"fixed at 24.*accepted: a geometric"),
            ({"candidates": "enumerated"}, "enumerated.*accepted: fixed_law"),
            ({"candidates": "adaptive"}, r"TPE, CMA-ES and ASHA.*accepted: fixed_law"),
            ({"released": "more"}, r"leaderboard.*accepted: best_only"),
            ({"scores": "private_data"}, r"private data at no charge.*accepted: trial_output"),
        ],
    )
    def test_a_broken_condition_is_refused_with_what_is_accepted(
        self, broken: dict[str, object], says: str
    ) -> None:
        conditions = replace(SOUND, **broken)

        assert len(conditions.broken) == 1
        with pytest.raises(UnsupportedEventError, match=says):
            conditions.check()

    def test_all_broken_conditions_are_listed_at_once(self) -> None:
        as_usual = SelectionConditions(
            trial_count=24,
            candidates="enumerated",  # type: ignore[arg-type]
            released="more",  # type: ignore[arg-type]
            scores="private_data",  # type: ignore[arg-type]
        )

        with pytest.raises(UnsupportedEventError) as refusal:
            as_usual.check()

        for fact in as_usual.broken:
            assert fact in str(refusal.value)
        assert len(as_usual.broken) == 4

    @pytest.mark.parametrize("field", ["candidates", "released", "scores"])
    def test_an_unknown_word_is_refused_by_name(self, field: str) -> None:
        with pytest.raises(ParameterError, match=f"{field} must be one of .* got 'whatever'"):
            replace(SOUND, **{field: "whatever"})

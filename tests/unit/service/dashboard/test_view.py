"""What the pages derive from the API's views."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from service.dashboard import view
from service.dashboard.render import age
from service.ledger.schemas import Account, Head, Scope
from service.studies.lifecycle import StudyState
from service.studies.schemas import (
    PrivacyView,
    Progress,
    PromotionView,
    StandingView,
    StudyView,
)
from service.trials.schemas import TrialView
from tan_core.wire import RungScore, TrialState

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


def make_study(
    state: str = "simulating", error: dict[str, Any] | None = None, **figures: Any
) -> StudyView:
    known: dict[str, Any] = {
        "trials_total": 20, "trials_finished": 0, "trials_running": 0, "trials_diverged": 0,
        "trials_pruned": 0, "trials_failed": 0, "repeats_finished": 0, "best_accuracy": None, "step": None,
        "steps": None, "steps_per_second": None, "attempt": None,
    }  # fmt: skip
    return StudyView(
        id="s-1", tenant="local", name="one", state=StudyState(state), reason=None, spec={}, plan={},
        progress=Progress(phase=StudyState(state), **{**known, **figures}), best_trial=None,
        prediction=None, promotion=None, run=None,
        privacy=PrivacyView(
            epsilon=3.0, delta=1e-5, accountant="pld", neighboring_relation="add_or_remove_one",
            search_accounting="public_proxy", search_note="", epsilon_reserved=None,
            charged_steps=None, reserved_steps=None, ledger_entry=None,
        ),
        tags=[], archived=False, version=0, paused=False, priority=0, queue_position=None,
        error=error, created_at=NOW - timedelta(minutes=3),
        started_at=NOW - timedelta(seconds=100), finished_at=None,
    )  # fmt: skip


def make_trial(accuracies: list[float | None], *, fresh: tuple[int, ...] = ()) -> TrialView:
    def score(rung: int, seed: int) -> RungScore:
        return RungScore(
            rung=rung, seed=seed, expected_batch_size=64.0, noise_multiplier=1.0, steps=10,
            accuracy=accuracies[rung], seconds=1.0,
        )  # fmt: skip

    return TrialView(
        number=1, state=TrialState.COMPLETED, params={}, attempt=1, started_at=NOW, updated_at=NOW,
        finished_at=NOW, scores=[score(rung, 0) for rung in range(len(accuracies))],
        repeats=[score(0, seed) for seed in fresh],
    )  # fmt: skip


def make_account(*, charged: float, committed: float) -> Account:
    scope = Scope(
        scope_id="dataset:x", name="x", unit="record", neighboring_relation="add_or_remove_one",  # pyright: ignore[reportArgumentType]
        epsilon=10.0, delta=1e-5,
    )  # fmt: skip
    return Account(
        scope=scope, accountant="pld", committed_epsilon=committed, charged_epsilon=charged,
        remaining_epsilon=10.0 - committed, head=Head(seq=1, hash=""), reservations=[], entries=[],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "figures", "title"),
    [
        ("queued", {}, "queued · one"),
        ("simulating", {"trials_finished": 7}, "35 % · one"),
        ("training", {"trials_finished": 20, "step": 30, "steps": 300}, "10 % · one"),
        ("training", {}, "0 % · one"),
        ("awaiting_approval", {}, "awaiting approval · one"),
        ("completed", {"step": 300, "steps": 300}, "completed · one"),
    ],
)
def test_the_tab_says_how_far_the_study_is(state: str, figures: dict[str, Any], title: str) -> None:
    assert view.tab_title(make_study(state, **figures)) == title


class TestTimeLeft:
    def test_the_search_goes_on_at_its_mean_pace(self) -> None:
        assert view.search_seconds_left(make_study(trials_finished=5), NOW) == 300.0

    def test_where_later_trials_follow_each_other_one_of_them_has_to_end_first(self) -> None:
        def left(finished: int) -> float | None:
            study = make_study(trials_finished=finished)
            plan = {"charged_search": {"anew": 4}}
            return view.search_seconds_left(study.model_copy(update={"plan": plan}), NOW)

        assert (left(3), left(4), left(5)) == (None, None, 300.0)

    @pytest.mark.parametrize("finished", [0, 20, 21])
    def test_nothing_is_said_of_a_search_that_has_not_begun_or_is_done(self, finished: int) -> None:
        assert view.search_seconds_left(make_study(trials_finished=finished), NOW) is None

    def test_the_private_run_goes_on_at_its_present_rate(self) -> None:
        study = make_study("training", step=100, steps=300, steps_per_second=10.0)

        assert view.run_seconds_left(study.progress) == 20.0

    def test_a_finished_run_has_no_time_left(self) -> None:
        study = make_study("completed", step=300, steps=300, steps_per_second=10.0)

        assert view.run_seconds_left(study.progress) is None


class TestAnnouncement:
    def test_a_screen_reader_hears_of_tenths_only(self) -> None:
        said = {
            view.announcement(make_study("training", step=step, steps=1000)) for step in range(1001)
        }

        assert len(said) == 11

    def test_the_finals_are_announced_once(self) -> None:
        said = {view.announcement(make_study(repeats_finished=count)) for count in range(1, 9)}

        assert said == {"Simulating: the best trials are repeated with fresh seeds."}


class TestRungs:
    def test_a_trial_has_an_accuracy_at_each_rung_that_scored_it(self) -> None:
        trial = make_trial([0.9, None], fresh=(1, 2))

        assert view.rung_accuracies(trial, 3) == [0.9, None, None]
        assert view.num_fresh_seeds(trial) == 2
        assert view.trial_seconds(trial) == 4.0
        assert view.fresh_accuracies(trial, 0) == [0.9, 0.9]
        assert view.fresh_accuracies(trial, 1) == []

    def test_a_trial_that_was_never_scored_took_no_time(self) -> None:
        assert view.trial_seconds(make_trial([])) is None


class TestCandidates:
    @staticmethod
    def promotion(promoted: int) -> PromotionView:
        standings = [
            StandingView(trial=n, accuracy=0.9, low=0.8, high=1.0, seeds=1, is_fresh=False)
            for n in range(30)
        ]
        return PromotionView(trial=promoted, by=None, reason="", standings=standings)

    @pytest.mark.parametrize(
        ("promoted", "shown"), [(0, [*range(10)]), (25, [*range(10), 25]), (99, [*range(10)])]
    )
    def test_the_best_are_shown_and_whoever_is_promoted(
        self, promoted: int, shown: list[int]
    ) -> None:
        assert [one.trial for one in view.candidates(self.promotion(promoted))] == shown


class TestShares:
    def test_the_parts_of_a_bar_never_exceed_it(self) -> None:
        parts = view.shares(10.0, make_account(charged=9.0, committed=12.0))

        assert parts.charged + parts.reserved == 1000

    def test_a_tiny_charge_can_be_seen(self) -> None:
        assert view.shares(10.0, make_account(charged=1e-6, committed=1e-6)).charged > 0

    def test_nothing_charged_is_nothing_drawn(self) -> None:
        assert view.shares(10.0, make_account(charged=0.0, committed=0.0)) == view.Shares(0, 0)


class TestWhatToDo:
    def test_a_refused_budget_points_at_the_dataset(self) -> None:
        study = make_study("failed", error={"reason": "over budget at promotion: ..."})

        assert "page of the dataset" in view.what_to_do(study)

    @pytest.mark.parametrize(
        ("figures", "is_of_rates"),
        [
            ({"trials_diverged": 4}, True),
            ({"trials_diverged": 1, "trials_failed": 3}, True),
            ({"trials_failed": 4}, False),
        ],
    )
    def test_other_learning_rates_are_for_weights_that_diverged(
        self, figures: dict[str, int], is_of_rates: bool
    ) -> None:
        """A layer that mixes examples fails at every one."""
        reason = (
            "no trial of 4 completed: ...; the last reason: ModelError: layer '2' is BatchNorm1d"
        )
        study = make_study("failed", error={"reason": reason}, **figures)

        assert ("Lower the learning rates" in view.what_to_do(study)) is is_of_rates

    def test_a_failure_without_a_reason_still_says_something(self) -> None:
        study = make_study("failed")

        assert view.error_text(study)
        assert view.what_to_do(study)


class TestNumbers:
    @pytest.mark.parametrize(
        ("seconds", "said"),
        [(-5, "just now"), (59, "just now"), (7200, "2 h ago"), (2e5, "2 d ago")],
    )
    def test_an_age_has_one_unit(self, seconds: float, said: str) -> None:
        assert age(NOW - timedelta(seconds=seconds), NOW) == said

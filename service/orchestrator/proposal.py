"""What the search proposes for the private run, and what is promoted: kept with the study, with reasons."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy.ext.asyncio import AsyncSession

from service.calibration.repository import earlier_errors
from service.db.tables import Dataset, Study
from service.studies.repository import trial_record
from service.studies.schemas import Prediction, PromotionView, StandingView
from service.text import counted
from service.trials import repository as trials
from tan_core.planner import Counted, Evaluation, Plan, Promotion, Standing, choose_winner
from tan_core.spec import StudySpec
from tan_core.wire import clean_reason

MAX_STANDINGS = 100
GIVEN = "the hyper-parameters are those of the study, which searches nothing"
"""Why a study without a search trains what it trains."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A choice, and what its predictions know of the sets that accuracies are taken on."""

    promotion: Promotion
    evaluation: Evaluation

    @property
    def winner(self) -> Standing:
        """What is promoted."""
        return self.promotion.winner

    @property
    def reason(self) -> str:
        """A sentence."""
        return self.promotion.reason


async def propose(session: AsyncSession, study: Study) -> Proposal | None:
    """The choice of a search that has ended, written down as undecided; None without any."""
    found = [trial_record(trial) for trial in await trials.every(session, study.id)]
    search_dataset = await session.get_one(Dataset, study.search_dataset)
    dataset = await session.get_one(Dataset, study.dataset)
    plan = Plan.model_validate(study.plan)
    charged = plan.charged_search
    num_scored = search_dataset.num_scored if charged else search_dataset.num_validation
    spec = StudySpec.model_validate(study.spec)
    scored, tested = (Counted.of(num, spec) for num in (num_scored, dataset.num_test))
    evaluation = Evaluation(
        num_validation=round(scored.effective),
        num_test=round(tested.effective),
        num_classes=dataset.num_classes,
        errors=await earlier_errors(session, study),
        score_std=charged.score_noise_multiplier / scored.whole if charged else 0.0,
        goes_on=plan.goes_on,
    )
    promotion = await asyncio.to_thread(
        choose_winner,
        found,
        expected_batch_size=plan.reference.expected_batch_size,
        evaluation=evaluation,
    )
    if promotion is None:
        return None
    ended, planned = sum(trial.state.is_finished for trial in found), study.spec["search"]["trials"]
    if study.finish_requested and ended < planned:
        early = f"a user ended the search after {ended} of {counted(planned, 'trial')}"
        promotion = replace(promotion, reason=f"{promotion.reason}; {early}")
    proposed = Proposal(promotion, evaluation)
    reason = clean_reason(promotion.reason)
    _write(study, proposed, trial=promotion.winner.trial, by=None, reason=reason)
    return proposed


def take_given(study: Study, *, by: Literal["user"] | None) -> str:
    """Of a study without a search: its own hyper-parameters, written down; the reason comes back."""
    study.promotion = _promotion(study, trial=None, by=by, reason=GIVEN, standings=[])
    return GIVEN


def settle(
    study: Study, proposed: Proposal, *, trial: int, are_weights_missed: bool = False
) -> str:
    """The reason why this trial is promoted after all; written down with who decided it, and with what its run lacks."""
    is_asked = study.promote_requested or study.spec["promotion"] == "manual"
    reason = proposed.reason
    if trial != proposed.winner.trial:
        reason = f"trial {trial} chosen by a user; the search proposed: {reason}"
    if are_weights_missed:
        reason += "; its weights were not kept, so the private run begins anew"
    reason = clean_reason(reason)
    _write(study, proposed, trial=trial, by="user" if is_asked else "search", reason=reason)
    return reason


def _write(
    study: Study,
    proposed: Proposal,
    *,
    trial: int,
    by: Literal["search", "user"] | None,
    reason: str,
) -> None:
    standings = proposed.promotion.standings
    study.promotion = _promotion(study, trial=trial, by=by, reason=reason, standings=standings)
    standing = next((each for each in standings if each.trial == trial), None)
    study.prediction = _prediction(study, standing, proposed.evaluation) if standing else None


def _promotion(
    study: Study,
    *,
    trial: int | None,
    by: Literal["search", "user"] | None,
    reason: str,
    standings: Sequence[Standing],
) -> dict[str, Any]:
    """As ``studies.schemas.PromotionView``; an approval that was given stays."""
    before = PromotionView.model_validate(study.promotion) if study.promotion else None
    return PromotionView(
        trial=trial,
        by=by,
        approved_by=before.approved_by if before else None,
        reason=reason,
        standings=[_standing_view(each) for each in standings[:MAX_STANDINGS]],
    ).model_dump(mode="json")


def _standing_view(standing: Standing) -> StandingView:
    shown = standing.prediction
    return StandingView(
        trial=standing.trial,
        accuracy=shown.accuracy,
        low=shown.low,
        high=shown.high,
        seeds=standing.seeds,
        is_fresh=standing.is_fresh,
    )


def _prediction(study: Study, standing: Standing, evaluation: Evaluation) -> dict[str, object]:
    shown = standing.prediction
    return Prediction(
        accuracy=shown.accuracy,
        low=shown.low,
        high=shown.high,
        level=shown.level,
        expected_batch_size=study.plan["reference"]["expected_batch_size"],
        trial=standing.trial,
        seeds=standing.seeds,
        is_fresh=standing.is_fresh,
        method=shown.method,
        slope=shown.slope,
        caution=shown.caution,
        guessing=evaluation.guessing,
        ahead=standing.ahead,
        shift=evaluation.shift,
        shift_studies=len(evaluation.errors),
    ).model_dump(mode="json")

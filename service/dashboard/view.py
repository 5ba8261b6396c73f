"""What the pages derive from the API's views: time left, what to announce, what to do. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from service.ledger.schemas import Account, CapUsed, Totals
from service.studies.lifecycle import AWAITS_PROMOTE, TERMINAL, StudyState
from service.studies.schemas import (
    Progress,
    PromotionView,
    StandingView,
    StudySummary,
    StudyView,
)
from service.trials.schemas import TrialView

MAX_CANDIDATES = 10
"""Rows of the table of those who may be promoted."""


def seconds_taken(study: StudyView, now: datetime) -> float | None:
    """From the start of the search to the end of the study, or to now."""
    if study.started_at is None:
        return None
    return ((study.finished_at or now) - study.started_at).total_seconds()


def search_seconds_left(study: StudyView, now: datetime) -> float | None:
    """Of the search, at its mean pace so far; of one whose later trials follow each other, once one of these has ended."""
    progress = study.progress
    if study.state != StudyState.SIMULATING or study.started_at is None:
        return None
    left = progress.trials_total - progress.trials_finished
    anew = (study.plan.get("charged_search") or {}).get("anew") or 0
    if left <= 0 or progress.trials_finished <= anew:
        return None
    return left * (now - study.started_at).total_seconds() / progress.trials_finished


def run_seconds_left(progress: Progress) -> float | None:
    """Of the private run, at its present rate."""
    if progress.phase != StudyState.TRAINING or not progress.steps_per_second:
        return None
    return ((progress.steps or 0) - (progress.step or 0)) / progress.steps_per_second


def trial_seconds(trial: TrialView) -> float | None:
    """Compute time of the rungs that were scored, repetitions included."""
    scores = [*trial.scores, *trial.repeats]
    return sum(score.seconds for score in scores) if scores else None


def has_heat(plan: Mapping[str, Any]) -> bool:
    """Whether the first rung of a plan begins with a heat."""
    return plan.get("heat") is not None


def rung_accuracies(trial: TrialView, num_rungs: int) -> list[float | None]:
    """The trial's accuracy at the end of each rung of the search; None where it did not come so far."""
    scored = {score.rung: score.accuracy for score in trial.scores if not score.heat}
    return [scored.get(rung) for rung in range(num_rungs)]


def fresh_accuracies(trial: TrialView, rung: int) -> list[float]:
    """Of its repetitions at a rung, the lowest first."""
    found = (score.accuracy for score in trial.repeats if score.rung == rung)
    return sorted(accuracy for accuracy in found if accuracy is not None)


def clipped_fraction(trial: TrialView) -> float | None:
    """At the highest rung that it reached, as its value is."""
    return trial.scores[-1].clipped_fraction if trial.scores else None


def num_fresh_seeds(trial: TrialView) -> int:
    """How often the trial was repeated."""
    return len({score.seed for score in trial.repeats})


def candidates(promotion: PromotionView) -> list[StandingView]:
    """Who may be promoted: the best predictions, and the trial that is proposed or promoted."""
    return [
        standing
        for rank, standing in enumerate(promotion.standings)
        if rank < MAX_CANDIDATES or standing.trial == promotion.trial
    ]


def why_not_running(study: StudySummary, *, is_cancelling: bool) -> str | None:
    """Why a study of a list does not go on; None where it does, or has come to its good end."""
    if study.state == StudyState.COMPLETED:
        return None
    if study.state in TERMINAL:
        return study.reason or f"no reason was recorded for {study.state.value}"
    if is_cancelling:
        return "cancelled by a user; it ends at its next checkpoint"
    if study.paused:
        return "paused by a user"
    if study.reason is None and study.queue_position is not None:
        return f"number {study.queue_position} in line for a slot"
    return study.reason


def reason_here(reason: str | None, *, may_approve: bool) -> str | None:
    """Why a study does not go on, as a page says it that has the button beside it.

    Example:
        >>> reason_here("waiting for tan-cli promote: trial 3 is the best", may_approve=True)
        'waiting for approval: trial 3 is the best'
    """
    return (
        reason and reason.replace(AWAITS_PROMOTE, "waiting for approval") if may_approve else reason
    )


def announcement(study: StudyView) -> str:
    """What a screen reader is told; it changes ten times a phase, not at every step."""
    progress = study.progress
    if study.state == StudyState.SIMULATING:
        if progress.repeats_finished:
            return "Simulating: the best trials are repeated with fresh seeds."
        tenths = 10 * progress.trials_finished // max(1, progress.trials_total)
        doing = "Searching" if study.plan.get("charged_search") else "Simulating"
        return f"{doing}: {10 * tenths} percent of the trials are finished."
    if study.state == StudyState.TRAINING:
        tenths = 10 * (progress.step or 0) // max(1, progress.steps or 1)
        return f"Private run: {10 * tenths} percent of the steps are done."
    reason = f": {study.reason}" if study.reason else ""
    return f"The study is {study.state.replace('_', ' ')}{reason}."


def tab_title(study: StudyView) -> str:
    """What a browser's tab says: how far the study is, then which it is."""
    progress = study.progress
    done, total = progress.trials_finished, progress.trials_total
    if study.state == StudyState.TRAINING:
        done, total = progress.step or 0, progress.steps or 0
    if study.state in (StudyState.SIMULATING, StudyState.TRAINING):
        return f"{100 * done // max(1, total)} % · {study.name}"
    return f"{study.state.replace('_', ' ')} · {study.name}"


@dataclass(frozen=True)
class Shares:
    """Parts of a budget in thousandths of it, for the bar; together at most 1000."""

    charged: int
    reserved: int


def shares(total: float, stands: Account | Totals) -> Shares:
    """The bar of a budget. A part that exists is never too thin to be seen."""
    charged = _thousandths(stands.charged_epsilon, total)
    committed = max(charged, _thousandths(stands.committed_epsilon, total))
    return Shares(charged=charged, reserved=committed - charged)


def cap_shares(cap: CapUsed) -> Shares:
    """The bar of a cap: what counts to it, charged and reserved together. A cap of 0 is full."""
    used = _thousandths(cap.committed_epsilon or 0.0, cap.epsilon) if cap.epsilon else 1000
    return Shares(charged=0, reserved=used)


def _thousandths(part: float, total: float) -> int:
    return 0 if part <= 0 else min(1000, max(4, round(1000 * part / total)))


def what_to_do(study: StudyView) -> str:
    """The next step after a failure."""
    reason = _error_text(study.error) or study.reason or ""
    if "budget" in reason:
        return (
            "The dataset's budget does not hold this plan. Ask for a smaller epsilon, fewer steps, or "
            "another dataset; the page of the dataset shows what is left."
        )
    if "diverged" in reason or "no trial" in reason.lower():
        if study.progress.trials_failed and not study.progress.trials_diverged:
            return (
                "No candidate could be trained. Where the reason is in the study or in the model, no other candidate "
                "will do better: mend that, and submit again."
            )
        return (
            "No candidate could be trained. Lower the learning rates in search.space, or raise the "
            "smallest rung, and submit again."
        )
    return (
        "Read the reason above, then submit the study again. Trials on the way were kept; steps that "
        "were charged stay charged, and what never ran went back to the budget."
    )


def _error_text(error: Mapping[str, Any] | None) -> str | None:
    if not error:
        return None
    return str(error.get("detail") or error.get("message") or error.get("reason") or "") or None


def error_text(study: StudyView) -> str:
    """Why the study failed, in one paragraph."""
    return _error_text(study.error) or study.reason or "no reason was recorded"

"""What may be asked of studies, decided here; the orchestrator carries it out."""

import asyncio
import hashlib
import secrets
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from service import etags, idempotency
from service.auth.scopes import LOCAL, Principal
from service.context import Context
from service.datasets.schemas import ApprovalRule
from service.db.clock import clock
from service.db.tables import IdempotencyKey, Study
from service.errors import BusyError, ConflictError, InvalidInputError, NotFoundError
from service.evaluation import evaluation_view
from service.idempotency import Keyed
from service.ledger import names
from service.ledger import repository as ledger
from service.ledger.errors import BudgetExceededError
from service.ledger.notes import restored_note
from service.ledger.repository import Charged
from service.ledger.schemas import Head
from service.ledger.service import Ledger
from service.ledger.words import instead
from service.plans.service import Prepared, budget_now, prepare
from service.publication.published import Published
from service.studies import epsilon, line, repository
from service.studies.events import append_state
from service.studies.glance import Held, RunStanding, glance
from service.studies.lifecycle import StudyState
from service.studies.schemas import (
    Approval,
    LedgerEntryRef,
    Prediction,
    PredictionView,
    PrivacyView,
    PromotionView,
    RunView,
    StudyEdit,
    StudyPage,
    StudyQuery,
    StudySummary,
    StudyView,
)
from tan_core.accounting import SearchAccounting
from tan_core.errors import AccountantError
from tan_core.spec import StudySpec
from tan_core.spec.study import Metric


@dataclass(frozen=True)
class ReleasedModel:
    """Weights on storage, ready to be downloaded."""

    name: str
    path: Path
    sha256: str


async def submit(
    context: Context, spec: StudySpec, request: Keyed | None = None, *, by: Principal = LOCAL
) -> tuple[StudyView, bool]:
    """The study and whether it is new. One transaction reserves and stores, or nothing happens.

    Raises:
        InvalidInputError: the spec cannot be had, or the key was used for another one.
        BudgetExceededError: the dataset's budget does not hold the whole plan.
    """
    if request is not None:
        async with context.database.session() as session:
            if (known := await idempotency.known(session, request)) is not None:
                return await _again(session, known), False
    prepared = await prepare(context, spec, tenant=by.reaches)
    try:
        async with context.database.session() as session:
            if (
                request is not None
                and (known := await idempotency.claim(session, request)) is not None
            ):
                return await _again(session, known), False
            study = await _store(session, prepared, by)
            if request is not None:
                idempotency.remember(session, request, study_id=study.id)
            return await view(session, study.id), True
    except BudgetExceededError as refusal:
        await _tell_what_would_fit(context, prepared, by, refusal)
        raise


async def _tell_what_would_fit(
    context: Context, prepared: Prepared, by: Principal, refusal: BudgetExceededError
) -> None:
    """As the study's plan would tell it now. The refusal stands without it."""
    with suppress(BusyError, AccountantError):
        fit = await budget_now(context, prepared, by)
        if fit is not None and (advice := instead(fit.model_dump())) is not None:
            refusal.add(advice)


async def page(
    context: Context, query: StudyQuery, *, tenant: str | None = None, counts: bool = True
) -> StudyPage:
    """One page of studies: of one tenant, or (None) of all. ``counts``: say how many there are on all pages."""
    async with context.database.session() as session:
        shown, next_cursor = await repository.page(
            session, query.listing(), limit=query.limit, cursor=query.cursor, tenant=tenant
        )
        results = await repository.results_of(session, [study.id for study in shown])
        charged = await ledger.charged(
            session, [study.reservation_id for study in shown if study.reservation_id]
        )
        positions = await line.positions(session, shown)
        total = len(shown) if query.cursor is None and next_cursor is None else None
        if counts and total is None:
            total = await repository.total(session, query.listing(), tenant=tenant)
    return StudyPage(
        items=[
            _summary(
                study,
                *results[study.id],
                charged.get(study.reservation_id or ""),
                positions.get(study.id),
            )
            for study in shown
        ],
        next_cursor=next_cursor,
        total=total,
    )


async def get(context: Context, study_id: str) -> StudyView:
    """One study."""
    async with context.database.reading() as session:
        return await view(session, study_id)


async def expect(context: Context, study_id: str) -> None:
    """Raise NotFoundError unless the study exists."""
    async with context.database.session() as session:
        await _find(session, study_id)


async def edit(
    context: Context, study_id: str, change: StudyEdit, *, if_match: str | None
) -> StudyView:
    """The study with what users may change of it changed.

    Raises:
        PreconditionRequiredError: ``if_match`` is None.
        PreconditionFailedError: it was edited since.
        ConflictError: it is to be archived and may still spend.
    """
    async with context.database.session() as session:
        study = await _find(session, study_id, lock=True)
        etags.check_version(if_match, study.version)
        if change.archived and not StudyState(study.state).is_terminal:
            raise ConflictError(
                f"study {study_id!r} is {study.state}: only a study that has come to its end can "
                "be archived; cancel it first"
            )
        changed = change.model_dump(exclude_unset=True)
        for name, value in changed.items():
            setattr(study, name, value if name != "note" else value or None)
        study.version += 1
        return await view(session, study.id)


async def cancel(
    context: Context, study_id: str, request: Keyed | None = None
) -> tuple[StudyView, bool]:
    """Ask the orchestrator to stop the study. Returns it, and whether this was the first time."""
    async with context.database.session() as session:
        if request is not None and (known := await idempotency.claim(session, request)) is not None:
            return await _again(session, known), False
        study = await _find(session, study_id, lock=True)
        if StudyState(study.state).is_terminal:
            raise ConflictError(f"study {study_id!r} is {study.state}: there is nothing to cancel")
        study.cancel_requested = True
        if request is not None:
            idempotency.remember(session, request, study_id=study.id)
        return await view(session, study.id), True


async def pause(context: Context, study_id: str, *, wanted: bool) -> StudyView:
    """Ask the orchestrator to let the study rest, or (``wanted`` False) to go on with it."""
    async with context.database.session() as session:
        study = await _find(session, study_id, lock=True)
        verb = "pause" if wanted else "resume"
        if StudyState(study.state).is_terminal:
            raise ConflictError(f"study {study_id!r} is {study.state}: there is nothing to {verb}")
        if study.cancel_requested:
            raise ConflictError(f"study {study_id!r} is being cancelled: it cannot {verb}")
        if study.pause_requested != wanted:
            study.pause_requested = wanted
            await append_state(session, study)
        return await view(session, study.id)


async def finish_search(context: Context, study_id: str) -> StudyView:
    """Ask the orchestrator to end the search early: what it has found by then is promoted.

    Raises:
        ConflictError: there is no search under way, it has found nothing yet, or its trials are charged: how many there are is
            then fixed before the first, and no score may decide it.
    """
    async with context.database.session() as session:
        study = await _find(session, study_id, lock=True)
        if study.state != StudyState.SIMULATING or study.cancel_requested:
            state = "being cancelled" if study.cancel_requested else study.state
            raise ConflictError(
                f"study {study_id!r} is {state}; only the search of a study that is simulating can be ended early"
            )
        if SearchAccounting(study.search_accounting).is_charged:
            raise ConflictError(
                f"the trials of study {study_id!r} are charged ({study.search_accounting}): how many there are was fixed "
                "before the first, and cannot depend on what they show; pause or cancel it"
            )
        if not await repository.completed_trials(session, study.id):
            raise ConflictError(
                f"no trial of study {study_id!r} has completed yet, so there would be nothing to promote; wait for one, "
                "or cancel the study"
            )
        if not study.finish_requested:
            study.finish_requested, study.pause_requested = True, False
            await append_state(session, study)
        return await view(session, study.id)


async def promote(
    context: Context,
    study_id: str,
    trial: int | None,
    request: Keyed | None = None,
    *,
    by: Principal = LOCAL,
) -> tuple[StudyView, bool]:
    """Approve the promotion of a study that waits for it. Returns it, and whether this was the first time.

    Without ``trial`` the one that is proposed now is approved, and no other that might be proposed later. Where the
    search itself waits, because each of its trials is a private run, the search is what is approved.
    """
    async with context.database.session() as session:
        if request is not None and (known := await idempotency.claim(session, request)) is not None:
            return await _again(session, known), False
        study = await _find(session, study_id, lock=True)
        if study.state != StudyState.AWAITING_APPROVAL or study.cancel_requested:
            state = "being cancelled" if study.cancel_requested else study.state
            raise ConflictError(
                f"study {study_id!r} is {state}; only a study that is awaiting_approval "
                "can be promoted"
            )
        await _check_choice(session, study, trial)
        study.promote_requested = True
        if trial is not None:
            study.promoted_trial = trial
        if study.promotion is not None:
            if study.promoted_trial is None:
                study.promoted_trial = study.promotion["trial"]
            approval = Approval(
                token_id=by.id, name=by.name, trial=study.promoted_trial, at=await clock(session)
            )
            study.promotion = {
                **study.promotion,
                "approved_by": approval.model_dump(mode="json"),
            }
        if request is not None:
            idempotency.remember(session, request, study_id=study.id)
        return await view(session, study.id), True


async def _check_choice(session: AsyncSession, study: Study, trial: int | None) -> None:
    """Whether there is such a trial to promote; a study without a search, or before it, has none, and needs none."""
    completed = await repository.completed_trials(session, study.id)
    if trial is not None and not study.has_search:
        raise InvalidInputError.at(
            "trial", "this study has no search, so no trials; leave it out", trial
        )
    if trial is not None and trial not in completed:
        listed = ", ".join(str(number) for number in completed[:50]) or "none"
        raise InvalidInputError.at(
            "trial", f"not a completed trial of this study; completed: {listed}", trial
        )
    if study.has_search and await repository.run_of(session, study.id, "search") is None:
        return
    if not completed and study.has_search:
        raise ConflictError("no trial completed, so there is nothing to promote")


async def statement(context: Context, study_id: str) -> dict[str, Any]:
    """The signed privacy statement."""
    async with context.database.session() as session:
        study = await _find(session, study_id)
        if study.statement is None:
            raise NotFoundError(_not_yet(study, "privacy statement"))
        await _leave(context, session, study.statement)
    return study.statement


async def model(context: Context, study_id: str) -> ReleasedModel:
    """The released weights. Only a file below the run's own directory is ever served: its driver says which one it is,
    and beside it lie other tenants' models and what is kept of data. And only the very file that the run reported.

    The ledger that paid for them is marked first: no older database is served from then on.
    """
    async with context.database.session() as session:
        study = await _find(session, study_id)
        run = await repository.run_of(session, study_id, "private")
    if study.state != StudyState.COMPLETED or run is None or run.result is None:
        raise NotFoundError(_not_yet(study, "model"))
    path = _below(context.settings.storage_path / run.id, run.result["model_path"])
    if path is None:
        raise NotFoundError(f"the model of study {study_id!r} is no longer on storage")
    released, found = run.result["model_sha256"], await asyncio.to_thread(_sha256, path)
    if found != released:
        raise NotFoundError(
            f"the model of study {study_id!r} is no longer on storage: the SHA-256 of what lies there is {found[:16]}..., "
            f"that of what was released {released[:16]}..."
        )
    async with context.database.session() as session:
        await _leave(context, session, study.statement or {})
    return ReleasedModel(name=study.name, path=path, sha256=released)


async def view(session: AsyncSession, study_id: str) -> StudyView:
    """The study as the API shows it.

    Raises:
        NotFoundError: there is none.
    """
    await session.flush()
    found = await glance(session, study_id)
    if found is None:
        raise _no_such(study_id)
    study, seen = found
    run = seen.runs.get("private")
    position = (await line.positions(session, [study])).get(study.id)
    return StudyView(
        id=study.id,
        tenant=study.tenant,
        name=study.name,
        tags=study.tags,
        note=study.note,
        archived=study.archived,
        version=study.version,
        state=StudyState(study.state),
        reason=line.told(study.reason, position),
        paused=study.pause_requested and not StudyState(study.state).is_terminal,
        search_ended_early=study.finish_requested,
        priority=study.priority,
        queue_position=position,
        spec=study.spec,
        plan=study.plan,
        progress=seen.progress,
        best_trial=seen.best_trial,
        prediction=_prediction_view(study, run),
        approval=_approval(study, seen.approval),
        promotion=PromotionView.model_validate(study.promotion) if study.promotion else None,
        run=_run_view(study, run) if run else None,
        privacy=_privacy_view(study, seen.held),
        error=study.error,
        created_at=study.created_at,
        started_at=study.started_at,
        finished_at=study.finished_at,
    )


async def _find(session: AsyncSession, study_id: str, *, lock: bool = False) -> Study:
    study = await repository.find(session, study_id, lock=lock)
    if study is None:
        raise _no_such(study_id)
    return study


def _no_such(study_id: str) -> NotFoundError:
    return NotFoundError(f"there is no study {study_id!r}")


async def _leave(context: Context, session: AsyncSession, statement: dict[str, Any]) -> None:
    """Mark the entry that a statement names, and the newest one, before what it covers leaves.

    The named one too: a journal without it was rewritten, and is found by that.
    """
    if left := statement.get("ledger"):
        published = Published(context.settings.home_path)
        await published.leave(session, left["scope"], Head.model_validate(left["entry"]))
        await published.leave_head(session, left["scope"])


async def _again(session: AsyncSession, known: IdempotencyKey) -> StudyView:
    """The study that a key made or changed before, as it is now."""
    return await view(session, known.study_id or "")


async def _store(session: AsyncSession, prepared: Prepared, by: Principal) -> Study:
    spec, plan = prepared.spec, prepared.plan
    study_id = f"s-{secrets.token_hex(6)}"
    reservation: dict[str, str] = {}
    if prepared.dataset.scope_id is not None and prepared.reservation is not None:
        reservation["reservation_id"] = study_id
        await Ledger().admit_and_reserve(
            session,
            scope_id=prepared.dataset.scope_id,
            reservation_id=study_id,
            study_id=study_id,
            mechanism=prepared.reservation,
            actor=by.actor,
            delta=spec.privacy.delta,
            tenant=by.tenant,
            search_accounting=spec.search.accounting,
            baseline=spec.evaluation.baseline,
            together_with=prepared.search_reservations,
        )
        await _reserve_search(session, prepared, prepared.dataset.scope_id, study_id, by)
    study = Study(
        id=study_id,
        tenant=by.tenant,
        name=spec.name,
        state=StudyState.QUEUED,
        priority=spec.priority,
        spec=spec.model_dump(mode="json"),
        plan=plan.model_dump(mode="json"),
        dataset=prepared.dataset.name,
        search_dataset=prepared.search_dataset.name,
        search_accounting=spec.search.accounting.value,
        **reservation,
    )
    await repository.insert(session, study)
    await append_state(session, study)
    return study


async def _reserve_search(
    session: AsyncSession, prepared: Prepared, scope_id: str, study_id: str, by: Principal
) -> None:
    """Hold what a search that is charged will cost; nothing for any other."""
    held = list(zip(names.of_search(study_id), prepared.search_reservations, strict=False))
    for place, (reservation_id, mechanism) in enumerate(held):
        await Ledger().admit_and_reserve(
            session,
            scope_id=scope_id,
            reservation_id=reservation_id,
            study_id=study_id,
            mechanism=mechanism,
            actor=by.actor,
            tenant=by.tenant,
            search_accounting=prepared.spec.search.accounting,
            together_with=prepared.search_reservations[place + 1 :],
            after=(study_id, *(name for name, _ in held[:place])),
        )


def _summary(
    study: Study,
    best: float | None,
    tested: float | None,
    charged: Charged | None,
    position: int | None,
) -> StudySummary:
    planned = study.plan["privacy"]
    predicted = study.prediction or {}
    return StudySummary(
        id=study.id,
        tenant=study.tenant,
        name=study.name,
        tags=study.tags,
        archived=study.archived,
        state=StudyState(study.state),
        reason=line.told(study.reason, position),
        paused=study.pause_requested and not StudyState(study.state).is_terminal,
        priority=study.priority,
        queue_position=position,
        dataset=study.dataset,
        model=study.spec["model"]["name"],
        search_accounting=study.search_accounting,
        search_note=study.search_note,
        restored_note=restored_note(charged is not None and charged.is_restored),
        epsilon=epsilon.shown(study, charged_steps=charged.steps if charged else None),
        target_epsilon=planned.get("target_epsilon"),
        delta=planned["delta"],
        accountant=planned["accountant"],
        neighboring_relation=planned["neighboring_relation"],
        metric=study.spec["search"].get("metric", Metric.ACCURACY),
        best_accuracy=best,
        predicted_accuracy=predicted.get("accuracy"),
        predicted_low=predicted.get("low"),
        predicted_high=predicted.get("high"),
        test_accuracy=tested,
        created_at=study.created_at,
        started_at=study.started_at,
        finished_at=study.finished_at,
    )


def _run_view(study: Study, run: RunStanding) -> RunView:
    result = run.result or {}
    return RunView.model_validate(
        {
            "state": run.state,
            "reason": run.reason,
            "step": run.step,
            "steps": run.steps,
            "steps_per_second": run.steps_per_second,
            "attempt": run.attempt,
            "trial": study.promoted_trial,
            "began_from_trial": run.began_from_trial,
            "learning_rate": run.learning_rate,
            "test_accuracy": result.get("test_accuracy"),
            "num_test": result.get("num_test"),
            "evaluation": evaluation_view(run.result),
        }
    )


def _prediction_view(study: Study, run: RunStanding | None) -> PredictionView | None:
    if study.prediction is None:
        return None
    result = (run.result if run else None) or {}
    return PredictionView.of(
        Prediction.model_validate(study.prediction), result.get("test_accuracy")
    )


def _approval(study: Study, of_dataset: ApprovalRule) -> ApprovalRule | None:
    """Whether its private run waits for a person; None where that is decided."""
    state = StudyState(study.state)
    if state is StudyState.TRAINING or state.is_terminal:
        return None
    if state is StudyState.AWAITING_APPROVAL or study.spec["promotion"] == "manual":
        return "required"
    return of_dataset


def _privacy_view(study: Study, held: Held | None) -> PrivacyView:
    planned = study.plan["privacy"]
    entry = LedgerEntryRef(scope=held.scope, seq=held.seq, hash=held.hash) if held else None
    charged_steps = held.charged_steps if held else None
    return PrivacyView(
        epsilon=epsilon.shown(study, charged_steps=charged_steps),
        delta=planned["delta"],
        accountant=planned["accountant"],
        neighboring_relation=planned["neighboring_relation"],
        search_accounting=study.search_accounting,
        search_note=study.search_note,
        restored_note=restored_note(held is not None and held.is_restored),
        epsilon_reserved=epsilon.reserved(study) if held else None,
        charged_steps=charged_steps,
        reserved_steps=held.reserved_steps if held else None,
        ledger_entry=entry,
    )


def _below(folder: Path, name: str) -> Path | None:
    """The file, if there is one and it lies below the folder, links followed."""
    path = Path(name).resolve()
    return path if path.is_relative_to(folder) and path.is_file() else None


def _sha256(path: Path) -> str:
    """Of a file, read once for each time that it was written."""
    found = path.stat()
    return _sha256_of(path, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)


@lru_cache(maxsize=1024)
def _sha256_of(path: Path, *_: int) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _not_yet(study: Study, what: str) -> str:
    if StudyState(study.state).is_terminal and study.state != StudyState.COMPLETED:
        return f"study {study.id!r} is {study.state}: it has no {what}"
    return f"study {study.id!r} is {study.state}: its {what} exists once it is completed"

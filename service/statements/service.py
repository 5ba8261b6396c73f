"""The privacy statement of a finished private run: built from the ledger, never from intentions."""

import json
from importlib.metadata import version
from typing import Any

from anyio import to_thread
from sqlalchemy.ext.asyncio import AsyncSession

from service.datasets.schemas import OverlapView
from service.db.clock import clock
from service.db.session import Database
from service.db.tables import Dataset, Run, Study
from service.ledger import names
from service.ledger import repository as ledger
from service.ledger.searched import differs
from service.ledger.service import Ledger, missing_reservation
from service.plans.repository import of_own_model
from service.publication.keys import signing_key
from service.publication.signing import sign
from service.settings import Settings
from service.statements.facts import Charge, Facts, LedgerEntry
from service.statements.statement import StatementError, build
from service.studies import repository as studies
from tan_core.accounting import SearchAccounting
from tan_core.mechanism import Mechanism
from tan_core.spec import StudySpec
from tan_core.spec.train import TrainerConfig
from tan_core.wire import PrivateResult, TrialWeights


async def attest_weights(session: AsyncSession, study: Study) -> None:
    """Join the released weights to the hash chain, so that the entry a statement names covers them.

    Raises:
        StatementError: the private run has no result.
    """
    if study.reservation_id is None:
        return
    _, result = await _finished_run(session, study)
    await Ledger().attest(
        session,
        study.reservation_id,
        note={"study": study.id, "weights_sha256": result.model_sha256, "steps": result.steps},
        actor="statements",
    )


async def make_statement(database: Database, study_id: str, settings: Settings) -> dict[str, Any]:
    """The signed statement of a study whose private run succeeded. Nothing is stored or locked.

    Raises:
        StatementError: the run has no result, nothing was charged, or two implementations disagree.
        AccountantError: an accountant failed; it may do better at another time.
    """
    async with database.snapshot() as session:
        facts = await _facts(session, await session.get_one(Study, study_id))
    statement = await to_thread.run_sync(build, facts)
    return sign(statement, signing_key(settings.home_path))


async def _facts(session: AsyncSession, study: Study) -> Facts:
    run, result = await _finished_run(session, study)
    dataset = await session.get_one(Dataset, study.dataset)
    searched = await session.get_one(Dataset, study.search_dataset)
    software = dict(result.software)
    code_commit, image = software.pop("commit", None), software.pop("image", None)
    return Facts(
        study_id=study.id,
        study_name=study.name,
        spec=StudySpec.model_validate(study.spec),
        dataset_name=dataset.name,
        dataset_sha256=dataset.content_sha256,
        search_dataset=study.search_dataset,
        overlaps={
            each.name: OverlapView.model_validate(each.overlap)
            for each in {dataset, searched}
            if each.overlap is not None
        },
        unit=dataset.unit,
        records_per_unit=dataset.records_per_unit,
        is_public=dataset.public,
        num_examples=dataset.num_train,
        planned_steps=run.steps,
        has_stated_columns=any(not isinstance(each, str) for each in dataset.features or []),
        has_found_columns=dataset.source == "table" and not dataset.features,
        has_unnamed_classes=dataset.source != "digits" and dataset.classes is None,
        has_encoded_images=dataset.source in ("parquet", "image_folder"),
        learnt_from=study.plan.get("learnt_from"),
        precision=TrainerConfig.model_validate(run.assignment["trainer"]).precision,
        waiver=dataset.waiver,
        begun_from=_begun_from(run),
        own_model=await of_own_model(session, StudySpec.model_validate(study.spec).model),
        result=result,
        charge=await _charge(session, study, run, result),
        issued_at=await clock(session),
        versions={
            "tan-search": version("tan-search"),
            **software,  # of what ran, as its driver says; what priced it is known here
            "dp-accounting": version("dp-accounting"),
        },
        code_commit=code_commit,
        container_image=image,
    )


def _begun_from(run: Run) -> TrialWeights | None:
    begun = run.assignment.get("begin_from")
    return None if begun is None else TrialWeights.model_validate(begun)


def _expect_search(study: Study, reserved: str | None) -> None:
    """What is stated of the search must be what the journal was told before it began.

    Entries of before they said it (None) bind nothing: there the study's row has to do.

    Raises:
        StatementError: the study's row or its spec was changed since.
    """
    said = {study.search_accounting, study.spec["search"]["accounting"]}
    if said != {reserved or study.search_accounting}:
        raise StatementError(
            f"study {study.id!r} now says {' and '.join(sorted(said))} of its search, the ledger's entry "
            f"says {reserved or 'nothing'}: what would be stated is not what was declared"
        )


async def _finished_run(session: AsyncSession, study: Study) -> tuple[Run, PrivateResult]:
    run = await studies.run_of(session, study.id, "private")
    if run is None or run.result is None:
        raise StatementError(
            f"study {study.id!r} has no finished private run to make a statement of"
        )
    return run, PrivateResult.model_validate(run.result)


async def _charge(session: AsyncSession, study: Study, run: Run, result: PrivateResult) -> Charge:
    """What the ledger charged; on public data, what was released."""
    mechanism = Mechanism.from_json(run.assignment["mechanism"]["event"])
    if study.reservation_id is None:
        if fault := await missing_reservation(session, study):
            raise StatementError(fault)
        return Charge(mechanism=mechanism, charged_steps=result.steps, reserved_steps=None)
    held = await ledger.reservation(session, study.reservation_id)
    if held.study_id != study.id:
        raise StatementError(
            f"study {study.id!r} now names reservation {study.reservation_id!r}, which is that of study {held.study_id!r}: what "
            "would be stated was charged for another one"
        )
    reserved = Mechanism.from_json(json.loads(held.event))
    if reserved.with_steps(mechanism.steps) != mechanism:
        raise StatementError(
            f"the ledger holds another mechanism for study {study.id!r} than the one that was run"
        )
    _expect_search(study, held.search_accounting)
    searched = await _search_charges(session, study)
    scope = await ledger.scope(session, held.scope_id)
    entry = await ledger.last_entry_of(session, study.reservation_id)
    totals = await Ledger().totals(session, held.scope_id)
    return Charge(
        mechanism=reserved,
        charged_steps=held.charged_steps,
        reserved_steps=held.reserved_steps,
        search=tuple(searched.values()),
        search_reservations=tuple(searched),
        entry=LedgerEntry(
            scope=held.scope_id,
            reservation=held.reservation_id,
            seq=entry.seq,
            hash=entry.hash,
            budget_epsilon=scope.epsilon,
            budget_delta=scope.delta,
            head=totals.head,
            charged_epsilon=totals.charged_epsilon,
            accountant=totals.accountant,
            beside=await ledger.beside(session, held.scope_id),
        ),
    )


async def _search_charges(session: AsyncSession, study: Study) -> dict[str, Mechanism]:
    """What a search that is charged was charged, by reservation: its trials, then their scores.

    Raises:
        StatementError: the ledger does not hold both, holds others than ran, or was charged for more scores than trials
            or for fewer.
    """
    if not SearchAccounting(study.search_accounting).is_charged:
        return {}
    held = {each.reservation_id: each for each in await ledger.of_study(session, study.id)}
    trials, scores = (held.get(name) for name in names.of_search(study.id))
    if trials is None or scores is None or trials.charged is None or scores.charged is None:
        raise StatementError(
            f"the search of study {study.id!r} is to be charged, and the ledger has no charges of it"
        )
    run = await studies.run_of(session, study.id, "search")
    charged = run and run.assignment.get("charged")
    if not charged:
        raise StatementError(f"no search of study {study.id!r} ran what was charged for one")
    if (fault := differs(charged, trials=trials, scores=scores)) is not None:
        raise StatementError(fault)
    steps = Mechanism.from_json(charged["mechanism"]["event"]).steps
    if trials.charged_steps != scores.charged_steps * steps:
        raise StatementError(
            f"the search of study {study.id!r} was charged {trials.charged_steps} steps of trials and "
            f"{scores.charged_steps} scores, which do not belong together"
        )
    return {trials.reservation_id: trials.charged, scores.reservation_id: scores.charged}

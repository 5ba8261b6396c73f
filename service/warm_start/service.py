"""Which studies a search is seeded from, and with what."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Study
from service.warm_start import repository
from service.warm_start.points import FEWEST_TRIALS, Source, given_values, points_of
from tan_core.accounting import SearchAccounting
from tan_core.spec import FieldProblem, StudySpec
from tan_core.spec.features import scales
from tan_core.wire import KnownPoint

log = logging.getLogger(__name__)

NEWEST_STUDIES = 5
TRIALS_PER_STUDY = 2
_UNPAID = {
    True: (
        "whose search on these data was not charged, and this search is to be; accepted: studies whose search was "
        "accounted, and not begun from such a trial"
    ),
    False: (
        "whose search of private data was not accounted, and this one reads public data only; accepted: studies that are "
        "not begun from such a trial"
    ),
}
"""Why parameters of an unaccounted search teach nothing, by whether the search that asks is charged."""


async def faults(
    session: AsyncSession, spec: StudySpec, *, search_dataset: str, tenant: str | None
) -> list[FieldProblem]:
    """Why studies that ``search.warm_start`` names cannot be learnt from; only ``tenant``'s exist."""
    asked = spec.search.warm_start
    if isinstance(asked, str):
        return []
    known = await repository.named(session, asked, tenant=tenant)
    problems: list[FieldProblem] = []
    for index, study_id in enumerate(asked):
        message = _refusal(known.get(study_id), spec, search_dataset)
        if message is not None:
            path = f"search.warm_start.{index}"
            problems.append(FieldProblem(path=path, message=message, value=study_id))
    return problems


def _refusal(source: Study | None, spec: StudySpec, search_dataset: str) -> str | None:
    if source is None:
        return "there is no study of this id"
    if source.search_dataset != search_dataset:
        return (
            f"its search read {source.search_dataset!r}, this one reads {search_dataset!r}; "
            "accepted: studies that searched the same dataset"
        )
    mode = spec.search.accounting
    learnt = source.plan.get("learnt_from")
    if learnt is not None and mode is not SearchAccounting.DECLARED_UNACCOUNTED:
        return f"hyper-parameters that it fixes are those of {learnt}, {_UNPAID[mode.is_charged]}"
    if mode.is_charged and not SearchAccounting(source.search_accounting).is_charged:
        return (
            f"its search is {source.search_accounting}: what it found on these data was not charged, and this search "
            "is to be; accepted: studies whose search was accounted"
        )
    model = source.spec["model"]
    if model["name"] != spec.model.name:
        return f"it is a study of model {model['name']}; accepted: studies of {spec.model.name}"
    theirs, ours = _scales(source.spec), scales(spec.model, spec.search.space)
    if theirs and not theirs & ours:
        word, own = ("are", "are not") if theirs == {True} else ("are not", "are")
        return (
            f"its features {word} whitened, and those of this study {own}, so learning rates are on another "
            f"scale; accepted: studies whose features {own}"
        )
    return None


async def learnt_from(
    session: AsyncSession, spec: StudySpec, *, dataset: str, tenant: str | None
) -> str | None:
    """The trial whose parameters the study has, where a search of the same data that was not accounted found them.

    It is known by its parameters: each of them is a value that the study fixes, or has in one point of ``search.first``,
    to the last digit. What was rounded, what is searched again in a narrower range, and what another tenant found cannot
    be known. None: no such trial is known.

    Args:
        session: the transaction.
        spec: the study; of one that declares its own search unaccounted nothing is asked.
        dataset: that the private run reads.
        tenant: who asks; None: who sees all.
    """
    if spec.search.accounting is SearchAccounting.DECLARED_UNACCOUNTED:
        return None
    found = await repository.unaccounted_trial(
        session, dataset=dataset, tenant=tenant, model=spec.model, values=given_values(spec)
    )
    return None if found is None else f"trial {found[1]} of {found[0]}"


def _scales(document: Mapping[str, Any]) -> set[bool]:
    """:func:`scales` of a stored study; none where it cannot be read any more."""
    try:
        spec = StudySpec.model_validate(document)
    except ValidationError:
        return set()
    return scales(spec.model, spec.search.space)


async def points(session: AsyncSession, study: Study) -> list[KnownPoint]:
    """What the study's search tries first."""
    spec = StudySpec.model_validate(study.spec)
    sources = await _sources(session, study, spec)
    return points_of(spec.search, spec.model, sources)


async def _sources(session: AsyncSession, study: Study, spec: StudySpec) -> list[Source]:
    asked, own_scales = spec.search.warm_start, scales(spec.model, spec.search.space)
    if asked == "none" or (asked == "auto" and spec.search.trials < FEWEST_TRIALS):
        return []
    if asked == "auto":
        chosen: Sequence[Study] = await repository.newest_alike(
            session,
            tenant=study.tenant,
            search_dataset=study.search_dataset,
            model=spec.model,
            scales=own_scales,
            accounting=spec.search.accounting,
            other_than=study.id,
            limit=NEWEST_STUDIES,
        )
    else:
        known = await repository.named(session, asked, tenant=None)
        chosen = [known[study_id] for study_id in dict.fromkeys(asked)]
    found = [await _source(session, each, own_scales) for each in chosen]
    return [source for source in found if source is not None]


async def _source(session: AsyncSession, study: Study, own_scales: set[bool]) -> Source | None:
    try:
        spec = StudySpec.model_validate(study.spec)
    except ValidationError:
        # Accepted by an older version. No study fails for the sake of another one.
        log.warning("study %s cannot be read any more: nothing is learnt from it", study.id)
        return None
    return Source(
        study_id=study.id,
        spec=spec,
        steps=study.plan["reference"]["steps"],
        trials=await repository.best_trials(
            session, study, scales=own_scales, limit=TRIALS_PER_STUDY
        ),
    )

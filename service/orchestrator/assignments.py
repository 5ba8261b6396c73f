"""The part of a driver's assignment that is fixed when its run is made."""

import math
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Dataset, Run, Study, Trial
from service.plans.checks import is_by_class
from service.studies.repository import run_of, trial_record
from service.warm_start import service as warm_start
from tan_core.planner import Candidate, Plan, Target, factor_of, segment_rule
from tan_core.spec import StudySpec
from tan_core.wire import DatasetRef, TrialWeights, weights_path


async def search_run(session: AsyncSession, study: Study, *, storage_path: str) -> Run:
    """The run that simulates; it reads the search dataset and nothing else."""
    spec = StudySpec.model_validate(study.spec)
    plan = Plan.model_validate(study.plan)
    reference = plan.private_run()
    target = Target.of(spec)
    points = await warm_start.points(session, study)
    run_id = f"{study.id}-search"
    return Run(
        id=run_id,
        study_id=study.id,
        kind="search",
        state="active",
        assignment={
            "kind": "search",
            "study_id": study.id,
            "study_name": study.name,
            "search": spec.search.model_dump(mode="json"),
            "model": spec.model.model_dump(mode="json"),
            "trainer": spec.train.trainer().model_dump(mode="json"),
            "reference": {"event": reference.mechanism.to_json()},
            "target": target.to_json() if target else None,
            "num_examples": reference.num_examples,
            "rungs": plan.rungs,
            "heat": plan.heat is not None,
            "charged": _charged(plan),
            "weights_storage_path": f"{storage_path}/{run_id}" if plan.goes_on else None,
            "confirmation": plan.confirmation_batch,
            "max_examples": math.ceil(spec.search.budget * plan.cost.private_run_examples),
            "points": [point.model_dump(mode="json") for point in points],
            "dataset": await dataset_ref(session, study.search_dataset),
            "microbatch_size": spec.train.microbatch_size,
        },
    )


def _charged(plan: Plan) -> dict[str, Any] | None:
    """How the trials of a search that is charged run: as the very mechanism that is reserved."""
    charged = plan.charged_search
    if charged is None:
        return None
    return {
        "mechanism": {"event": charged.trial(plan.privacy.neighboring_relation).to_json()},
        "score_noise_multiplier": charged.score_noise_multiplier,
        "score_std": charged.score_std or 0.0,
        "anew": charged.anew,
    }


async def _weights_of(session: AsyncSession, trial: Trial) -> TrialWeights | None:
    """What the private run of this trial begins with: its weights, where its search was to keep them and it has."""
    search = await run_of(session, trial.study_id, "search")
    folder = search.assignment.get("weights_storage_path") if search else None
    sha256 = trial.weights_sha256
    if folder is None or sha256 is None:
        return None
    path = weights_path(folder, trial=trial.number, sha256=sha256)
    return TrialWeights(trial=trial.number, path=path, sha256=sha256)


async def private_run(
    session: AsyncSession,
    study: Study,
    candidate: Candidate,
    *,
    storage_path: str,
    trial: Trial | None,
) -> Run:
    """The run that is charged; it executes the candidate's very mechanism.

    Where it goes on from the weights of its trial, it does at the planned part of the learning rate that its trial took.
    """
    begin_from = await _weights_of(session, trial) if trial else None
    if begin_from is not None and trial is not None:
        plan = Plan.model_validate(study.plan)
        *_, last = plan.simulations
        factor, charged = last.learning_rate_factor, plan.charged_search
        if charged and charged.anew is not None and trial.number >= charged.anew:
            factor *= factor_of(trial_record(trial))
        candidate = candidate.at_learning_rate(factor)
    spec = StudySpec.model_validate(study.spec)
    dataset = await session.get_one(Dataset, study.dataset)
    mechanism = candidate.private_run.mechanism
    run_id = f"{study.id}-private"
    return Run(
        id=run_id,
        study_id=study.id,
        kind="private",
        state="active",
        steps=mechanism.steps,
        assignment={
            "kind": "private",
            "study_id": study.id,
            "study_name": study.name,
            "mechanism": {"event": mechanism.to_json()},
            "num_examples": candidate.private_run.num_examples,
            "model": candidate.model.model_dump(mode="json"),
            "trainer": candidate.trainer.model_dump(mode="json"),
            "metric": spec.search.metric,
            "workers": spec.train.workers,
            "microbatch_size": spec.train.microbatch_size,
            "by_class": is_by_class(spec, dataset),
            "baseline": spec.evaluation.baseline,
            "segment_steps": segment_rule(mechanism.steps).segment_steps,
            "dataset": await dataset_ref(session, study.dataset),
            "begin_from": begin_from.model_dump(mode="json") if begin_from else None,
            "storage_path": f"{storage_path}/{run_id}",
        },
    )


async def dataset_ref(session: AsyncSession, name: str) -> dict[str, Any]:
    """How workers find a dataset."""
    dataset = await session.get_one(Dataset, name)
    fields = DatasetRef.model_fields
    return DatasetRef.model_validate(
        {field: getattr(dataset, field) for field in fields}
    ).model_dump(mode="json")

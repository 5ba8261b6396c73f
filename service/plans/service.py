"""Planning: the spec against its data, then the arithmetic, in a thread. Nothing is stored."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from anyio import to_thread

from service.arithmetic import EFFORT_SECONDS
from service.auth.scopes import Principal
from service.body import validate
from service.context import Context
from service.datasets import repository as datasets
from service.datasets.schemas import BudgetView
from service.datasets.service import protection
from service.db.tables import Dataset
from service.errors import InvalidInputError
from service.ledger.fit import Wanted, budget_fit
from service.ledger.schemas import AdmissionRule, BudgetFit
from service.ledger.service import Ledger
from service.plans.checks import faults, import_faults, mode_faults, unknown_dataset
from service.plans.pretrained import pinned
from service.plans.rates import measured
from service.plans.repository import of_own_model
from service.plans.schemas import MechanismPlanRequest, PlanView, UnregisteredDataset
from service.warm_start import service as warm_start
from tan_core.accounting import SEARCH_NOTES, note_of_search, price
from tan_core.errors import AccountantError, ParameterError, TooHardError
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation
from tan_core.planner import ModelCost, Plan, model_cost, plan_mechanism, plan_study, reservations
from tan_core.spec import FieldProblem, StudySpec
from tan_core.spec.features import feature_models
from tan_core.wire import RECORD

PRV_EFFORT_SECONDS = 30.0
"""A process for every answer, and a calibration asks for several."""
LEDGER_EFFORT_SECONDS = 30.0
"""A ledger with hundreds of unlike mechanisms takes that long, and to admit a study as long."""
_PLACEHOLDER = "unregistered"
T = TypeVar("T")


@dataclass(frozen=True)
class Prepared:
    """A study that can be run: what was asked for, its data, the plan, and what it must reserve."""

    spec: StudySpec
    plan: Plan
    dataset: Dataset
    search_dataset: Dataset
    reservation: Mechanism | None
    """Of the candidate that costs the budget most, slack included; None on a public dataset."""
    search_reservations: tuple[Mechanism, ...] = ()
    """Of the trials and of their scores, spare ones included; none where the search is not charged."""


@dataclass(frozen=True)
class _Planned:
    """A study that fits its data, and the file that its model begins from."""

    spec: StudySpec
    plan: Plan
    dataset: Dataset
    search_dataset: Dataset
    budget: BudgetView | None


async def prepare(context: Context, spec: StudySpec, *, tenant: str | None = None) -> Prepared:
    """Check a study against the data it names, plan it, and say what the ledger must hold for it.

    Only studies of ``tenant`` can be learnt from, and tell how fast a model is; None: any.

    Raises:
        InvalidInputError: a dataset is unknown, or does not allow or fit what the study asks; or no plan
            meets the target.
    """
    planned = await _plan_registered(context, spec, tenant)
    reservation = None
    if planned.budget is not None:
        reservation = await _computed(
            context,
            spec,
            partial(_costliest, spec, planned.plan, planned.budget.delta),
            is_priced_by_pld=True,
        )
    charged = planned.plan.charged_search
    relation = planned.plan.privacy.neighboring_relation
    return Prepared(
        spec=planned.spec,
        plan=planned.plan,
        dataset=planned.dataset,
        search_dataset=planned.search_dataset,
        reservation=reservation,
        search_reservations=charged.reserved(relation) if charged else (),
    )


async def plan_body(context: Context, body: Mapping[str, Any], *, by: Principal) -> PlanView:
    """The plan of whichever form of request this is, as ``by`` would submit it."""
    if "mechanism" in body:
        return _view(await _plan_mechanism(context, validate(MechanismPlanRequest, dict(body))))
    if "num_examples" in body or isinstance(body.get("dataset"), Mapping):
        return _view(await _plan_unregistered(context, dict(body)))
    spec = validate(StudySpec, dict(body))
    return await told(context, await prepare(context, spec, tenant=by.reaches), by=by)


async def told(context: Context, prepared: Prepared, *, by: Principal) -> PlanView:
    """The plan with what is so now: what is stored of it says nothing that may change."""
    plan = _told(prepared.plan, prepared.spec, prepared.dataset)
    return _view(plan, await budget_now(context, prepared, by))


def _view(plan: Plan, budget: BudgetFit | None = None) -> PlanView:
    return PlanView(**{name: getattr(plan, name) for name in Plan.model_fields}, budget=budget)


async def budget_now(context: Context, prepared: Prepared, by: Principal) -> BudgetFit | None:
    """Whether the study would be admitted now, if ``by`` submitted it; None where there is no budget."""
    if prepared.dataset.scope_id is None or prepared.reservation is None:
        return None
    async with context.database.snapshot() as session:
        foreseen = await Ledger().foresee(
            session,
            scope_id=prepared.dataset.scope_id,
            mechanism=prepared.reservation,
            together_with=prepared.search_reservations,
            tenant=by.tenant,
        )
    privacy = prepared.plan.privacy
    wanted = Wanted(
        dataset=prepared.dataset.name,
        epsilon=privacy.target_epsilon,
        delta=privacy.delta,
        steps=prepared.plan.reference.steps,
    )
    return await context.arithmetic.run(
        partial(budget_fit, foreseen, wanted), effort_seconds=LEDGER_EFFORT_SECONDS
    )


async def _plan_registered(context: Context, spec: StudySpec, tenant: str | None) -> _Planned:
    spec, refusals = await _with_foreign_parts(context, spec)
    async with context.database.session() as session:
        found = {
            path: (name, await datasets.find(session, name))
            for path, name in _named_datasets(spec).items()
        }
        known = await datasets.names(session)
        problems = [
            unknown_dataset(path, name, known)
            for path, (name, dataset) in found.items()
            if dataset is None
        ]
        if problems:
            raise InvalidInputError.of([*problems, *mode_faults(spec), *refusals])
        rows = {path: dataset for path, (_, dataset) in found.items() if dataset is not None}
        private = rows["dataset"]
        search = rows.get("search.dataset", private)
        protected = await protection(session, private)
        refusals += await warm_start.faults(
            session, spec, search_dataset=search.name, tenant=tenant
        )
        if problems := [*faults(spec, private, search, protected), *refusals]:
            raise InvalidInputError.of(problems)
        rates = await measured(
            session, spec, dataset=private.name, search_dataset=search.name, tenant=tenant
        )
        learnt_from = None
        if protected is not None:
            learnt_from = await warm_start.learnt_from(
                session, spec, dataset=private.name, tenant=tenant
            )
        of_file = await of_own_model(session, spec.model)
    relation = protected.neighboring_relation if protected else _of_no_budget(spec)
    plan = await _computed(
        context,
        spec,
        partial(
            plan_study,
            spec,
            num_examples=private.num_train,
            search_num_examples=search.num_train,
            neighboring_relation=relation,
            model=_largest(spec, private),
            private_run_rate=rates.private_run,
            search_rate=rates.search,
            num_validation=search.num_scored,
        ),
        is_priced_by_pld=protected is not None and protected.admission is AdmissionRule.PLD,
    )
    budget = protected.budget if protected else None
    of_data = {
        "reservation": plan.reservation.model_copy(update={"charged": budget is not None}),
        "cost": plan.cost.model_copy(update={"counts": _counts(private, search)}),
        "warnings": [*plan.warnings, *([f"model.pretrained: {of_file}"] if of_file else [])],
    }
    plan = _noted(plan.model_copy(update=of_data), spec, learnt_from)
    return _Planned(spec=spec, plan=plan, dataset=private, search_dataset=search, budget=budget)


def _noted(plan: Plan, spec: StudySpec, learnt_from: str | None) -> Plan:
    """The plan with what is known of where the study's parameters come from."""
    if learnt_from is None or plan.search_privacy is None:
        return plan
    mode = spec.search.accounting
    note = plan.search_privacy.note.replace(
        SEARCH_NOTES[mode], note_of_search(mode, learnt_from=learnt_from), 1
    )
    found = plan.search_privacy.model_copy(update={"note": note})
    return plan.model_copy(update={"learnt_from": learnt_from, "search_privacy": found})


def _told(plan: Plan, spec: StudySpec, dataset: Dataset) -> Plan:
    is_charged = spec.search.accounting.is_charged
    if dataset.approval == "automatic" or (spec.promotion == "manual" and not is_charged):
        return plan
    rule = f"dataset {dataset.name!r} requires that a person approves every private run"
    warning = (
        f"{rule}, and each trial of this search is one: the study waits for tan-cli promote before its search, and "
        "once more after it"
        if is_charged
        else f"{rule}: after its search the study waits for tan-cli promote, though it says promotion: automatic"
    )
    return plan.model_copy(update={"warnings": [*plan.warnings, warning]})


def _largest(spec: StudySpec, dataset: Dataset) -> ModelCost | None:
    """The size of the model, where candidates are trained on unlike features of the one with most of them."""
    costs = [
        model_cost(model, shape=dataset.shape, num_classes=dataset.num_classes)
        for model in feature_models(spec.model, spec.search.space)
    ]
    known = [cost for cost in costs if cost is not None]
    size = lambda cost: (cost.num_parameters, cost.activation_floats_per_example or 0)  # noqa: E731
    return max(known, key=size, default=None)


async def _with_foreign_parts(
    context: Context, spec: StudySpec
) -> tuple[StudySpec, list[FieldProblem]]:
    """The study with its checkpoint pinned, and what of its code and its weights may not be used."""
    settings = context.settings
    spec, unreadable = await to_thread.run_sync(pinned, spec, settings.pretrained_path)
    return spec, [*import_faults(spec, settings.allowed_model_prefixes), *unreadable]


def _counts(private: Dataset, search: Dataset) -> str:
    """What is drawn of both."""
    drawn = {"examples" if each.unit == RECORD else "users" for each in (private, search)}
    return drawn.pop() if len(drawn) == 1 else "units"


def _of_no_budget(spec: StudySpec) -> NeighboringRelation:
    """The relation where no budget names one: what is usual, or what a cap on batches needs."""
    if spec.train.max_batch_size is None:
        return NeighboringRelation.ADD_OR_REMOVE_ONE
    return NeighboringRelation.ZERO_OUT


def _costliest(spec: StudySpec, plan: Plan, delta: float) -> Mechanism:
    """Of all that may be promoted, what costs most at the delta of the budget."""
    held = reservations(spec, plan)
    if len(held) == 1:
        return held[0]
    return max(held, key=lambda mechanism: price([mechanism], delta=delta).epsilon)


async def _plan_unregistered(context: Context, body: dict[str, Any]) -> Plan:
    if "num_examples" in body and isinstance(body.get("dataset"), Mapping):
        raise InvalidInputError.at("num_examples", "stated twice: here and in dataset.num_examples")
    if "num_examples" in body:
        size = validate(UnregisteredDataset, {"num_examples": body.pop("num_examples")})
        body.setdefault("dataset", _PLACEHOLDER)
    else:
        size = validate(UnregisteredDataset, body["dataset"], prefix=("dataset",))
        body["dataset"] = _PLACEHOLDER
    spec = validate(StudySpec, body)
    spec, refusals = await _with_foreign_parts(context, spec)
    if problems := [*mode_faults(spec), *refusals]:
        raise InvalidInputError.of(problems)
    return await _computed(
        context,
        spec,
        partial(
            plan_study,
            spec,
            num_examples=size.num_examples,
            neighboring_relation=_of_no_budget(spec),
        ),
    )


async def _plan_mechanism(context: Context, request: MechanismPlanRequest) -> Plan:
    shape = request.mechanism
    if shape.expected_batch_size > shape.num_examples:
        raise InvalidInputError.of(
            [
                FieldProblem(
                    path="mechanism.expected_batch_size",
                    message=f"cannot exceed num_examples = {shape.num_examples}",
                    value=shape.expected_batch_size,
                )
            ]
        )
    return await _computed(
        context,
        request,
        partial(
            plan_mechanism,
            num_examples=shape.num_examples,
            expected_batch_size=shape.expected_batch_size,
            noise_multiplier=shape.noise_multiplier,
            steps=shape.steps,
            clip_norm=shape.clip_norm,
            delta=request.delta,
            accountant=request.accountant,
            trials=request.trials,
            rungs=request.rungs,
        ),
    )


async def _computed(
    context: Context,
    asked: StudySpec | MechanismPlanRequest,
    compute: Callable[[], T],
    *,
    is_priced_by_pld: bool = False,
) -> T:
    """What ``compute`` answers, or the refusal of what cannot be planned or takes too long to price.

    Args:
        context: whose arithmetic computes.
        asked: the question.
        compute: the answer.
        is_priced_by_pld: whether a budget is, that would have to admit it: then no other accountant helps.
    """
    if isinstance(asked, StudySpec):
        accountant, section, place = asked.privacy.accountant, "train", "privacy.accountant"
        if asked.searched("steps") is not None:
            section = "search.space"
    else:
        accountant, section, place = asked.accountant, "mechanism", "accountant"
    cheaper = _cheaper(asked, accountant, is_priced_by_pld=is_priced_by_pld)
    is_prv = accountant is Accountant.PRV
    try:
        return await context.arithmetic.run(
            compute, effort_seconds=PRV_EFFORT_SECONDS if is_prv else EFFORT_SECONDS
        )
    except ParameterError as error:
        if error.field is None:
            raise
        raise InvalidInputError.at(error.field, str(error), _asked_at(error.field, asked)) from None
    except TooHardError as error:
        path = f"{section}.steps"
        raise InvalidInputError.at(
            path, f"{error}; {cheaper} take less", _asked_at(path, asked)
        ) from None
    except AccountantError as error:
        raise InvalidInputError.at(
            place, f"{error}; what may have a price: {cheaper}", accountant.value
        ) from None


def _cheaper(
    asked: StudySpec | MechanismPlanRequest, accountant: Accountant, *, is_priced_by_pld: bool
) -> str:
    """What takes an accountant less. No Rényi bound is known for batches with a cap."""
    is_capped = isinstance(asked, StudySpec) and asked.train.max_batch_size is not None
    if accountant is Accountant.RDP or is_capped or is_priced_by_pld:
        return "fewer steps, more noise or a larger delta"
    return "fewer steps, more noise, a larger delta or accountant rdp"


def _asked_at(path: str, asked: StudySpec | MechanismPlanRequest) -> Any:
    """What stands at a path of the question; None where nothing does."""
    found: Any = asked.model_dump(mode="json")
    while isinstance(found, dict) and path not in found:  # a key of search.space may hold dots
        key, _, path = path.partition(".")
        found = found.get(key)
    return found[path] if isinstance(found, dict) else None


def _named_datasets(spec: StudySpec) -> dict[str, str]:
    named = {"dataset": spec.dataset}
    if spec.search.dataset is not None:
        named["search.dataset"] = spec.search.dataset
    return named

"""Registration: look at the data, hold it to its first registration, open its budget."""

from collections.abc import Sequence
from dataclasses import dataclass

from anyio import to_thread
from sqlalchemy.ext.asyncio import AsyncSession

from service import idempotency
from service.auth.scopes import Principal
from service.context import Context
from service.datasets import overlap, paths, repository
from service.datasets.overlap import DigestKey
from service.datasets.schemas import (
    ALLOWED_MODES,
    NOTHING_TO_APPROVE,
    ApprovalRule,
    BudgetView,
    DatasetRegistration,
    DatasetView,
    OverlapView,
    SharedRecords,
)
from service.db.session import Database
from service.db.tables import Dataset, IdempotencyKey
from service.errors import ConflictError, InvalidInputError, NotFoundError, ServiceError
from service.idempotency import Keyed
from service.ledger import repository as ledger
from service.ledger.registered import registration_of
from service.ledger.schemas import AdmissionRule, Scope
from service.ledger.service import Ledger
from service.text import counted, known_names
from tan_core.data import DatasetFacts, Storage, inspect
from tan_core.data.facts import FAR
from tan_core.data.remote import forget_fetched
from tan_core.data.storage import LOCAL
from tan_core.errors import DatasetError
from tan_core.mechanism import NeighboringRelation
from tan_core.planner.privacy import delta_caution
from tan_core.spec.columns import as_json
from tan_core.wire import RECORD

DIGITS = DatasetRegistration(
    name="digits",
    source="digits",
    epsilon=100.0,
    delta=1e-3,
    allow=list(ALLOWED_MODES),
    waiver="tan-search: published data bundled with scikit-learn, there to try the service out",
)


@dataclass(frozen=True)
class Protection:
    """What a private dataset's budget says; None of it for public data."""

    neighboring_relation: NeighboringRelation
    budget: BudgetView
    admission: AdmissionRule


async def register_for(
    context: Context,
    registration: DatasetRegistration,
    *,
    by: Principal,
    request: Keyed | None = None,
    dry_run: bool = False,
) -> tuple[DatasetView, bool]:
    """:func:`register`, where this service's datasets may lie and no further."""
    settings = context.settings
    if registration.path is not None:
        await to_thread.run_sync(paths.check, registration.path, settings)
    return await register(
        context.database,
        registration,
        actor=by.actor,
        request=request,
        storage=settings.dataset_storage,
        key=await to_thread.run_sync(overlap.digest_key, settings.home_path),
        dry_run=dry_run,
    )


async def register(
    database: Database,
    registration: DatasetRegistration,
    *,
    actor: str,
    request: Keyed | None = None,
    storage: Storage = LOCAL,
    key: DigestKey | None = None,
    dry_run: bool = False,
) -> tuple[DatasetView, bool]:
    """Look at the data and store what was found, with its budget, in one transaction.

    Returns the dataset, and whether it is new: not where its key has registered it before.

    Args:
        database: the control plane's.
        registration: what the owner states.
        actor: who asked.
        request: its idempotency key.
        storage: where datasets may lie.
        key: of the digests of records; without it they are compared with no other dataset's.
        dry_run: do all of it and take it back: what is told or refused is what would be.

    Raises:
        DatasetError: the data is missing, unreadable or malformed.
        ConflictError: the name, the bytes of one of the files, or many of the records are registered
            already.
    """
    async with database.session() as session:
        if request is not None and (known := await idempotency.claim(session, request)) is not None:
            return await _again(session, known), False
        if await repository.find(session, registration.name) is not None:
            raise ConflictError(f"a dataset {registration.name!r} is registered already")
    facts = await to_thread.run_sync(_inspect, registration, storage, key, not dry_run)
    try:
        return await _store(
            database, registration, facts, actor=actor, request=request, key=key, dry_run=dry_run
        )
    except ServiceError:
        await _forget_refused(database, facts, storage)
        raise


async def _store(
    database: Database,
    registration: DatasetRegistration,
    facts: DatasetFacts,
    *,
    actor: str,
    request: Keyed | None,
    key: DigestKey | None,
    dry_run: bool,
) -> tuple[DatasetView, bool]:
    """What was found, as a dataset with its budget."""
    async with database.session() as session:
        if request is not None and (known := await idempotency.claim(session, request)) is not None:
            return await _again(session, known), False
        dataset = _row(registration, facts)
        others = await _shared_with(session, registration, facts, key)
        if others and registration.accept_overlap is not None:
            accepted = OverlapView(accepted=registration.accept_overlap, others=others)
            dataset.overlap = accepted.model_dump()
        if not await repository.store(session, dataset, facts.file_sha256):
            raise await _conflict(session, registration.name, facts)
        if others and registration.accept_overlap is None:
            raise ConflictError(overlap.refusal(others, public=registration.public))
        if key is not None and facts.record_digests is not None:
            session.add(overlap.kept(dataset.name, facts.record_digests, key))
        if not registration.public:
            await _open_scope(session, dataset, registration, actor=actor)
        if request is not None:
            idempotency.remember(session, request, dataset=dataset.name)
        await session.refresh(dataset)
        made = await view(session, dataset)
        # Told to whoever brought the records, and not stored: others may see the dataset and not its records.
        cautions = [
            *made.warnings,
            *_unknown_caution(await _not_compared(session, registration, key)),
            *_far_caution(facts),
            *_choices_caution(facts),
            *_unseen_caution(facts),
            *_folders_caution(facts),
            *_seen_caution(facts),
            *([] if registration.public else _repeated_caution(facts)),
        ]
        made = made.model_copy(update={"warnings": cautions})
        if dry_run:
            await session.rollback()
        return made, True


async def _forget_refused(database: Database, facts: DatasetFacts, storage: Storage) -> None:
    """Delete what was fetched to look at it, unless it is a dataset's that is registered."""
    if storage.store is None:
        return
    async with database.session() as session:
        if await repository.holds_content(session, facts.content_sha256):
            return
    await to_thread.run_sync(forget_fetched, facts.content_sha256, storage.store)


async def ensure_digits(database: Database, *, key: DigestKey | None = None) -> None:
    """Register the dataset bundled with scikit-learn, once."""
    async with database.session() as session:
        if await repository.find(session, DIGITS.name) is not None:
            return
    try:
        await register(database, DIGITS, actor="local", key=key)
    except ConflictError:
        return  # another starter was first, or its bytes are known by another name


async def find(session: AsyncSession, name: str) -> Dataset:
    """The dataset of this name."""
    dataset = await repository.find(session, name)
    if dataset is None:
        known = known_names(name, await repository.names(session))
        raise NotFoundError(f"there is no dataset {name!r}; registered: {known}")
    return dataset


async def set_approval(session: AsyncSession, name: str, rule: ApprovalRule) -> Dataset:
    """The dataset with its rule of approval changed.

    Raises:
        NotFoundError: there is none of this name.
        InvalidInputError: it is public.
    """
    dataset = await find(session, name)
    if dataset.public and rule == "required":
        raise InvalidInputError.at("approval", NOTHING_TO_APPROVE, rule)
    dataset.approval = rule
    await session.flush()
    return dataset


def scope_of(name: str) -> str:
    """The scope that a private dataset's budget hangs on."""
    return f"dataset:{name}"


def unit_word(unit: str) -> str:
    """What one guarantee is for, in a word, whatever the column is called."""
    return RECORD if unit == RECORD else "user"


async def protection(session: AsyncSession, dataset: Dataset) -> Protection | None:
    """The budget behind a private dataset."""
    if dataset.scope_id is None:
        return None
    return _protected(await ledger.scope(session, dataset.scope_id))


def _protected(scope: Scope) -> Protection:
    return Protection(
        neighboring_relation=scope.neighboring_relation,
        budget=BudgetView(epsilon=scope.epsilon, delta=scope.delta),
        admission=scope.admission,
    )


async def view(session: AsyncSession, dataset: Dataset) -> DatasetView:
    """The row and its budget as the API shows them."""
    return _view(dataset, await protection(session, dataset))


async def views(session: AsyncSession, found: Sequence[Dataset]) -> list[DatasetView]:
    """Each of them as :func:`view` shows it, with all budgets in one query."""
    scopes = await ledger.scopes(session, [each.scope_id for each in found if each.scope_id])
    return [
        _view(each, _protected(scopes[each.scope_id]) if each.scope_id else None) for each in found
    ]


def _view(dataset: Dataset, protected: Protection | None) -> DatasetView:
    stored = {
        name: getattr(dataset, name) for name in DatasetView.model_fields if name not in _OF_SCOPE
    }
    return DatasetView.model_validate(
        {
            **stored,
            "neighboring_relation": protected.neighboring_relation if protected else None,
            "budget": protected.budget if protected else None,
            "admission": protected.admission if protected else None,
            "warnings": [
                *(delta_caution(protected.budget.delta, dataset.num_train) if protected else []),
                *_unread_caution(dataset.source, dataset.unread_columns),
            ],
        }
    )


def _folders_caution(facts: DatasetFacts) -> list[str]:
    """That images which somebody has sorted further are in no class. What the folders are called is theirs to know."""
    if not facts.num_unread_folders:
        return []
    return [
        f"nothing reads the images of {counted(facts.num_unread_folders, 'folder')} within class folders: move them into the folder of "
        "their class, and register that"
    ]


def _unread_caution(source: str, names: Sequence[str]) -> list[str]:
    """That a model sees less than is stored, where nobody asked for it."""
    if not names:
        return []
    if source == "npz":
        return [
            f"nothing reads {counted(len(names), 'array')} ({_first(names)}): records are in x and y, or in x_train, y_train, "
            "x_val, y_val, x_test and y_test. Rename what is one of these, and register that"
        ]
    return [
        f"no model reads {counted(len(names), 'column')} ({_first(names)}): what holds no numbers is no feature. To learn "
        "from text, say which choices it has (--features), from lists give each number a column, and register that"
    ]


def _unknown_caution(names: Sequence[str]) -> list[str]:
    """That the same records may have a budget already, and nobody could tell."""
    if not names:
        return []
    return [
        f"its records were not compared with those of {counted(len(names), 'dataset')} ({_first(names)}), registered under another "
        "TAN_HOME/secret: whether they hold the same people is for you to know"
    ]


def _far_caution(facts: DatasetFacts) -> list[str]:
    """That columns are not brought to one scale, where that would spoil what is trained on them."""
    names = facts.far_features
    if not names:
        return []
    remedy = "Divide by public constants"
    if facts.source == "table":
        remedy = "State the range of each (--features), or divide by public constants"
    return [
        f"{counted(len(names), 'feature')} ({_first(names)}) with numbers beyond ±{FAR:g}: a table is never scaled by its "
        f"own statistics, and such numbers drown the others. {remedy}, and register that"
    ]


def _choices_caution(facts: DatasetFacts) -> list[str]:
    """That a choice is written otherwise in the table, which is mostly not meant."""
    names = facts.unseen_choices
    if not names:
        return []
    return [
        f"no training record has {counted(len(names), 'choice')} ({_first(names)}): choices are compared letter by letter, and "
        "whatever is none of them is 0 in all of their columns. Are they written as in the table?"
    ]


def _unseen_caution(facts: DatasetFacts) -> list[str]:
    """That labels do not begin at 0 or leave some out, which is mostly not meant."""
    classes = facts.unseen_classes
    if not classes:
        return []
    return [
        f"no training record has the label {_first(classes)}: classes are numbered from 0 to the largest label, so there "
        f"are {facts.num_classes:,}. If fewer are meant, number them without gaps and register that"
    ]


def _seen_caution(facts: DatasetFacts) -> list[str]:
    """That accuracies are of records that a model has learnt from, where these are more than a few that are alike by chance."""
    sizes = {"validation": facts.num_validation, "test": facts.num_test}
    return [
        f"{seen:,} of {counted(sizes[role], f'{role} record')} {'is' if seen == 1 else 'are'} in train as well, but for "
        f"labels: what a model knows by heart counts as told right, and nothing protects who is in {role}. If these are the "
        "same records, and not only alike, leave them out of one of the two and register that"
        for role, seen in facts.seen_in_train.items()
        if seen > overlap.LEAST_SHARE * sizes[role]
    ]


def _repeated_caution(facts: DatasetFacts) -> list[str]:
    """That somebody has several units, where these records are more than a few that are alike by chance."""
    repeated = facts.repeated_in_train
    if repeated <= overlap.LEAST_SHARE * facts.num_train:
        return []
    return [
        f"{repeated:,} of {counted(facts.num_train, 'training record')} are there more than once, but for labels: a record that is "
        "there twice is protected half as well as ε says. If these are the same records, and not only alike, leave them out but for one, or "
        "name the column that says whose a record is (--unit), and register that"
    ]


def _first(named: Sequence[object]) -> str:
    """A few of them, and how many more there are."""
    others = len(named) - _NAMED_AT_ONCE
    more = f" and {counted(others, 'other')}" if others > 0 else ""
    return ", ".join(map(repr, named[:_NAMED_AT_ONCE])) + more


async def _again(session: AsyncSession, known: IdempotencyKey) -> DatasetView:
    """The dataset that a key registered before."""
    return await view(session, await find(session, known.dataset or ""))


_NAMED_AT_ONCE = 5
_OF_SCOPE = frozenset({"neighboring_relation", "budget", "admission", "warnings"})


async def _shared_with(
    session: AsyncSession,
    registration: DatasetRegistration,
    facts: DatasetFacts,
    key: DigestKey | None,
) -> list[SharedRecords]:
    if key is None or facts.record_digests is None:
        return []
    return await overlap.find(session, facts.record_digests, key, public=registration.public)


async def _not_compared(
    session: AsyncSession, registration: DatasetRegistration, key: DigestKey | None
) -> Sequence[str]:
    return (
        [] if key is None else await overlap.not_compared(session, key, public=registration.public)
    )


def _inspect(
    registration: DatasetRegistration, storage: Storage, key: DigestKey | None, keep: bool
) -> DatasetFacts:
    try:
        return inspect(
            registration.path,
            source=registration.source,
            label=registration.label,
            features=registration.features,
            num_classes=registration.num_classes,
            classes=registration.classes,
            split_seed=registration.split_seed,
            unit=registration.unit,
            records_per_unit=registration.records_per_unit,
            group=registration.group,
            storage=storage,
            digest_key=None if key is None else key.secret,
            keep=keep,
        )
    except ValueError as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(f"cannot be read: {error}", field="path") from error


def _row(registration: DatasetRegistration, facts: DatasetFacts) -> Dataset:
    private = not registration.public
    return Dataset(
        name=registration.name,
        source=facts.source,
        path=registration.path if facts.source != "digits" else None,
        label=registration.label,
        **({"features": as_json(registration.features)} if registration.features else {}),
        **({"classes": registration.classes} if registration.classes else {}),
        content_sha256=facts.content_sha256,
        num_classes=facts.num_classes,
        shape=list(facts.shape),
        num_train=facts.num_train,
        num_train_records=facts.num_train_records,
        num_validation=facts.num_validation,
        num_validation_users=facts.num_validation_users,
        num_test=facts.num_test,
        split_seed=registration.split_seed,
        unit=registration.unit,
        records_per_unit=facts.records_per_unit,
        unread_columns=list(facts.unread_columns),
        group=registration.group,
        public=registration.public,
        allowed_modes=[mode.value for mode in registration.allowed_modes()],
        waiver=registration.waiver,
        approval=registration.approval,
        scope_id=scope_of(registration.name) if private else None,
    )


async def _open_scope(
    session: AsyncSession, dataset: Dataset, registration: DatasetRegistration, *, actor: str
) -> None:
    assert dataset.scope_id is not None  # noqa: S101 - private
    assert registration.epsilon is not None  # noqa: S101 - private
    assert registration.delta is not None  # noqa: S101 - private
    await Ledger().open_scope(
        session,
        scope_id=dataset.scope_id,
        unit=unit_word(registration.unit),
        neighboring_relation=registration.neighboring_relation,
        epsilon=registration.epsilon,
        delta=registration.delta,
        admission=registration.admission,
        registration=registration_of(dataset),
        actor=actor,
    )


async def _conflict(session: AsyncSession, name: str, facts: DatasetFacts) -> ConflictError:
    held = await repository.holder(session, facts.file_sha256)
    if held is None or held.dataset == name:
        return ConflictError(f"a dataset {name!r} is registered already")
    return ConflictError(
        f"the same data is registered already: {facts.files[held.sha256]!r} is in dataset "
        f"{held.dataset!r}; one dataset has one budget, whatever it is called and however it is cut"
    )

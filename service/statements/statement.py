"""A statement from its facts: priced by two implementations, refused when they disagree. Pure."""

from typing import Any

from service.evaluation import EvaluationView, evaluation_view
from service.statements.coverage import coverage_of
from service.statements.facts import Facts
from service.statements.readable import OF_EVENTS
from service.statements.verify import (
    SCHEMA,
    TOLERANCE,
    EventError,
    agrees,
    epsilon_of_events,
    rdp_epsilon_of_events,
    recompute,
)
from tan_core.accounting import MIN_DELTA, note_of_search, price
from tan_core.errors import AccountantError, TanError
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation
from tan_core.spec.models import PythonModel
from tan_core.spec.pretrained import Trained
from tan_core.spec.study import Metric
from tan_core.spec.train import Precision
from tan_core.wire import RECORD, TrialWeights

VERIFY = "tan-cli statement --file FILE --verify --key PEM"
NEEDED = (
    "This document in FILE, and the public key of whoever should have signed it in PEM. No server is asked: epsilon is "
    "computed again from events by dp-accounting."
)
OF_THE_SPLIT = (
    "Which {unit}s are in the training split is treated as fixed and public: neighbouring datasets differ in "
    "one {unit} of that split."
)
ASSUMPTIONS = (
    "Each {unit} enters each batch independently with probability sampling_rate (Poisson sampling), "
    "drawn from a cryptographic generator keyed by the operating system's entropy.",
    "Each {unit}'s gradient is scaled to a norm of at most clip_norm before Gaussian noise of standard deviation "
    "noise_multiplier * clip_norm is added, once per step over all workers.",
    "Gradients are scaled and summed in float32, where round-off may let one {unit} move a sum by slightly more than "
    "clip_norm: by less than a hundredth of it in sums of up to 65,536 gradients that all point one way, as measured.",
    "Noise is floating-point Gaussian; attacks on its representation are outside the accountant's model. Its tail ends "
    "at 8.57 standard deviations at the earliest, which counts at noise multipliers below about 0.4 alone.",
    "The number of training {unit}s N is treated as public.",
    OF_THE_SPLIT,
    "The number of steps was fixed before the run; crashes are taken not to depend on the records.",
    "Re-executed steps of crashed attempts used fresh noise and fresh batches, and are in the events.",
)
OF_PEOPLE = (
    "Data that are registered as public hold none of these people: whoever registered them said so, and "
    "only records that are alike were looked for.",
    "No other registration holds the same people: what is charged there is in no figure here.",
    "The digest of the data's files (dataset.sha256) and the number of records in each split are treated as public: "
    "whoever knows all records but one can try with the digest what that one holds, and no epsilon is for that.",
)
OF_SHARED_RECORDS = (
    "{shared:,} of {of:,} distinct records of {dataset} are records of {other} too, as was accepted by {accepted}. For "
    "whomever they are of, what {other} is read for adds up with epsilon here. These numbers are counts of the records themselves: they "
    "are treated as public, and no epsilon is for them."
)
OF_USERS = (
    "A user's gradient is the mean over its records that are read: at most records_per_unit, and of a user "
    "with more a choice that depends on that user's own records alone.",
    "The column of users is right: records of one person under two identities are two users.",
)
OF_A_CAP = (
    "A batch above max_batch_size keeps a uniformly random part of that size, drawn from the same generator.",
    "Batches with a cap are priced by one accountant alone, the PLD of dp-accounting, here and when it is "
    "computed again: no second implementation confirms this epsilon.",
)
IN_BFLOAT16 = (
    "The passes through the model ran in bfloat16. The norm of each {unit}'s gradient and the sum that it bounds were "
    "made in float32 of the same rounded numbers, so what the passes round does not enter the bound of its own part. A processor that "
    "rounds otherwise in batches of another size may let one {unit} move the gradients of others, by what is rounded.",
)
OF_BOTH_SPLITS = (
    "Which {unit}s are in the training split and which in the validation split is treated as fixed and public, and so "
    "is how many there are: neighbouring datasets differ in one {unit} of either split."
)
"""In the place of :data:`OF_THE_SPLIT` where the search is charged: its scores read the validation split."""
OF_A_CHARGED_SEARCH = (
    "Each trial of the search drew its own batches and noise, from a key of its own, and was charged whole before its "
    "first step. All that is known of it is its score, beside what its noisy sums make of its weights, and how long it "
    "took.",
    "A score is the number of validation {scored} told right, which one {unit} moves by at most one, with "
    "Gaussian noise of standard deviation noise_multiplier: an event with sampling_rate 1 and clip_norm 1.",
    "How many trials there are, and the mechanism of each, were fixed before the first of them.",
)
SCORED = {
    "record": "records that are",
    "user": "users, each counted by the part of its records that is",
}
"""What a score counts, by the unit."""
SCORED_ALIKE = (
    "records, each counted by the least stated share of a class over that of its own, that are"
)
"""In its place where the score is a balanced accuracy."""
OF_SHARES = (
    "A scaled gradient is multiplied by a weight of its record's class, which is at most 1 and follows from class_shares: they "
    "were stated with the study, and are treated as public.",
)
OF_COLUMNS = (
    "Columns of the table are read by ranges and choices that were stated when it was registered, and are treated as public.",
)
OF_FOUND_COLUMNS = (
    "Which columns of the table are read was not stated: those that hold numbers, which one {unit} with a word may change in a file "
    "that tells no types. It is treated as fixed and public.",
)
OF_UNNAMED_CLASSES = (
    "Classes were not named when the data was registered. How many there are, and which number each has, may follow from the labels and "
    "class folders that are there, and so from one {unit} that alone is of its class. It is treated as fixed and public.",
)
OF_IMAGES = (
    "Images are read in grey where all of them are grey, and in colours where one is not, which one {unit} may change. The shape of "
    "what is read is treated as fixed and public.",
)
OF_A_TRIALS_WEIGHTS = {
    True: "The private run began with the weights that trial {trial} of the search had left. They are made of that trial's "
    "noisy sums alone, which are in the events.",
    False: "The private run began with the weights that trial {trial} of the search had left. That trial read "
    "{dataset} alone, which is registered as public: no epsilon is for its records.",
}
"""By whether the search is charged."""
LEFT_BY_A_TRIAL = "the private run began with what trial {} of the search had left of them"
OF_RANDOM_WEIGHTS = "weights start from a random initialisation"
OF_CODE = (
    "weights start as they were made by the code of {}, which was not checked and may have loaded anything; "
    "epsilon is that of the training that began there, and says nothing of what went into them before"
)
OF_A_FILE = (
    "declared by whoever submitted the study and not checked; epsilon is that of the training that began from "
    "this file, and says nothing of what the file was trained on"
)
OF_PARTS: dict[Trained, str] = {
    "norms": "scale and shift of its normalisations and the classifier were trained here, and all else is as the file "
    "has it",
    "biases": "its biases and the classifier were trained here, and all else is as the file has it",
    "lora": "low-rank factors beside its linear layers and the classifier were trained here; the factors are in the "
    "released weights of these layers, and all else is as the file has it",
}
OF_CODE_AROUND_IT = (
    "what is not in the file was made by the code of {}, which was not checked either"
)


class StatementError(TanError, RuntimeError):
    """No statement can be made that would be true."""


def build(facts: Facts) -> dict[str, Any]:
    """The statement, unsigned.

    Formal guarantees:

    * ``privacy.epsilon`` is that of the steps charged in the ledger, never of fewer.
    * It was computed twice, from the mechanism and from the very JSON in ``events`` by code that
      shares nothing with the first, and both agree within 0.1 %. Where batches have a cap, both
      ask the one library that can price them, and the assumptions say so.

    Raises:
        StatementError: fewer steps were charged than released, or the implementations disagree.
    """
    charge, result = facts.charge, facts.result
    if not 1 <= result.steps <= charge.charged_steps:
        raise StatementError(
            f"{charge.charged_steps} steps were charged, {result.steps} are in the weights: "
            "the ledger must cover every released step"
        )
    executed = charge.mechanism.with_steps(charge.charged_steps)
    charged = [executed, *charge.search]
    events = [mechanism.to_json() for mechanism in charged]
    evaluation = evaluation_view(result.model_dump(mode="json"))
    shares = facts.spec.train.class_shares
    return {
        "schema": SCHEMA,
        "study": {"id": facts.study_id, "name": facts.study_name},
        "issued_at": facts.issued_at.isoformat(timespec="seconds"),
        "dataset": {"name": facts.dataset_name, "sha256": facts.dataset_sha256},
        "protects": not facts.is_public,
        **_unit(facts),
        "neighboring_relation": executed.neighboring_relation.value,
        "num_examples": {"value": facts.num_examples, "is_public": True},
        "events": events,
        "mechanisms": _mechanisms(charged),
        "training": {
            "precision": facts.precision.value,
            **({} if shares is None else {"class_shares": shares}),
        },
        "privacy": _privacy(facts, charged, events),
        "search": _search(facts),
        "pretraining": _pretraining(facts),
        "steps": {
            "planned": facts.planned_steps,
            "reserved": charge.reserved_steps,
            "charged": charge.charged_steps,
            "released": result.steps,
            "charged_again": charge.charged_steps - result.steps,
        },
        **({} if evaluation is None else {"evaluation": evaluation.model_dump(mode="json")}),
        "weights": {"format": "safetensors", "sha256": result.model_sha256},
        "ledger": _ledger(facts),
        "software": dict(facts.versions),
        "code_commit": facts.code_commit,
        "container_image": facts.container_image,
        "assumptions": _assumptions(facts, executed),
        "coverage": _coverage(facts, evaluation),
        "verification": {"command": VERIFY, "needs": NEEDED},
    }


def _mechanisms(charged: list[Mechanism]) -> list[dict[str, Any]]:
    """The events for a reader, and what each is of where a search was charged beside the run."""
    readable = [_readable(mechanism) for mechanism in charged]
    if len(readable) == 1:
        return readable
    return [{"of": of, **event} for of, event in zip(OF_EVENTS, readable, strict=True)]


def _readable(mechanism: Mechanism) -> dict[str, Any]:
    """The event for a reader, in decimals: shortest forms that give back the very floats."""
    return {
        "sampling": mechanism.sampling.value,
        "sampling_rate": mechanism.sampling_rate,
        "noise_multiplier": mechanism.noise_multiplier,
        "clip_norm": mechanism.clip_norm,
        "steps": mechanism.steps,
        **(
            {} if mechanism.max_batch_size is None else {"max_batch_size": mechanism.max_batch_size}
        ),
    }


def _coverage(facts: Facts, evaluation: EvaluationView | None) -> list[str]:
    """By the search; and of accuracies by class and group, where the study asked for them."""
    by_class = () if evaluation is None else (evaluation.note,)
    mode = facts.spec.search.accounting
    has_shares = facts.spec.train.class_shares is not None
    found = coverage_of(mode, learnt_from=facts.learnt_from, has_shares=has_shares)
    return [*found, *by_class]


def _unit(facts: Facts) -> dict[str, Any]:
    """What one guarantee is for; of users, how a record is known to be theirs, and how many are read."""
    if facts.unit == RECORD:
        return {"unit": RECORD}
    details = {"column": facts.unit, "records_per_unit": facts.records_per_unit}
    return {"unit": "user", "unit_details": details}


def _shared_records(facts: Facts) -> list[str]:
    return [
        OF_SHARED_RECORDS.format(
            dataset=name,
            other=one.dataset,
            shared=one.shared,
            of=one.of,
            accepted=overlap.accepted,
        )
        for name, overlap in sorted(facts.overlaps.items())
        for one in overlap.others
    ]


def _of_data(facts: Facts) -> list[str]:
    """What every statement assumes, of the splits that its events read."""
    splits = OF_BOTH_SPLITS if facts.charge.search else OF_THE_SPLIT
    return [splits if each is OF_THE_SPLIT else each for each in ASSUMPTIONS]


def _assumptions(facts: Facts, executed: Mechanism) -> list[str]:
    unit = _unit(facts)["unit"]
    is_balanced = facts.spec.search.metric is Metric.BALANCED_ACCURACY
    return [
        *(each.format(unit=unit) for each in _of_data(facts)),
        *(() if facts.is_public else OF_PEOPLE),
        *_shared_records(facts),
        *(OF_USERS if unit == "user" else ()),
        *(OF_A_CAP if executed.max_batch_size is not None else ()),
        *(each.format(unit=unit) for each in IN_BFLOAT16 if facts.precision is Precision.BFLOAT16),
        *(OF_COLUMNS if facts.has_stated_columns else ()),
        *(each.format(unit=unit) for each in OF_FOUND_COLUMNS if facts.has_found_columns),
        *(each.format(unit=unit) for each in OF_UNNAMED_CLASSES if facts.has_unnamed_classes),
        *(each.format(unit=unit) for each in OF_IMAGES if facts.has_encoded_images),
        *(() if facts.spec.train.class_shares is None else OF_SHARES),
        *(
            each.format(unit=unit, scored=SCORED_ALIKE if is_balanced else SCORED[unit])
            for each in OF_A_CHARGED_SEARCH
            if facts.charge.search
        ),
        *_begins_with(facts),
    ]


def _begins_with(facts: Facts) -> list[str]:
    begun = facts.begun_from
    if begun is None:
        return []
    said = OF_A_TRIALS_WEIGHTS[bool(facts.charge.search)]
    return [said.format(trial=begun.trial, dataset=facts.search_dataset)]


def _privacy(
    facts: Facts, charged: list[Mechanism], events: list[dict[str, Any]]
) -> dict[str, Any]:
    target, executed = facts.spec.privacy, charged[0]
    relation, delta = executed.neighboring_relation, target.delta
    stated = price(charged, delta=delta, accountant=target.accountant)
    by_accountant = {Accountant.PLD: price(charged, delta=delta).epsilon}
    by_accountant[target.accountant] = stated.epsilon
    recomputed = recompute(events, delta=delta, neighboring_relation=relation)
    again = recomputed.epsilon
    _expect_agreement(by_accountant[Accountant.PLD], again, "pld")
    _expect_agreement(stated.epsilon, again, target.accountant)
    if relation is not NeighboringRelation.REPLACE_ONE and executed.max_batch_size is None:
        bound = rdp_epsilon_of_events(events, delta=delta, neighboring_relation=relation)
        if bound < again * (1 - TOLERANCE):
            raise StatementError(
                f"rdp gives epsilon {bound:.6g}, below pld's {again:.6g}: one of them is wrong"
            )
        by_accountant.setdefault(Accountant.RDP, bound)
    return {
        "epsilon": stated.epsilon,
        "delta": delta,
        "target_epsilon": target.epsilon,
        "accountant": stated.accountant.value,
        "conversion": stated.conversion,
        "library": stated.library,
        "library_version": stated.library_version,
        "epsilon_by_accountant": {name.value: value for name, value in by_accountant.items()},
        "computed_again": {"epsilon": again, "grid": recomputed.grid, "tolerance": TOLERANCE},
        "curve": [
            {"delta": at, "epsilon": found}
            for at in (delta * 10, delta, delta / 10)
            if (found := _confirmed(charged, events, at)) is not None
        ],
    }


def _confirmed(
    charged: list[Mechanism], events: list[dict[str, Any]], delta: float
) -> float | None:
    """Epsilon at another delta, if both implementations say so: who verifies a statement computes it again."""
    if not MIN_DELTA <= delta < 1:
        return None
    try:
        stated = price(charged, delta=delta).epsilon
        again = epsilon_of_events(
            events, delta=delta, neighboring_relation=charged[0].neighboring_relation
        )
    except (
        AccountantError,
        EventError,
    ):  # so many steps that round-off could hide in so small a delta
        return None
    return stated if agrees(stated, again, "pld") else None


def _expect_agreement(stated: float, again: float, accountant: str) -> None:
    if not agrees(stated, again, accountant):
        raise StatementError(
            f"{accountant} gives epsilon {stated:.8g}, computed again from the stored events it is "
            f"{again:.8g}: they differ by more than {TOLERANCE:.1%}, so none is stated"
        )


def _search(facts: Facts) -> dict[str, Any]:
    mode, charged = facts.spec.search.accounting, facts.charge.search
    unaccounted = not (mode.is_free or mode.is_charged)
    stated = {
        "accounting": mode.value,
        "note": note_of_search(mode, learnt_from=facts.learnt_from),
        "dataset": facts.search_dataset if facts.spec.has_search else None,
        "epsilon": 0.0 if mode.is_free else None,
        "waiver": facts.waiver if unaccounted else None,
        **({} if facts.learnt_from is None else {"learnt_from": facts.learnt_from}),
        **_begun_from(facts.begun_from),
    }
    if not charged:
        return stated
    trials, scores = charged
    target = facts.spec.privacy
    alone = price(charged, delta=target.delta, accountant=target.accountant)
    return {
        **stated,
        "epsilon": alone.epsilon,
        "trials": scores.steps,
        "steps": {"trials": trials.steps, "scores": scores.steps},
        "reservations": list(facts.charge.search_reservations),
    }


def _begun_from(begun: TrialWeights | None) -> dict[str, Any]:
    if begun is None:
        return {}
    return {"run_began_from": {"trial": begun.trial, "weights_sha256": begun.sha256}}


def _pretraining(facts: Facts) -> dict[str, Any]:
    """Where the weights began. Of code that is not ours nothing can be said: it may have loaded anything."""
    model = facts.spec.model
    pretrained = model.pretrained
    code = model.module if isinstance(model, PythonModel) else None
    begun = facts.begun_from
    left = "" if begun is None else f"; {LEFT_BY_A_TRIAL.format(begun.trial)}"
    of_proxy = facts.search_dataset if begun and not facts.charge.search else None
    if pretrained is None:
        note = OF_RANDOM_WEIGHTS if code is None else OF_CODE.format(code)
        return {"data": of_proxy, "note": note + left}
    note = OF_A_FILE if code is None else f"{OF_A_FILE}; {OF_CODE_AROUND_IT.format(code)}"
    of_part = OF_PARTS.get(pretrained.train)
    part = "" if of_part is None else f"; {of_part}"
    own = "" if facts.own_model is None else f"; {facts.own_model}"
    return {
        "data": "; ".join(filter(None, [pretrained.data, of_proxy])),
        "note": note + own + part + left,
        "sha256": pretrained.sha256,
        "trained": pretrained.train,
        **({} if pretrained.rank is None else {"rank": pretrained.rank}),
    }


def _ledger(facts: Facts) -> dict[str, Any] | None:
    entry = facts.charge.entry
    if entry is None:
        return None
    return {
        "scope": entry.scope,
        "reservation": entry.reservation,
        "entry": {"seq": entry.seq, "hash": entry.hash},
        "budget": {"epsilon": entry.budget_epsilon, "delta": entry.budget_delta},
        "head": entry.head.model_dump(mode="json"),
        "charged_epsilon": entry.charged_epsilon,
        "accountant": entry.accountant,
        **entry.beside.model_dump(mode="json"),
    }

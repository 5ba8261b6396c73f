"""Verification of a privacy statement by anyone: no database, no service, only the document.

Epsilon is computed again from the mechanism events in the document with dp-accounting alone. This
module shares no code with the accountants of ``tan_core.accounting``: it is the second voice that every
statement must agree with before it is issued. What it is handed may be anybody's: every number in it is
bounded before it is reckoned with.
"""

import base64
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dp_accounting
import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant

from service.evaluation import notes_of
from service.publication.signing import is_signed, key_id
from service.statements.check import Check
from service.statements.coverage import check_beside, check_coverage
from service.statements.readable import check_mechanisms, check_searched
from tan_core.accounting import round_up
from tan_core.accounting.effort import check_effort
from tan_core.errors import TooHardError

SCHEMA = "tan-search/privacy-statement/1"
TOLERANCE = 1e-3
"""Two implementations that differ by more than this fraction: one of them is wrong."""
OVERSTATEMENT = 1e-3
"""Absolute epsilon by which a stated one may be above: grids round up, visibly so near zero."""
UNDERSTATEMENT = 1e-4
"""Absolute epsilon by which a stated one may be below: less than the last digit that is shown."""
PRV_SLACK = 0.02
"""PRV answers within an additive error of its own."""

MAX_STEPS = 10_000_000
"""Of one event, as of one study: what is above was not issued by a service, and could take for ever."""

MAX_CURVE = 10
"""Points of a curve: a statement has three, and each is priced again."""

_FEW_EVENTS = 8  # up to which the finest step sets the grid
_GRID_FRACTION = 0.04
_MAX_SIZE = 10**12  # examples
_KEY_BYTES = 32  # of Ed25519
_MAX_POINTS = 2**25  # that the library may look at; the ones who issue statements stop at a quarter
_RELATIONS = {
    "add_or_remove_one": dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
    "zero_out": dp_accounting.NeighboringRelation.REPLACE_SPECIAL,
    "replace_one": dp_accounting.NeighboringRelation.REPLACE_ONE,
}

_ACCOUNTANTS = ("pld", "rdp", "prv")

MALFORMED = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)
"""What a document of any other shape meets."""


class EventError(ValueError):
    """An event in the document is not one that can be priced."""


def verify_statement(document: Mapping[str, Any], *, key_id: str | None = None) -> list[Check]:
    """What was checked and whether it holds. Good statements have no bad check.

    Args:
        document: as ``GET /studies/{id}/statement`` answers.
        key_id: of the service's key where it is known from elsewhere, or all of that key in base64: an identifier has 64 of
            its bits. Without it the signature only shows that the document is unchanged since whoever holds the enclosed
            key signed it.
    """
    if document.get("schema") != SCHEMA:
        return [Check("format", False, f"expected a statement of schema {SCHEMA!r}")]
    return [
        Check("format", True, SCHEMA),
        *check_signature(document, key_id),
        *_check_epsilon(document),
        _check_steps(document),
        *_readable_or_bad("mechanisms", check_mechanisms, document),
        *_readable_or_bad("trials", check_searched, document),
        *_readable_or_bad("coverage", lambda said: [check_coverage(said)], document),
        *_readable_or_bad("beside epsilon", check_beside, document),
        *_check_protects(document),
        *_check_evaluation(document),
    ]


def _readable_or_bad(
    name: str,
    check: Callable[[Mapping[str, Any]], list[Check]],
    document: Mapping[str, Any],
) -> list[Check]:
    try:
        return check(document)
    except MALFORMED as error:
        return [Check(name, False, f"not stated: {error}")]


@dataclass(frozen=True, slots=True)
class Recomputed:
    """PLD epsilon of some events, and the width of the cells of privacy loss that gave it, in nats."""

    epsilon: float
    grid: float


def epsilon_of_events(
    events: Sequence[Mapping[str, Any]], *, delta: float, neighboring_relation: str
) -> float:
    """As :func:`recompute`, without the grid."""
    found = recompute(events, delta=delta, neighboring_relation=neighboring_relation)
    return found.epsilon


def recompute(
    events: Sequence[Mapping[str, Any]], *, delta: float, neighboring_relation: str
) -> Recomputed:
    """PLD epsilon of the events as stored, straight from their JSON.

    Raises:
        EventError: an event of an unknown kind, codec, sampling or relation, or one that nobody could price.
        TooHardError: it took more time than it was given (:mod:`tan_core.accounting.effort`).
    """
    relation = _relation(neighboring_relation)
    decoded = _joined(_decode(event, neighboring_relation) for event in events)
    if not decoded:
        raise EventError("there are no events")
    # What Fourier space may lose of delta, a rounding a step, is not there to be spent.
    lost = np.finfo(np.float64).eps * sum(event.steps for event in decoded)
    if lost > delta / 2:
        raise EventError(
            f"so many steps lose {lost:.1g} to round-off: no epsilon at delta = {delta:.3g}"
        )
    least = Recomputed(math.inf, math.inf)
    with np.errstate(all="ignore"):
        for grid in _grids(decoded, relation):  # each rounds up: the least answer is one
            found = _epsilon_on(grid, decoded, relation, delta - lost)
            if found >= least.epsilon < math.inf:
                break
            least = Recomputed(found, grid)
    if not math.isfinite(least.epsilon):
        raise EventError("round-off leaves nothing of so many steps of so small a sampling rate")
    return least


def _epsilon_on(
    grid: float,
    events: Sequence["_Event"],
    relation: dp_accounting.NeighboringRelation,
    delta: float,
) -> float:
    """Of all events; infinity where round-off leaves nothing of them."""
    losses = pld.identity(value_discretization_interval=grid)
    for event in events:
        check_effort("pld")
        of_event = event.losses(grid, relation)
        if of_event is None:
            return math.inf
        losses = losses.compose(of_event)
    return float(losses.get_epsilon_for_delta(delta))


def rdp_epsilon_of_events(
    events: Sequence[Mapping[str, Any]], *, delta: float, neighboring_relation: str
) -> float:
    """Rényi epsilon at integer orders: a looser bound by another theory, for whole Poisson batches."""
    accountant = RdpAccountant(
        orders=[*range(2, 65), 80, 96, 128, 192, 256, 512],
        neighboring_relation=_relation(neighboring_relation),
    )
    with np.errstate(all="ignore"):
        for event in events:
            decoded = _decode(event, neighboring_relation)
            accountant.compose(decoded.step, decoded.steps)
        return float(accountant.get_epsilon(delta))


def agrees(stated: float, recomputed: float, accountant: str) -> bool:
    """Whether a stated epsilon is one that its accountant may give where PLD gives the other."""
    if not (math.isfinite(stated) and math.isfinite(recomputed)):
        return False
    if stated < recomputed * (1 - TOLERANCE) - UNDERSTATEMENT:
        return False
    if accountant == "rdp":
        return True
    slack = PRV_SLACK if accountant == "prv" else 0.0
    return stated <= recomputed * (1 + TOLERANCE) + OVERSTATEMENT + slack * max(1.0, recomputed)


def check_signature(document: Mapping[str, Any], expected: str | None) -> list[Check]:
    """Whether a document is unchanged since it was signed, and whether by the key that is expected: whole, or by its identifier.

    Where none is, whose signature it is stays open: anybody can sign anything with a key of their own.
    """
    if not is_signed(document):
        return [Check("signature", False, "the document was changed, or was not signed")]
    found, whole = document["signature"]["key_id"], document["signature"]["public_key"]
    if expected is not None and expected not in (found, whole):
        said = f"signed by key {found}, expected {_identifier(expected)}"
        return [Check("signature", False, said)]
    unchanged = Check("signature", True, f"unchanged since it was signed by key {found}")
    if expected is not None:
        return [unchanged]
    unknown = "unknown: anybody may have signed it with this key; give --key of who should have"
    return [unchanged, Check("signer", None, unknown)]


def _identifier(expected: str) -> str:
    """Of a whole key; anything else is one, or was written for one."""
    try:
        whole = base64.b64decode(expected, validate=True)
    except ValueError:
        return expected
    return key_id(whole) if len(whole) == _KEY_BYTES else expected


def _check_epsilon(statement: Mapping[str, Any]) -> list[Check]:
    try:
        privacy = statement["privacy"]
        stated, delta = float(privacy["epsilon"]), float(privacy["delta"])
        recomputed = epsilon_of_events(
            statement["events"],
            delta=delta,
            neighboring_relation=statement["neighboring_relation"],
        )
        accountant = str(privacy["accountant"])
    except (*MALFORMED, TooHardError) as error:
        return [Check("epsilon", False, f"cannot be computed again: {error}")]
    detail = f"stated {_told(stated)} ({accountant}), computed again {_told(recomputed)} (pld)"
    if not agrees(stated, recomputed, accountant):
        return [Check("epsilon", False, f"{detail} at delta {delta:g}")]
    return [
        Check("epsilon", True, f"{detail} at delta {delta:g}"),
        *_check_voices(statement, recomputed),
        *_check_search(statement, accountant),
        *_check_curve(statement),
    ]


def _told(epsilon: float) -> float:
    return epsilon if math.isnan(epsilon) else round_up(epsilon, 6)


def _check_voices(statement: Mapping[str, Any], recomputed: float) -> list[Check]:
    """What people read beside epsilon: by other accountants, and as the service computed it again itself.

    Nothing of a statement that tells neither.
    """
    try:
        privacy = statement["privacy"]
        if not {"epsilon_by_accountant", "computed_again"} & privacy.keys():
            return []
        told = {str(name): float(value) for name, value in privacy["epsilon_by_accountant"].items()}
        again = float(privacy["computed_again"]["epsilon"])
        epsilon = float(privacy["epsilon"])
    except MALFORMED as error:
        return [Check("accountants", False, f"not stated: {error}")]
    wrong = [
        f"{name!r:.40} {_told(value)}"
        for name, value in told.items()
        if name not in _ACCOUNTANTS or not agrees(value, recomputed, name)
    ]
    if told.get(str(privacy["accountant"])) != epsilon:
        wrong.append(f"none of them is the {_told(epsilon)} that is stated")
    if not agrees(again, recomputed, "pld"):
        wrong.append(f"computed again {_told(again)}")
    said = ", ".join(f"{name} {_told(value)}" for name, value in told.items())
    return [Check("accountants", not wrong, f"wrong: {', '.join(wrong)}" if wrong else said)]


def _check_search(statement: Mapping[str, Any], accountant: str) -> list[Check]:
    """What a search that is charged came to alone; nothing of any other, whose words say what is to be said."""
    try:
        search = statement.get("search") or {}
        if not search.get("epsilon"):
            return []
        stated, delta = float(search["epsilon"]), float(statement["privacy"]["delta"])
        again = epsilon_of_events(
            statement["events"][1:],
            delta=delta,
            neighboring_relation=statement["neighboring_relation"],
        )
    except (*MALFORMED, TooHardError) as error:
        return [Check("epsilon of the search", False, f"cannot be computed again: {error}")]
    detail = f"stated {_told(stated)}, computed again {_told(again)} (pld) at delta {delta:g}"
    return [Check("epsilon of the search", agrees(stated, again, accountant), detail)]


def _check_curve(statement: Mapping[str, Any]) -> list[Check]:
    """Every epsilon at another delta, priced as the first was; nothing of a statement without any."""
    try:
        curve = [
            (float(point["delta"]), float(point["epsilon"]))
            for point in statement["privacy"].get("curve", ())
        ]
        if len(curve) > MAX_CURVE:
            raise ValueError(f"{len(curve)} points, where a statement has three")
        for delta, stated in curve:
            again = epsilon_of_events(
                statement["events"],
                delta=delta,
                neighboring_relation=statement["neighboring_relation"],
            )
            if not agrees(stated, again, "pld"):
                said = f"stated {_told(stated)}, computed again {_told(again)} at delta {delta:g}"
                return [Check("curve", False, said)]
    except MALFORMED as error:
        return [Check("curve", False, f"cannot be computed again: {error}")]
    except TooHardError as error:
        return [Check("curve", None, f"not computed again: {error}")]
    return [Check("curve", True, f"epsilon at {len(curve)} deltas")] if curve else []


def _check_steps(statement: Mapping[str, Any]) -> Check:
    """Every step that was charged is in the events."""
    try:
        charged = statement["steps"]["charged"]
        released = statement["steps"]["released"]
        in_events = sum(event["steps"] for event in statement["events"])
        of_search = sum((statement.get("search") or {}).get("steps", {}).values())
        is_good = bool(in_events == charged + of_search and charged >= released >= 1)
        is_good = is_good and isinstance(released, int) and not isinstance(released, bool)
    except MALFORMED as error:
        return Check("steps", False, f"not stated: {error}")
    searched = f" and {of_search} for the search" if of_search else ""
    detail = f"{in_events} in the events, {charged} charged{searched}, {released} in the released weights"
    return Check("steps", is_good, detail)


def _check_protects(statement: Mapping[str, Any]) -> list[Check]:
    """Nothing where it is so: protected data have a ledger that paid for the run, public data have none."""
    protects, ledger = statement.get("protects"), statement.get("ledger")
    unit = "record" if statement.get("unit_details") is None else "user"
    if statement.get("unit") != unit:
        return [
            Check("protects", False, f"its unit is {statement.get('unit')!r:.40}, not {unit!r}")
        ]
    has_ledger = isinstance(ledger, Mapping) and bool(ledger)
    if protects is has_ledger and (has_ledger or ledger is None):
        return []
    said = "it names a ledger" if has_ledger else "it names no ledger that paid for that"
    return [Check("protects", False, f"protects is {protects!r:.40}, and {said}")]


def _check_evaluation(statement: Mapping[str, Any]) -> list[Check]:
    """Where accuracies by class are stated: that they are those of their counts, and that parts add up."""
    stated = statement.get("evaluation")
    if stated is None:
        return []
    try:
        whole, classes, groups = stated["all"], stated["classes"], stated["groups"]
        faults = [
            f"{part['name']!r} of the {who}"
            for who in ("private", "baseline")
            for part in (whole, *classes, *groups)
            if part[who] is not None and not _is_share(part[who])
        ]
        for name, parts in (("classes", classes), ("groups", groups)):
            if parts and any(
                sum(part["private"][count] for part in parts) != whole["private"][count]
                for count in ("num", "correct")
            ):
                faults.append(f"the sum of the {name}")
        is_marked = stated["covered_by_epsilon"] is False
        has_baseline = any(part["baseline"] is not None for part in (whole, *classes, *groups))
        if stated["note"] not in notes_of(
            has_baseline=has_baseline, is_missing=stated["baseline_reason"] is not None
        ):
            faults.append("the note")
    except MALFORMED as error:
        return [Check("evaluation", False, f"not stated: {error}")]
    if not is_marked:
        faults.append("the claim to be covered by epsilon")
    detail = (
        f"{len(classes)} classes, {len(groups)} groups, on the test split: not covered by epsilon"
    )
    return [Check("evaluation", not faults, f"wrong: {', '.join(faults)}" if faults else detail)]


def _is_share(share: Mapping[str, Any]) -> bool:
    correct, num, accuracy = share["correct"], share["num"], share["accuracy"]
    return bool(
        0 <= correct <= num
        and math.isclose(accuracy, correct / num, rel_tol=1e-9)
        and 0 <= share["low"] <= accuracy <= share["high"] <= 1
    )


@dataclass(frozen=True, slots=True)
class _Event:
    """A stored event: q, sigma, steps, and (N, cap) where batches are cut."""

    rate: float
    noise: float
    steps: int
    sizes: tuple[int, int] | None

    @property
    def step(self) -> dp_accounting.DpEvent:
        """One step, as dp-accounting knows it: of whole Poisson batches."""
        if self.sizes is not None:
            raise EventError("batches with a cap have no price by rdp")
        return dp_accounting.PoissonSampledDpEvent(
            self.rate, dp_accounting.GaussianDpEvent(self.noise)
        )

    def losses(
        self, grid: float, relation: dp_accounting.NeighboringRelation
    ) -> pld.PrivacyLossDistribution | None:
        """The privacy loss of all its steps; None where the round-off of one, so often, is a mass of e^40."""
        if self.sizes is None:
            step = pld.from_gaussian_mechanism(
                standard_deviation=self.noise,
                value_discretization_interval=grid,
                sampling_prob=self.rate,
                neighboring_relation=relation,
            )
        else:
            num_examples, cap = self.sizes
            step = pld.from_truncated_subsampled_gaussian_mechanism(
                dataset_size=num_examples,
                sampling_probability=self.rate,
                truncated_batch_size=cap,
                noise_multiplier=self.noise,
                value_discretization_interval=grid,
                neighboring_relation=relation,
            )
        step = _in_arrays(step)
        above_one = max(
            float(np.sum(pmf._probs)) - 1  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
            for pmf in (step._pmf_remove, step._pmf_add)  # pyright: ignore[reportPrivateUsage]
        )
        return None if self.steps * above_one > 40 else step.self_compose(self.steps)


def _in_arrays(step: pld.PrivacyLossDistribution) -> pld.PrivacyLossDistribution:
    """Kept otherwise, the library takes the number of points to the power of steps, in one endless call."""
    one_way, other_way = step._pmf_remove, step._pmf_add  # pyright: ignore[reportPrivateUsage]
    symmetric = one_way is other_way
    return pld.PrivacyLossDistribution(
        one_way.to_dense_pmf(), None if symmetric else other_way.to_dense_pmf()
    )


def _decode(event: Mapping[str, Any], relation: str) -> _Event:
    """A stored event; whatever is unknown is refused by name."""
    if event.get("codec") != 1 or event.get("kind") != "dp_sgd":
        raise EventError(f"unknown codec {event.get('codec')!r} or kind {event.get('kind')!r}")
    if event.get("sampling") not in ("poisson", "truncated_poisson"):
        raise EventError(f"unknown sampling {event.get('sampling')!r}")
    if event.get("neighboring_relation") != relation:
        raise EventError(
            f"the event is for {event.get('neighboring_relation')!r}, not {relation!r}"
        )
    try:
        rate = _from_hex(event["sampling_rate"])
        noise = _from_hex(event["noise_multiplier"])
    except (KeyError, TypeError, ValueError) as error:
        raise EventError(f"malformed event: {error}") from error
    if not (0 < rate <= 1 and 0 < noise < math.inf):
        raise EventError(f"out of domain: q = {rate}, sigma = {noise}")
    steps, sizes = _count(event, "steps", MAX_STEPS), _sizes(event, relation)
    return _Event(rate, noise, steps, sizes)


def _joined(events: Iterable[_Event]) -> list[_Event]:
    """The same composition with equal steps together; of whole batches they are one Gaussian of less noise."""
    steps = Counter[_Event]()
    for event in events:
        steps[replace(event, steps=1)] += event.steps
    return [
        replace(step, noise=step.noise / math.sqrt(count))
        if step.rate == 1 and step.sizes is None
        else replace(step, steps=count)
        for step, count in steps.items()
    ]


def _from_hex(written: object) -> float:
    """Python would read a decimal 10 as 16: what is not marked as hexadecimal is malformed."""
    if not isinstance(written, str) or not written.startswith("0x"):
        raise ValueError(f"{written!r:.40} is no hexadecimal number")
    return float.fromhex(written)


def _sizes(event: Mapping[str, Any], relation: str) -> tuple[int, int] | None:
    """(N, cap) of batches that are cut: for datasets of like size alone."""
    if event["sampling"] == "poisson":
        return None
    if relation == "add_or_remove_one":
        raise EventError(f"batches with a cap have no price under {relation!r}")
    return _count(event, "num_examples", _MAX_SIZE), _count(event, "max_batch_size", _MAX_SIZE)


def _count(event: Mapping[str, Any], name: str, most: int) -> int:
    value = event.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise EventError(f"out of domain: {name} = {value!r:.40}, expected 1 to {most:,}")
    return value


def _relation(name: str) -> dp_accounting.NeighboringRelation:
    if name not in _RELATIONS:
        raise EventError(f"unknown neighboring_relation {name!r}")
    return _RELATIONS[name]


def _grids(events: Sequence[_Event], relation: dp_accounting.NeighboringRelation) -> list[float]:
    """Fine against one step's loss, coarse enough to compose within seconds. Rounds up on any grid.

    Of many events the losses of their steps count as they add up: the least of hundreds is a small part of the sum.
    Where so many steps add up what round-off leaves in a step of cells this narrow, wider ones as well.
    """
    moved = 2.0 if relation is dp_accounting.NeighboringRelation.REPLACE_ONE else 1.0
    finest, variance, span, points, round_off = math.inf, 0.0, 0.0, 0.0, 0.0
    for event in events:
        shift = moved / event.noise
        exact = (
            event.rate * math.sqrt(math.expm1(event.noise**-2)) if event.noise > 0.04 else math.inf
        )
        deviation = min(exact, math.sqrt(event.rate * (shift**4 / 4 + shift**2)))
        reach = shift**2 / 2 + 12 * shift
        length = reach if reach > 700 else math.log1p(event.rate * math.expm1(reach))
        finest = min(finest, deviation)
        variance += event.steps * deviation**2
        span = max(span, length)
        # A sum's tails are cut by tilts of at least one over the length of what is summed.
        points += event.steps * deviation**2 / length
        round_off += event.steps * length * 2.0**-54
    if len(events) > _FEW_EVENTS:
        finest = max(finest, math.sqrt(variance / sum(event.steps for event in events)))
    narrowest = max(
        min(max(_GRID_FRACTION * finest, 2.0**-40), 2e-3),
        span / 2**19,
        12 * math.sqrt(variance) / 2**21,
    )
    grids = [narrowest]
    while round_off / grids[-1] ** 2 > 0.01 and grids[-1] < 2e-3:
        grids.append(2 * grids[-1])
    fitting = [grid for grid in grids if points / grid <= _MAX_POINTS]
    if not fitting:
        steps = sum(event.steps for event in events)
        raise EventError(f"{steps:,} steps of so little noise are more than can be priced")
    return fitting

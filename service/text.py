"""How numbers are written for people. A privacy figure is never written smaller than it is."""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from difflib import get_close_matches
from typing import Any

MISSING = "-"

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_SAYS_WHAT = re.compile(r"\bgot\b")


def epsilon(value: float | None) -> str:
    """ε rounded up: three decimals from 1 on, three significant digits below.

    Example:
        >>> epsilon(2.9911), epsilon(6.58), epsilon(0.012341), epsilon(None)
        ('2.992', '6.580', '0.0124', '-')
    """
    return _decimal(value, ROUND_CEILING)


def rounded_down(value: float | None) -> str:
    """An ε that may still be spent, never written larger than it is.

    Example:
        >>> rounded_down(96.009), rounded_down(1.9999), rounded_down(0.012349), rounded_down(0.0)
        ('96.009', '1.999', '0.0123', '0.000')
    """
    return _decimal(value, ROUND_FLOOR)


def _decimal(value: float | None, rounding: str) -> str:
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return "∞" if value > 0 else str(value)
    # From the shortest decimal of the float, so that 2.95 is not written 2.951.
    exact = Decimal(repr(float(value)))
    digits = 3 if exact >= 1 or exact <= 0 else 2 - exact.adjusted()
    return f"{exact.quantize(Decimal(1).scaleb(-digits), rounding=rounding):f}"


def estimate(value: float | None) -> str:
    """A figure that promises nothing, to the nearest hundredth."""
    return MISSING if value is None else f"{value:.2f}"


def percent(share: float | None) -> str:
    """A share in [0, 1] as a percentage."""
    return MISSING if share is None else f"{100 * share:.1f} %"


def number(value: float | None) -> str:
    """A count or a parameter, short and exact enough to type again."""
    if value is None:
        return MISSING
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.5g}"


def times(value: float | None) -> str:
    """How many times as much, to a tenth."""
    return MISSING if value is None else f"{value:,.1f}"


def parameters(params: dict[str, Any]) -> str:
    """A trial's parameters on one line."""
    return "  ".join(f"{name}={_parameter(value)}" for name, value in params.items()) or MISSING


def parameter(value: Any) -> str:
    """One of them where it stands for itself: sixteen digits of it say no more than four."""
    return f"{value:.4g}" if isinstance(value, float) else on_one_line(value)


def in_cell(value: Any) -> Any:
    """A cell of CSV: text that a spreadsheet would run as a formula is quoted.

    Example:
        >>> [in_cell(value) for value in ("=1+1", "-1", -1, "mlp", None)]
        ["'=1+1", "'-1", -1, 'mlp', None]
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def on_one_line(value: Any) -> str:
    """A value of a study.yaml as it can be written there.

    Example:
        >>> on_one_line({"low": 0.1, "high": 2.0, "log": False}), on_one_line(["sgd", "adam"])
        ('{low: 0.1, high: 2.0}', '[sgd, adam]')
        >>> on_one_line(True), on_one_line(0.3), on_one_line(None)
        ('true', '0.3', '-')
    """
    if value is None:
        return MISSING
    if isinstance(value, dict):
        # `log: false` is what a range is by itself.
        parts = (
            f"{k}: {on_one_line(v)}"
            for k, v in sorted(value.items(), key=_ends_first)
            if v is not False
        )
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, list):
        return f"[{', '.join(on_one_line(each) for each in value)}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _ends_first(entry: tuple[str, Any]) -> int:
    """A range from its low end, however it was stored."""
    order = ("low", "high")
    return order.index(entry[0]) if entry[0] in order else len(order)


def duration(seconds: float | None) -> str:
    """Seconds as ``1h02m``, ``3m05s``, ``12s`` or ``0.4s``."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return MISSING
    if 0 < seconds < 0.95:
        return f"{max(seconds, 0.1):.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def when(timestamp: str | None) -> str:
    """An ISO time, to the minute, in UTC."""
    if not timestamp:
        return MISSING
    return timestamp[:16].replace("T", " ")


def began_and_ended(began: datetime, ended: datetime | None) -> tuple[str, str | None]:
    """Both to the second, in UTC; the day stands once where it is the same.

    Example:
        >>> noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
        >>> began_and_ended(noon, noon.replace(second=7)), began_and_ended(noon, None)
        (('2026-01-02 12:00:00', '12:00:07'), ('2026-01-02 12:00:00', None))
    """
    first = _to_the_second(began)
    day = first.split(" ")[0]
    return first, ended and _to_the_second(ended).removeprefix(f"{day} ")


def _to_the_second(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def guarantee(privacy: dict[str, Any]) -> str:
    """ε with everything it means nothing without."""
    return (
        f"ε = {epsilon(privacy.get('epsilon'))} at δ = {privacy['delta']:g}, "
        f"accountant {str(privacy['accountant']).upper()}, "
        f"neighbours {privacy['neighboring_relation']}; {beside_epsilon(privacy)}"
    )


def score_noise(charged: dict[str, Any]) -> str:
    """The standard deviation of the noise on the score of a charged trial; ``charged`` is the plan's ``charged_search``.

    Example:
        >>> score_noise({"score_noise_multiplier": 5.03, "score_std": 0.0352})
        '± 3.5 points'
        >>> score_noise({"score_noise_multiplier": 12.3, "score_std": 1.54})
        '± 150 points'
        >>> score_noise({"score_noise_multiplier": 30.0, "score_std": None})
        '± 30 records'
    """
    share = charged.get("score_std")
    if share is None:
        return f"± {number(charged['score_noise_multiplier'])} records"
    return f"± {number(float(f'{100 * share:.2g}'))} points"


CLIPPED = (
    "the share of gradients that were longer than clip_norm, the mean over all steps. Where hardly any is, the noise, which "
    "grows with clip_norm, is larger than it has to be: try a smaller one. Where nearly all are, which is common and fine, a "
    "smaller one changes little, as the learning rate is in units of one clipped gradient."
)
"""What simulations say of clipping, and what to make of it."""


def on_clipped(clipping: str | None, *, is_told: bool) -> str | None:
    """What stands beside a simulation's share of clipped gradients, or in its place.

    Example:
        >>> on_clipped("automatic", is_told=False)
        'not told of automatic clipping, which scales every gradient'
        >>> on_clipped("per_example", is_told=False) is None
        True
    """
    if clipping == "automatic":
        return "not told of automatic clipping, which scales every gradient"
    return CLIPPED if is_told else None


def scored_by(metric: str | None, *, prefix: str = "") -> str:
    """What the accuracies of a study are; ``prefix`` says of what.

    Example:
        >>> scored_by("accuracy", prefix="test "), scored_by("balanced_accuracy", prefix="test ")
        ('test accuracy', 'balanced test accuracy')
    """
    return f"{'balanced ' if is_balanced(metric) else ''}{prefix}accuracy"


def is_balanced(metric: str | None) -> bool:
    """Whether classes count alike; None, of a study from before there was a choice: they do not."""
    return metric == "balanced_accuracy"


BALANCED = "balanced: the mean over the classes of what is told right of each"


def shares_in_words(class_shares: Sequence[float] | None) -> str | None:
    """What a study states of its classes, as parts of all; None where it states nothing.

    Example:
        >>> shares_in_words([960, 30, 10]), shares_in_words(None)
        ('96 %, 3 %, 1 %', None)
    """
    if class_shares is None:
        return None
    total = sum(class_shares)
    return first_of([f"{100 * share / total:.3g} %" for share in class_shares])


def of_scores(search_accounting: str | None, plan: dict[str, Any] | None = None) -> str:
    """What has to be said beside every score of a trial: simulations are not private, charged trials are.

    Example:
        >>> of_scores("declared_unaccounted"), of_scores("accounted")
        ('not private', 'noisy, paid for')
        >>> charged = {"score_noise_multiplier": 5.03, "score_std": 0.0352}
        >>> of_scores("accounted", {"charged_search": charged})
        'noisy by ± 3.5 points, paid for'
    """
    if search_accounting != "accounted":
        return "not private"
    charged = (plan or {}).get("charged_search")
    return f"noisy by {score_noise(charged)}, paid for" if charged else "noisy, paid for"


def of_trial(search_accounting: str | None, plan: dict[str, Any] | None = None) -> str:
    """What a trial is, and what has to be said beside its score.

    Example:
        >>> of_trial("public_proxy")
        'simulation, not private'
    """
    kind = "private trial" if search_accounting == "accounted" else "simulation"
    return f"{kind}, {of_scores(search_accounting, plan)}"


def of_trials(search_accounting: str | None, plan: dict[str, Any] | None = None) -> str:
    """What the trials of a search are, and what has to be said beside their scores.

    Example:
        >>> of_trials("accounted"), of_trials("public_proxy")
        ('private trials, noisy, paid for', 'simulations, not private')
    """
    kind = "private trials" if search_accounting == "accounted" else "simulations"
    return f"{kind}, {of_scores(search_accounting, plan)}"


def beside_epsilon(privacy: dict[str, Any]) -> str:
    """What has to be said wherever the study's ε is.

    Example:
        >>> beside_epsilon({"search_note": "search on public data only", "restored_note": None})
        'search on public data only'
    """
    return "; ".join(filter(None, [privacy["search_note"], privacy.get("restored_note")]))


def beside_charged(ledger: dict[str, Any], search_accounting: str | None) -> list[str]:
    """What a statement says beside all that was charged on its dataset, which is in none of it.

    Searches and baselines that are not accounted are those of studies that declared it: where the statement's own study
    did not, they are other studies' alone.

    Args:
        ledger: of the statement.
        search_accounting: of its study.

    Example:
        >>> ledger = {"search_note": "search on private data NOT accounted", "unaccounted_searches": 1}
        >>> beside_charged(ledger, "accounted"), beside_charged(ledger, "declared_unaccounted")
        (['search on private data NOT accounted, of 1 other study'], ['search on private data NOT accounted, of 1 study'])
    """
    other = "" if search_accounting == "declared_unaccounted" else "other "
    told: list[str] = []
    for note, number in (
        (ledger.get("search_note"), ledger.get("unaccounted_searches")),
        (ledger.get("baseline_note"), ledger.get("unaccounted_baselines")),
    ):
        if note and number:
            told.append(f"{note}, of {number} {other}{'study' if number == 1 else 'studies'}")
        elif note:
            told.append(note)
    return [*told, *filter(None, [ledger.get("restored_note")])]


def interval(low: float, high: float) -> str:
    """Both ends of an interval of accuracies, in percent.

    Example:
        >>> interval(0.9693, 0.983)
        '[96.9, 98.3]'
    """
    return f"[{100 * low:.1f}, {100 * high:.1f}]"


def beside_the_law(prediction: dict[str, Any]) -> str:
    """What parts of a prediction do not come from the law: released weights, and earlier studies.

    Example:
        >>> beside_the_law({"ahead": -0.012, "shift": 0.0042, "shift_studies": 5})
        '; released weights are taken to be 1.2 points below the mean that is scored, and 5 earlier studies on these data count for 0.4 points more'
        >>> beside_the_law({"ahead": 0.0002, "shift": 0.0, "shift_studies": 0})
        ''
    """
    ahead, shift = (round(100 * prediction.get(name, 0.0), 1) for name in ("ahead", "shift"))
    count = prediction.get("shift_studies", 0)
    told: list[str] = []
    if ahead:
        side = "above" if ahead > 0 else "below"
        told.append(
            f"released weights are taken to be {abs(ahead):.1f} points {side} the mean that is scored"
        )
    if count and shift:
        whose = "1 earlier study" if count == 1 else f"{count} earlier studies"
        verb = "counts" if count == 1 else "count"
        side = "more" if shift > 0 else "less"
        told.append(f"{whose} on these data {verb} for {abs(shift):.1f} points {side}")
    return f"; {', and '.join(told)}" if told else ""


def why_beside(prediction: dict[str, Any], beside: float, plan: dict[str, Any]) -> str:
    """Why a prediction lies so far above the end of its trial's line; empty where nobody sees it.

    Example:
        >>> plan = {"simulations": [{}]}
        >>> why_beside({"ahead": 0.018, "shift": 0.0}, 0.018, plan)
        'The prediction lies 1.8 points above the end of the line: the line is of what is scored, the prediction of what is released.'
        >>> why_beside({"ahead": 0.003, "shift": 0.0}, -0.024, {"charged_search": {}})
        'The prediction lies 2.4 points below the end of the line: a noisy score is drawn towards what the other trials led to expect.'
        >>> why_beside({"ahead": 0.0, "shift": 0.0}, 0.0, plan)
        ''
    """
    points = round(100 * beside, 1)
    if plan.get("charged_search") is not None:
        why = "a noisy score is drawn towards what the other trials led to expect"
    elif prediction.get("shift", 0.0):
        why = "it also counts on what is released, and on what earlier studies reached"
    elif prediction.get("ahead", 0.0):
        why = "the line is of what is scored, the prediction of what is released"
    else:
        return ""
    if not points:
        return ""
    side = "above" if points > 0 else "below"
    return f"The prediction lies {abs(points):.1f} points {side} the end of the line: {why}."


def deviation(error: float) -> str:
    """An accuracy less the one that was predicted, in points.

    Example:
        >>> deviation(0.0031), deviation(-0.02), deviation(-0.0001)
        ('0.3 above', '2.0 below', 'as predicted')
    """
    points = round(100 * error, 1)
    if not points:
        return "as predicted"
    return f"{abs(points):.1f} {'above' if points > 0 else 'below'}"


def basis(prediction: dict[str, Any], plan: dict[str, Any]) -> str:
    """What a prediction rests on.

    Example:
        >>> plan = {"simulations": [{}, {}], "confirmation": {}}
        >>> basis({"method": "line", "seeds": 2, "is_fresh": True}, plan)
        '3 batch sizes, 2 seeds'
        >>> basis({"method": "largest_rung", "seeds": 1, "is_fresh": False}, plan)
        'the largest of 2 batch sizes, 1 seed that also chose the trial'
        >>> basis({"method": "largest_rung", "seeds": 1, "is_fresh": False}, {"charged_search": {}})
        'the noisy scores of all trials, which also chose it'
    """
    if plan.get("charged_search") is not None:
        return "the noisy scores of all trials, which also chose it"
    is_confirmed = prediction["is_fresh"] and plan.get("confirmation") is not None
    num_batch_sizes = len(plan["simulations"]) + is_confirmed
    sizes = counted(num_batch_sizes, "batch size")
    if prediction["method"] == "largest_rung" and num_batch_sizes > 1:
        sizes = f"the largest of {sizes}"
    chose = "" if prediction["is_fresh"] else " that also chose the trial"
    return f"{sizes}, {counted(prediction['seeds'], 'seed')}{chose}"


def simulated(plan: dict[str, Any]) -> list[tuple[dict[str, Any], str, float | None]]:
    """What a plan simulates: the rung, which of its steps, and how many trials; None: the best.

    Example:
        >>> rung = {"expected_batch_size": 128, "trials": 24}
        >>> plan = {"simulations": [rung], "heat": {"steps": 50, "trials": 8}, "confirmation": {}}
        >>> [(steps, trials) for _, steps, trials in simulated(plan)]
        [(', first 50 steps', 24), (', all steps', 8), ('', None)]
        >>> [(steps, trials) for _, steps, trials in simulated({"simulations": [rung]})]
        [('', 24)]
    """
    first, *above = [(rung, "", rung.get("trials")) for rung in plan["simulations"]]
    begins = [first]
    if (heat := plan.get("heat")) is not None:
        part = f", first {number(heat['steps'])} steps"
        begins = [(first[0], part, first[2]), (first[0], ", all steps", heat["trials"])]
    best = plan.get("confirmation")
    return [*begins, *above, *([] if best is None else [(best, "", None)])]


def coverage(inside: int, studies: int, *, level: float, mean_error: float) -> str:
    """How often intervals held, beside how often they should.

    Example:
        >>> coverage(17, 20, level=0.9, mean_error=0.0042)
        'held in 17 of 20 (90 % meant), mean error 0.4 points'
    """
    return (
        f"held in {inside} of {studies} ({100 * level:g} % meant), "
        f"mean error {100 * mean_error:.1f} points"
    )


def counts_of(plan: dict[str, Any]) -> str:
    """What a plan counts as examples: examples, or the users whose records make one gradient.

    Example:
        >>> counts_of({"cost": {"counts": "users"}}), counts_of({"cost": {}})
        ('users', 'examples')
    """
    return (plan.get("cost") or {}).get("counts", "examples")


def reserved_steps(planned: int, spare: int) -> str:
    """What the ledger reserves for a run, beside what the run promises.

    Example:
        >>> reserved_steps(40, 2)
        '42 steps: the 40 planned, whose ε is promised, and 2 to spare for what a crash has to repeat; what is not used is given back'
    """
    return (
        f"{planned + spare:,} steps: the {planned:,} planned, whose ε is promised, and {spare:,} to spare "
        "for what a crash has to repeat; what is not used is given back"
    )


def reserved_search(charged: dict[str, Any]) -> str:
    """What the ledger reserves for a search that is charged, beside what it reserves for the run.

    Example:
        >>> reserved_search({"trials": 6, "spare_trials": 1, "steps": 200})
        'for the search 7 trials of 200 steps with a score each: the 6 planned, and 1 to spare for those that a crash ends'
    """
    planned, spare = charged["trials"], charged["spare_trials"]
    return (
        f"for the search {planned + spare:,} trials of {charged['steps']:,} steps with a score each: the "
        f"{planned:,} planned, and {spare:,} to spare for those that a crash ends"
    )


OF_RATES = "Where a trial or a run goes on from another trial's weights, it takes a part of the learning rate told here."
"""Of the parameters of trials, beside studies whose runs go on from them."""


def begins_with(plan: dict[str, Any]) -> str | None:
    """What the private run begins with, where that is what its trial has left, or would be; None: that is not asked.

    Example:
        >>> begins_with({"charged_search": {}, "goes_on": True})
        'The private run goes on from the weights that its trial leaves, which are paid for, at half the learning rate that this one used.'
        >>> begins_with({"charged_search": {}})
        'The private run begins anew, without what its trial has learnt.'
        >>> begins_with({"goes_on": True})
        'The private run goes on from the weights that its trial leaves, which are of public data, at half the learning rate that this one used.'
        >>> begins_with({"charged_search": {"trials": 8, "anew": 3}, "goes_on": True}).split(". ")[0]
        'The first 3 of 8 trials begin anew; each later one goes on from the best before it, at other parts of its learning rate'
    """
    charged, goes_on = plan.get("charged_search"), plan.get("goes_on", False)
    if charged is None and not goes_on:
        return None
    if not goes_on:
        return "The private run begins anew, without what its trial has learnt."
    said = "The private run goes on from the weights that its trial leaves, which are"
    whose = "of public data" if charged is None else "paid for"
    run = f"{said} {whose}, at half the learning rate that this one used."
    return f"{trials_going_on(charged)} {run}" if charged and charged.get("anew") else run


def model_of(model: Mapping[str, Any]) -> str:
    """The name of a study's model, and the checkpoint that it begins from.

    Example:
        >>> model_of({"name": "vit-tiny", "pretrained": {"path": "a.pt", "data": "public", "train": "norms"}})
        'vit-tiny from a.pt (train: norms)'
        >>> model_of({"name": "vit-tiny", "pretrained": None})
        'vit-tiny'
    """
    name, pretrained = str(model["name"]), model.get("pretrained")
    return (
        f"{name} from {pretrained['path']} (train: {pretrained['train']})" if pretrained else name
    )


def trials_going_on(charged: dict[str, Any]) -> str:
    """Which trials of a search that is charged begin anew; ``charged`` is the plan's ``charged_search``, with ``anew``.

    Example:
        >>> trials_going_on({"trials": 2, "anew": 1})
        'The first of 2 trials begins anew; each later one goes on from the best before it, at other parts of its learning rate.'
    """
    anew, trials = charged["anew"], f"{charged['trials']:,} trials"
    first = (
        f"The first of {trials} begins" if anew == 1 else f"The first {anew:,} of {trials} begin"
    )
    return f"{first} anew; each later one goes on from the best before it, at other parts of its learning rate."


def rate_taken(start: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    """At which learning rate a trial went on, of ``began_from`` and ``params`` of it: its own, not the one that its line began with.

    Example:
        >>> rate_taken({"trial": 4, "learning_rate_factor": 0.4}, {"learning_rate": 3.0})
        'at a learning rate of 1.2, 0.4 times that of its parameters'
        >>> rate_taken({"trial": 4, "learning_rate_factor": 0.5}, {"momentum": 0.9})
        'at 0.5 times the learning rate'
        >>> rate_taken({"trial": 4, "learning_rate_factor": 1.0}, {"learning_rate": 3.0})
        'at a learning rate of 3, that of its parameters'
    """
    factor = start["learning_rate_factor"]
    rates = [
        value for key, value in params.items() if key.removeprefix("train.") == "learning_rate"
    ]
    if not rates:
        return f"at {parameter(factor)} times the learning rate"
    times = "" if factor == 1 else f"{parameter(factor)} times "
    return f"at a learning rate of {parameter(factor * rates[0])}, {times}that of its parameters"


def parts_alone(charged: dict[str, Any]) -> list[tuple[str, float]]:
    """What each part of a search that is charged comes to alone; ``charged`` is the plan's ``charged_search``.

    Nothing of a part that was not priced.

    Example:
        >>> parts_alone({"trials": 6, "epsilon_of_run": 2.1, "epsilon_of_trials": 1.9, "epsilon_of_scores": None})
        [('the private run', 2.1), ('its 6 trials', 1.9)]
    """
    parts = (
        ("the private run", charged.get("epsilon_of_run")),
        (f"its {counted(charged.get('trials', 0), 'trial')}", charged.get("epsilon_of_trials")),
        ("their scores", charged.get("epsilon_of_scores")),
    )
    return [(name, value) for name, value in parts if value is not None]


def for_comparison(accountant: str, epsilon: float | None, charged: dict[str, Any] | None) -> str:
    """What the figure of an accountant that promises nothing is; ``charged`` is the plan's ``charged_search``.

    PRV is not asked for what a study with a search that is charged comes to.

    Example:
        >>> for_comparison("rdp", 7.1, None), for_comparison("prv", None, None), for_comparison("prv", None, {"trials": 6})
        ('for comparison', 'gave no answer', 'not asked')
    """
    if epsilon is not None:
        return "for comparison"
    return "not asked" if charged and accountant == "prv" else "gave no answer"


def part_name(name: str) -> str:
    """Of a class or group: a group of records whose cell is empty has no letter.

    Example:
        >>> part_name("left"), part_name("")
        ('left', '(empty)')
    """
    return name if name.strip() else "(empty)"


def what_fits(remaining: float, total: float) -> str | None:
    """Beside what remains of a budget that holds something: no limit on the epsilon of the next study.

    Example:
        >>> what_fits(0.7, 10.0)
        'a study of a larger ε may fit, as they compose to less than their sum'
        >>> what_fits(0.0, 10.0), what_fits(10.0, 10.0)
        (None, None)
    """
    if not 0 < remaining < total:
        return None
    return "a study of a larger ε may fit, as they compose to less than their sum"


def counted(count: int, thing: str) -> str:
    """So many things.

    Example:
        >>> counted(1, "seed"), counted(2, "seed")
        ('1 seed', '2 seeds')
    """
    return f"{count} {thing}{'' if count == 1 else 's'}"


def of_own_model(study_id: str, dataset: str, search_note: str) -> str:
    """What is known of a checkpoint that this service trained on private data itself."""
    return (
        f"it is the model of study {study_id}, trained on {dataset} ({search_note}): what that study cost comes on top of this "
        "epsilon for whoever is in both data"
    )


def first_of(names: Sequence[str], at_most: int = 20) -> str:
    """The first of many names, and how many more there are.

    Example:
        >>> first_of(["no", "yes"]), first_of(["a", "b", "c"], 1)
        ('no, yes', 'a and 2 more')
    """
    rest = len(names) - at_most
    return ", ".join(names[:at_most]) + (f" and {rest:,} more" if rest > 0 else "")


def known_names(meant: str, names: Sequence[str], at_most: int = 10) -> str:
    """What there is, for whoever named what there is not: of many, those most alike come first.

    Example:
        >>> known_names("mnit", ["cifar", "digits", "mnist"], at_most=1), known_names("mnit", [])
        ('mnist and 2 more', 'none yet')
    """
    alike = get_close_matches(meant, names, n=3) if len(names) > at_most else []
    return first_of([*alike, *(name for name in names if name not in alike)], at_most) or "none yet"


def stated_features(features: Sequence[Any]) -> list[str]:
    """How the columns of a table are read, each in a few words; of JSON or of what it was read into.

    Example:
        >>> age, job = {"column": "age", "low": 0.0, "high": 100.0}, {"column": "job", "choices": ["clerk", "nurse"]}
        >>> stated_features(["height", age, job])
        ['height', 'age from 0 to 100', 'job (clerk, nurse)']
    """
    said: list[str] = []
    for each in features:
        known = each if isinstance(each, str | dict) else each.model_dump()
        if isinstance(known, str):
            said.append(known)
        elif "choices" in known:
            said.append(f"{known['column']} ({first_of(known['choices'], 10)})")
        else:
            said.append(f"{known['column']} from {number(known['low'])} to {number(known['high'])}")
    return said


def got(message: str, value: Any) -> str | None:
    """What was written, where the message about it does not say so itself.

    Example:
        >>> got("must be at least 1", 0), got("must rise, got [4, 2]", [4, 2]), got("is missing", None)
        ('0', None, None)
        >>> got("takes a number", True), got("too long", "True")
        ('true', "'True'")
    """
    if value is None or _SAYS_WHAT.search(message):
        return None
    # As it stands in the YAML, not as Python has it.
    return on_one_line(value) if isinstance(value, bool) else repr(value)


def _parameter(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

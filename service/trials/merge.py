"""A trial as it is known and as it is reported, made one: nothing that was scored is lost."""

from collections.abc import Iterable

from tan_core.wire import RungScore, TrialRecord


def merged(known: TrialRecord, report: TrialRecord) -> TrialRecord:
    """The trial after a report of it; after the same report once more it is no other.

    ================  ==============================================================================
    The known trial   What the report changes
    ================  ==============================================================================
    has finished      ``repeats`` grow by the (seed, rung) that were not known yet; nothing else
    is open           everything, but scores that the report does not have stay: a trial that begins
                      again after its driver died may be reported without them at first
    ================  ==============================================================================
    """
    repeats = _union([*known.repeats, *report.repeats])
    if known.state.is_finished:
        return known.model_copy(update={"repeats": repeats})
    value = known.value if report.value is None else report.value
    scores = _union([*report.scores, *known.scores])
    return report.model_copy(update={"scores": scores, "repeats": repeats, "value": value})


def _union(scores: Iterable[RungScore]) -> list[RungScore]:
    """By seed, then rung; the first of those that agree in both."""
    by_place: dict[tuple[int, int], RungScore] = {}
    for score in scores:
        by_place.setdefault((score.seed, score.rung), score)
    return [by_place[place] for place in sorted(by_place)]

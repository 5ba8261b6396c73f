"""The metric families: names, help and labels of everything that is read anew at each scrape."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    SummaryMetricFamily,
)
from sqlalchemy.pool import QueuePool

from service.ledger.prices import Budget
from service.ledger.schemas import Totals
from service.metrics.counts import Counts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reading:
    """What one scrape shows; a collector of prometheus_client."""

    counts: Counts
    streams: int
    events_behind: int
    budgets: list[Budget]
    totals: Mapping[str, Totals]
    is_restored: bool
    """Whether the database is older than what left the service, or another one."""
    pool: QueuePool

    def collect(self) -> Iterable[Metric]:
        """The families, as a Prometheus collector gives them."""
        yield from _of_studies(self.counts)
        yield from _of_drivers(self.counts)
        yield from _of_orchestrators(self.counts)
        yield from _of_streams(self.streams, self.events_behind)
        yield from _of_ledger(self.budgets, self.totals)
        yield GaugeMetricFamily(
            "tan_restored_backup",
            "1 where the database is older than what left the service: nothing is started or charged until that is settled.",
            value=int(self.is_restored),
        )
        yield _of_pool(self.pool)


def _of_studies(counts: Counts) -> Iterable[Metric]:
    studies = GaugeMetricFamily("tan_studies", "Studies by state.", labels=["state"])
    for state, number in counts.studies.items():
        studies.add_metric([state], number)
    yield studies
    yield GaugeMetricFamily(
        "tan_queue_depth", "Studies that wait for a slot.", value=counts.studies["queued"]
    )
    yield GaugeMetricFamily(
        "tan_queue_oldest_age_seconds",
        "Age of the study that has been queued longest; 0 when none is.",
        value=counts.oldest_queued_age,
    )
    runs = GaugeMetricFamily(
        "tan_runs", "Searches and private runs by state.", labels=["kind", "state"]
    )
    for labels, number in counts.runs.items():
        runs.add_metric(labels, number)
    yield runs


def _of_drivers(counts: Counts) -> Iterable[Metric]:
    attempts = GaugeMetricFamily(
        "tan_attempts", "Attempts of runs by the kind of run and state.", labels=["kind", "state"]
    )
    lost = CounterMetricFamily(
        "tan_attempts_lost", "Attempts whose driver died or fell silent.", labels=["kind"]
    )
    for (kind, state), number in counts.attempts.items():
        attempts.add_metric([kind, state], number)
    for kind in ("private", "search"):
        lost.add_metric([kind], counts.attempts.get((kind, "lost"), 0))
    yield attempts
    yield lost
    yield GaugeMetricFamily(
        "tan_heartbeat_oldest_age_seconds",
        "Silence of the live attempt that has been silent longest; 0 when none is live.",
        value=counts.oldest_heartbeat_age,
    )
    without_place = GaugeMetricFamily(
        "tan_runs_without_place", "Runs that wait for a place in the Ray cluster.", labels=["kind"]
    )
    for kind, number in counts.without_place.items():
        without_place.add_metric([kind], number)
    yield without_place


def _of_orchestrators(counts: Counts) -> Iterable[Metric]:
    age = GaugeMetricFamily(
        "tan_orchestrator_tick_age_seconds",
        "Time since an orchestrator last looked at its studies, to two seconds.",
        labels=["orchestrator"],
    )
    ticks = SummaryMetricFamily(
        "tan_reconcile_seconds",
        "Duration of an orchestrator's looks at all its studies.",
        labels=["orchestrator"],
    )
    last = GaugeMetricFamily(
        "tan_reconcile_last_seconds", "Duration of the last look.", labels=["orchestrator"]
    )
    for pulse in counts.pulses:
        age.add_metric([pulse.owner], pulse.age)
        ticks.add_metric([pulse.owner], count_value=pulse.ticks, sum_value=pulse.seconds)
        last.add_metric([pulse.owner], pulse.last_seconds)
    yield from (age, ticks, last)


def _of_streams(streams: int, behind: int) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        "tan_event_streams", "Event streams that this process serves.", value=streams
    )
    yield GaugeMetricFamily(
        "tan_events_behind",
        "Events that the slowest stream of this process has still to send.",
        value=behind,
    )


def _of_ledger(budgets: list[Budget], totals: Mapping[str, Totals]) -> Iterable[Metric]:
    budget = GaugeMetricFamily(
        "tan_ledger_epsilon_budget", "Total epsilon of a scope, at its delta.", labels=["scope"]
    )
    committed = GaugeMetricFamily(
        "tan_ledger_epsilon_committed",
        "Epsilon of what was charged or is held, as admission compares it with the budget.",
        labels=["scope"],
    )
    charged = GaugeMetricFamily(
        "tan_ledger_epsilon_charged", "Epsilon of the steps that have begun.", labels=["scope"]
    )
    delta = GaugeMetricFamily(
        "tan_ledger_delta", "Delta at which a scope's epsilons are stated.", labels=["scope"]
    )
    entries = GaugeMetricFamily(
        "tan_ledger_entries", "Entries of a scope's journal.", labels=["scope"]
    )
    priced = GaugeMetricFamily(
        "tan_ledger_priced_entries",
        "Entries that the epsilons shown are of: fewer than all while a price is computed.",
        labels=["scope"],
    )
    for each in budgets:
        labels = [each.scope_id]
        budget.add_metric(labels, each.epsilon)
        delta.add_metric(labels, each.delta)
        entries.add_metric(labels, each.seq)
        known = totals.get(each.scope_id)
        if known is not None:
            committed.add_metric(labels, known.committed_epsilon)
            charged.add_metric(labels, known.charged_epsilon)
            priced.add_metric(labels, known.head.seq)
    yield from (budget, committed, charged, delta, entries, priced)


def _of_pool(pool: QueuePool) -> Metric:
    family = GaugeMetricFamily(
        "tan_database_connections", "Connections of this process by state.", labels=["state"]
    )
    family.add_metric(["in_use"], pool.checkedout())
    family.add_metric(["idle"], pool.checkedin())
    return family

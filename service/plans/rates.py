"""How fast this service has seen a model work on a dataset."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from sqlalchemy.ext.asyncio import AsyncSession

from service.plans import repository
from service.plans.repository import Work
from tan_core.planner import MeasuredRate
from tan_core.spec import StudySpec


@dataclass(frozen=True)
class StudyRates:
    """Of one device, as far as they are known."""

    private_run: MeasuredRate | None
    search: MeasuredRate | None


async def measured(
    session: AsyncSession,
    spec: StudySpec,
    *,
    dataset: str,
    search_dataset: str,
    tenant: str | None,
) -> StudyRates:
    """The rates of what ran before with this study's model and data: of the tenant's studies, or (None) of anybody's."""
    name = spec.model.name
    private_runs = await repository.trained(session, spec, dataset, tenant=tenant)
    simulations = await repository.simulated(session, spec, search_dataset, tenant=tenant)
    return StudyRates(
        private_run=rate_of(private_runs, f"private runs of {name} on {dataset}"),
        search=rate_of(simulations, f"simulations of {name} on {search_dataset}"),
    )


def rate_of(work: Sequence[Work], what: str) -> MeasuredRate | None:
    """The median rate of a device, and how many the newest had where it asked for more; None without anything measured.

    Example:
        >>> rate_of([Work(100.0, 2.0), Work(90.0, 1.0)], "private runs of mlp on digits")
        MeasuredRate(examples_per_second=70.0, source='private runs of mlp on digits: median of 2', most_devices=None)
    """
    rates = [one.examples / one.device_seconds for one in work if one.device_seconds > 0]
    if not rates:
        return None
    return MeasuredRate(
        examples_per_second=median(rates),
        source=f"{what}: median of {len(rates)}",
        most_devices=work[0].devices,
    )

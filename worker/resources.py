"""What trials and ranks ask of the Ray cluster: CPUs, GPUs, and how many ranks at once."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from worker.settings import WorkerSettings


@dataclass(frozen=True, slots=True)
class Ranks:
    """Those of a private run. World size is no part of the mechanism."""

    number: int
    use_gpu: bool

    @property
    def each(self) -> dict[str, float]:
        """What one rank asks for: a GPU is never shared, for a rank takes what fits into its memory."""
        return {"CPU": 1, "GPU": 1} if self.use_gpu else {"CPU": 1}


def told(each: Mapping[str, float]) -> str:
    """What a trial or rank asks for, in words.

    Example:
        >>> told({"cpu": 1, "gpu": 0.25})
        '1 CPU and 0.25 GPU'
    """
    return " and ".join(f"{amount:g} {name.upper()}" for name, amount in each.items())


def of_trial(cluster: Mapping[str, Any], settings: WorkerSettings) -> dict[str, float]:
    """One core for a trial, and its GPU or part of one.

    Args:
        cluster: what there is of each resource now.
        settings: where ``gpus_per_trial`` is not stated, a trial has a GPU where there is any.
    """
    gpus = settings.gpus_per_trial
    if gpus is None:
        gpus = 1.0 if cluster.get("GPU", 0) else 0.0
    return {"cpu": 1, "gpu": gpus} if gpus else {"cpu": 1}


def of_ranks(cluster: Mapping[str, Any], wanted: int, settings: WorkerSettings) -> Ranks:
    """As many ranks as fit into what there is, or as are wanted where the cluster grows."""
    gpus = int(cluster.get("GPU", 0))
    if settings.autoscaling:
        return Ranks(wanted, use_gpu=bool(gpus or settings.gpus_per_trial))
    ranks = Ranks(wanted, use_gpu=gpus > 0)
    slots = min(int(cluster.get(name, 1)) for name in ranks.each)
    return replace(ranks, number=max(1, min(wanted, slots)))


def tasks_at_once(
    cluster: Mapping[str, Any],
    each: Mapping[str, float],
    limit: int | None,
    settings: WorkerSettings,
) -> int:
    """How many tasks of one kind Ray is given at once: more than run, so that none of its workers waits for the next.

    What waits has a cluster grow that can, and then there may be more.

    Args:
        cluster: what there is of each resource now.
        each: what a task asks for.
        limit: never more than these.
        settings: whether it grows.

    Example:
        >>> settings = WorkerSettings(api_url="http://tan", run_id="r", fence=1, run_token="t")
        >>> tasks_at_once({"CPU": 8, "GPU": 1}, {"cpu": 1, "gpu": 0.25}, None, settings)
        8
    """
    places = min(int(cluster.get(name.upper(), 0) / amount) for name, amount in each.items())
    wanted = 2 * max(places, 1) if places > 1 or settings.autoscaling else 1
    return wanted if limit is None else min(wanted, limit)

"""What trials and ranks ask of the Ray cluster: CPUs, GPUs, and how many ranks at once."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from worker.settings import WorkerSettings

Nodes = Sequence[Mapping[str, float]]
"""What each node has of each resource, in use or not."""
_ROUNDING = 1e-6
"""A tenth is no number of a processor: ten of them are to fit into one."""


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


def places(nodes: Nodes, each: Mapping[str, float]) -> int:
    """How many trials or ranks that ask for this the nodes have room for while nothing else runs.

    Each is on one node. Parts of a GPU are parts of one GPU.

    Example:
        >>> places([{"CPU": 1, "GPU": 8}, {"CPU": 16}], {"CPU": 1, "GPU": 1})
        1
        >>> places([{"CPU": 8, "GPU": 2}], {"cpu": 1, "gpu": 0.4})
        4
    """
    return sum(
        min(_held(node.get(name.upper(), 0), amount) for name, amount in each.items())
        for node in nodes
    )


def _held(there: float, amount: float) -> int:
    if amount < 1:
        return int(there) * math.floor(1 / amount + _ROUNDING)
    return math.floor(there / amount + _ROUNDING)


def has_gpu(nodes: Nodes) -> bool:
    """Whether there is any."""
    return any(node.get("GPU", 0) for node in nodes)


def why_waiting(
    number: int, each: Mapping[str, float], nodes: Nodes, settings: WorkerSettings
) -> str:
    """What keeps so many trials or ranks from beginning, in words.

    Example:
        >>> settings = WorkerSettings(api_url="http://tan", run_id="r", fence=1, run_token="t")
        >>> why_waiting(2, {"CPU": 1, "GPU": 1}, [{"CPU": 8, "GPU": 1}], settings)
        'waiting for 2 places with 1 CPU and 1 GPU each: the Ray cluster has 1'
        >>> why_waiting(1, {"CPU": 1}, [{"CPU": 8}], settings)
        'waiting for a place with 1 CPU: the Ray cluster has 8, and others use them'
    """
    there = places(nodes, each)
    has = str(there or "none")
    if there >= number:
        has += f", and others use {'it' if there == 1 else 'them'}"
    elif settings.autoscaling:
        has += " yet"
    wanted = (
        f"{number} places with {told(each)} each" if number > 1 else f"a place with {told(each)}"
    )
    return f"waiting for {wanted}: the Ray cluster has {has}"


def of_trial(nodes: Nodes, settings: WorkerSettings) -> dict[str, float]:
    """One core for a trial, and its GPU or part of one.

    Args:
        nodes: what there is now.
        settings: where ``gpus_per_trial`` is not stated, a trial has a GPU where there is any.
    """
    gpus = settings.gpus_per_trial
    if gpus is None:
        gpus = 1.0 if has_gpu(nodes) else 0.0
    return {"cpu": 1, "gpu": gpus} if gpus else {"cpu": 1}


def of_ranks(nodes: Nodes, wanted: int, settings: WorkerSettings) -> Ranks:
    """As many ranks as fit into what there is, or as are wanted where the cluster grows."""
    if settings.autoscaling:
        return Ranks(wanted, use_gpu=has_gpu(nodes) or bool(settings.gpus_per_trial))
    ranks = Ranks(wanted, use_gpu=has_gpu(nodes))
    return replace(ranks, number=max(1, min(wanted, places(nodes, ranks.each))))


def tasks_at_once(
    nodes: Nodes,
    each: Mapping[str, float],
    limit: int | None,
    settings: WorkerSettings,
) -> int:
    """How many tasks of one kind Ray is given at once: more than run, so that none of its workers waits for the next.

    What waits has a cluster grow that can, and then there may be more.

    Args:
        nodes: what there is now.
        each: what a task asks for.
        limit: never more than these.
        settings: whether it grows.

    Example:
        >>> settings = WorkerSettings(api_url="http://tan", run_id="r", fence=1, run_token="t")
        >>> tasks_at_once([{"CPU": 8, "GPU": 1}], {"cpu": 1, "gpu": 0.25}, None, settings)
        8
    """
    there = places(nodes, each)
    wanted = 2 * max(there, 1) if there > 1 or settings.autoscaling else 1
    return wanted if limit is None else min(wanted, limit)

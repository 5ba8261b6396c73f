"""What heartbeats say while Ray has no place for anything of an attempt; what Ray answers is stated here."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr

from worker import places
from worker.places import TOO_FEW_SECONDS, Places, has_place, nodes_now
from worker.settings import WorkerSettings

JOB = "02000000"
PERIOD = TOO_FEW_SECONDS / 4
RANK = {"CPU": 1, "GPU": 1}


class Cluster:
    """What Ray says, one look after another; the last look again and again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.groups: dict[str, str] = {}
        self.gpus: list[int] = [1]
        monkeypatch.setattr(places, "placement_group_table", self.table)
        monkeypatch.setattr(places.ray, "nodes", self.nodes)
        context = SimpleNamespace(get_job_id=lambda: JOB)
        monkeypatch.setattr(places.ray, "get_runtime_context", lambda: context)

    def table(self) -> dict[str, Any]:
        return {number: {"state": state} for number, state in self.groups.items()}

    def nodes(self) -> list[dict[str, Any]]:
        lost = {"Alive": False, "Resources": {"CPU": 8.0, "GPU": 8.0}}
        return [lost, *({"Alive": True, "Resources": {"CPU": 2.0, "GPU": 1.0}} for _ in self.gpus)]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


class Told:
    """Heartbeats, as far as they say this."""

    def __init__(self, *, is_to_stop: bool = False) -> None:
        self.said: list[tuple[str | None, float]] = []
        self.is_to_stop = lambda: is_to_stop

    def note_waiting(self, waits_for: str | None, seconds: float) -> None:
        self.said.append((waits_for, seconds))


def looking(
    told: Told,
    number: int,
    *,
    leave: Callable[[], None] = lambda: None,
    too_few: Callable[[str], None] | None = None,
    **changes: Any,
) -> Places:
    settings = WorkerSettings(
        api_url="http://tan", run_id="r1", fence=1, run_token=SecretStr("t"), **changes
    )
    heartbeats: Any = told
    return Places(
        number,
        RANK,
        settings,
        heartbeats,
        leave=leave,
        too_few=too_few,
        look_every_seconds=0.001,
    )


def look(watched: Places, *, times: int = 1) -> None:
    for _ in range(times):
        watched._look(PERIOD)  # pyright: ignore[reportPrivateUsage]


def test_nodes_that_are_gone_have_room_for_nothing(cluster: Cluster) -> None:
    assert nodes_now() == [{"CPU": 2.0, "GPU": 1.0}]


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ({}, None),
        ({"aa" + JOB: "PENDING"}, False),
        ({"aa" + JOB: "CREATED"}, True),
        ({"aa" + JOB: "CREATED", "bb" + JOB: "PENDING"}, True),  # one trial runs, the next waits
        ({"aa" + JOB: "REMOVED", "bb" + JOB: "PENDING"}, False),
        ({"aa" + JOB: "REMOVED"}, None),
        ({"aa01000000": "PENDING", "bb" + JOB: "CREATED"}, True),
        ({"aa01000000": "CREATED", "bb" + JOB: "PENDING"}, False),  # of another job
        ({"aa01000000": "PENDING"}, None),
    ],
)
def test_a_job_has_a_place_once_it_was_given_any_that_it_asked_for(
    cluster: Cluster, groups: dict[str, str], expected: bool | None
) -> None:
    cluster.groups = groups
    assert has_place() is expected


def test_heartbeats_say_what_is_waited_for_and_for_how_long_it_was(cluster: Cluster) -> None:
    told = Told()
    watched = looking(told, 1)
    look(watched)  # before anything was asked for
    # Ray Train takes back what it asked for, and asks anew.
    for groups in ({"aa" + JOB: "PENDING"}, {}, {"bb" + JOB: "PENDING"}, {"bb" + JOB: "CREATED"}):
        cluster.groups = groups
        look(watched)

    waits = "waiting for a place with 1 CPU and 1 GPU: the Ray cluster has 1, and others use it"
    assert told.said == [
        (None, 0.0),
        *[(waits, PERIOD)] * 3,
        (None, 0.0),
    ]


def test_it_looks_by_itself_and_says_nothing_any_more_when_it_is_left(cluster: Cluster) -> None:
    told = Told()
    cluster.groups = {"aa" + JOB: "PENDING"}
    with looking(told, 1):
        while not told.said:
            pass
    assert told.said[0][0] is not None
    assert told.said[-1][0] is None


def test_a_cluster_that_cannot_be_asked_is_asked_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, asked = Told(), list[str]()

    def away() -> dict[str, Any]:
        asked.append("")
        if len(asked) < 3:
            raise RuntimeError("the GCS does not answer")
        return {"aa" + JOB: {"state": "PENDING"}}

    monkeypatch.setattr(places, "placement_group_table", away)
    with looking(told, 1):
        while not told.said:
            pass
    assert len(asked) >= 3


@pytest.mark.parametrize(
    ("state", "is_to_stop", "leaves"),
    [("PENDING", True, 1), ("PENDING", False, 0), ("CREATED", True, 0)],
)
def test_who_is_to_stop_leaves_at_once_where_nothing_has_begun(
    cluster: Cluster, state: str, is_to_stop: bool, leaves: int
) -> None:
    """What runs goes on to its checkpoint, and notices by itself."""
    left = list[None]()
    watched = looking(Told(is_to_stop=is_to_stop), 1, leave=lambda: left.append(None))
    cluster.groups = {"aa" + JOB: state}
    look(watched)

    assert len(left) == leaves


class TestTooFew:
    def test_room_for_some_of_the_ranks_ends_the_attempt_when_no_node_came_back(
        self, cluster: Cluster
    ) -> None:
        ended = list[str]()
        watched = looking(Told(), 2, too_few=ended.append)
        cluster.groups = {"aa" + JOB: "PENDING"}
        look(watched, times=3)
        assert ended == []

        look(watched)

        assert ended == ["waiting for 2 places with 1 CPU and 1 GPU each: the Ray cluster has 1"]

    def test_a_node_that_came_back_begins_the_wait_anew(self, cluster: Cluster) -> None:
        ended = list[str]()
        watched = looking(Told(), 2, too_few=ended.append)
        cluster.groups = {"aa" + JOB: "PENDING"}
        look(watched, times=3)
        cluster.gpus = [1, 1]
        look(watched)
        cluster.gpus = [1]
        look(watched, times=3)

        assert ended == []

    @pytest.mark.parametrize(
        ("gpus", "changes"),
        [
            ([1, 1], {}),  # others use them
            ([], {}),  # on processors it would take a hundred times as long: who wants that says so
            ([1], {"autoscaling": True}),  # a node is on its way
        ],
    )
    def test_otherwise_it_waits(
        self, cluster: Cluster, gpus: list[int], changes: dict[str, Any]
    ) -> None:
        ended = list[str]()
        watched = looking(Told(), 2, too_few=ended.append, **changes)
        cluster.groups, cluster.gpus = {"aa" + JOB: "PENDING"}, gpus
        look(watched, times=20)

        assert ended == []

"""What trials and ranks ask for, from what there is and what an operator states."""

import pytest

from worker.resources import Ranks, of_ranks, of_trial, places, tasks_at_once, told, why_waiting
from worker.settings import WorkerSettings


def settings(**changes) -> WorkerSettings:
    return WorkerSettings(api_url="http://x", run_id="r", fence=1, run_token="t", **changes)


@pytest.mark.parametrize(
    ("gpus", "stated", "asked"),
    [
        (0, None, None),
        (2, None, 1.0),
        (2, 0.25, 0.25),
        (2, 0, None),
        (0, 0.5, 0.5),  # a node with one is yet to be started
        (2, 2, 2.0),
    ],
)
def test_a_trial_asks_for_what_is_stated_or_for_a_gpu_where_there_is_one(
    gpus: int, stated: float | None, asked: float | None
) -> None:
    wanted = {"cpu": 1} if asked is None else {"cpu": 1, "gpu": asked}

    assert (
        of_trial([{"CPU": 8}, {"CPU": 8, "GPU": gpus}], settings(gpus_per_trial=stated)) == wanted
    )


@pytest.mark.parametrize(
    ("nodes", "changes", "expected"),
    [
        ([{"CPU": 8}], {}, Ranks(4, use_gpu=False)),
        ([{"CPU": 1}, {"CPU": 1}], {}, Ranks(2, use_gpu=False)),
        ([], {}, Ranks(1, use_gpu=False)),
        ([{"CPU": 8, "GPU": 2}], {}, Ranks(2, use_gpu=True)),
        ([{"CPU": 2, "GPU": 8}], {}, Ranks(2, use_gpu=True)),  # each has a core as well
        ([{"CPU": 1, "GPU": 8}, {"CPU": 16}], {}, Ranks(1, use_gpu=True)),  # of its own node
        ([{"GPU": 8}, {"CPU": 16}], {}, Ranks(1, use_gpu=True)),
        ([{"CPU": 1}], {"autoscaling": True}, Ranks(4, use_gpu=False)),
        ([{"GPU": 1}], {"autoscaling": True}, Ranks(4, use_gpu=True)),
        ([], {"autoscaling": True, "gpus_per_trial": 0.5}, Ranks(4, use_gpu=True)),
    ],
)
def test_ranks_are_cut_to_what_is_there_unless_the_cluster_grows(
    nodes: list, changes: dict, expected: Ranks
) -> None:
    assert of_ranks(nodes, 4, settings(**changes)) == expected


@pytest.mark.parametrize(("use_gpu", "each"), [(True, {"CPU": 1, "GPU": 1}), (False, {"CPU": 1})])
def test_a_rank_never_shares_a_gpu(use_gpu: bool, each: dict) -> None:
    assert Ranks(2, use_gpu=use_gpu).each == each


@pytest.mark.parametrize(
    ("each", "words"),
    [
        ({"CPU": 1}, "1 CPU"),
        ({"CPU": 1, "GPU": 1}, "1 CPU and 1 GPU"),
        ({"cpu": 1, "gpu": 0.25}, "1 CPU and 0.25 GPU"),
    ],
)
def test_what_each_is_given_is_told_in_one_way(each: dict, words: str) -> None:
    assert told(each) == words


@pytest.mark.parametrize(
    ("cluster", "each", "limit", "number", "number_where_it_grows"),
    [
        ({"CPU": 8}, {"cpu": 1}, None, 16, 16),
        ({"CPU": 8}, {"cpu": 1}, 3, 3, 3),
        ({"CPU": 1}, {"cpu": 1}, 4, 1, 2),
        ({}, {"cpu": 1}, 1, 1, 1),
        ({"CPU": 8, "GPU": 1}, {"cpu": 1, "gpu": 1}, None, 1, 2),
        ({"CPU": 8, "GPU": 2}, {"cpu": 1, "gpu": 0.5}, None, 8, 8),
        ({"CPU": 8}, {"cpu": 1, "gpu": 1}, None, 1, 2),  # a node with one is yet to be started
    ],
)
def test_tasks_are_more_than_run_and_no_more_than_a_study_may_have(
    cluster: dict, each: dict, limit: int | None, number: int, number_where_it_grows: int
) -> None:
    found = [
        tasks_at_once([cluster], each, limit, settings(autoscaling=grows))
        for grows in (False, True)
    ]

    assert found == [number, number_where_it_grows]


@pytest.mark.parametrize(
    ("node", "each", "number"),
    [
        ({"CPU": 8}, {"cpu": 1}, 8),
        ({"CPU": 8.0, "GPU": 1.0}, {"cpu": 1, "gpu": 0.1}, 8),
        ({"CPU": 40, "GPU": 3}, {"cpu": 1, "gpu": 0.1}, 30),
        ({"CPU": 8, "GPU": 2}, {"cpu": 1, "gpu": 0.4}, 4),  # and no part of each
        ({"CPU": 8, "GPU": 3}, {"cpu": 1, "gpu": 2}, 1),
        ({"CPU": 8}, {"cpu": 1, "gpu": 1}, 0),
    ],
)
def test_a_node_has_as_many_places_as_it_has_room_for(node: dict, each: dict, number: int) -> None:
    assert places([node], each) == number
    assert places([node, node, {}], each) == 2 * number


GPU = {"CPU": 1, "GPU": 1}


@pytest.mark.parametrize(
    ("number", "nodes", "grows", "words"),
    [
        (2, [GPU, {"CPU": 8}], False, "waiting for 2 places with 1 CPU and 1 GPU each: the Ray cluster has 1"),
        (1, [], False, "waiting for a place with 1 CPU and 1 GPU: the Ray cluster has none"),
        (1, [], True, "waiting for a place with 1 CPU and 1 GPU: the Ray cluster has none yet"),
        (1, [GPU], True, "waiting for a place with 1 CPU and 1 GPU: the Ray cluster has 1, and others use it"),
        (2, [GPU] * 3, False, "waiting for 2 places with 1 CPU and 1 GPU each: the Ray cluster has 3, and others use them"),
    ],
)  # fmt: skip
def test_who_waits_for_places_says_for_how_many_and_what_there_is(
    number: int, nodes: list, grows: bool, words: str
) -> None:
    assert why_waiting(number, GPU, nodes, settings(autoscaling=grows)) == words

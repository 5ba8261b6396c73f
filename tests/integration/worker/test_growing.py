"""Real searches and a real private run on a Ray whose nodes start on demand: raylets of this machine."""

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tan_core.wire import PrivateAssignment, SearchAssignment, TrialState
from tests.integration.worker.conftest import (
    RayHead,
    running_head,
    serving,
    wait_for,
)
from tests.support.ports import free_port

if TYPE_CHECKING:
    from conftest import Books, ControlPlaneServer, Start

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

NODE_CPUS, MOST_NODES = 2, 2
IDLE_SECONDS = 6
NewBooks = Callable[..., "Books"]


def autoscaling_config(address: str) -> dict[str, Any]:
    """No node at first. Nodes with a GPU are of a type of which none can be had."""
    return {
        "cluster_name": "growing",
        "max_workers": MOST_NODES,
        "idle_timeout_minutes": IDLE_SECONDS / 60,
        "upscaling_speed": 10,
        "provider": {
            "type": "fake_multinode",
            "gcs_address": address,
            "use_node_id_as_ip": True,  # all nodes share one address
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
        },
        "auth": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        "worker_setup_commands": [],
        "worker_start_ray_commands": [],
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "plain": {
                "resources": {"CPU": NODE_CPUS, "object_store_memory": 100_000_000},
                "node_config": {},
                "min_workers": 0,
                "max_workers": MOST_NODES,
            },
            "gpu": {
                "resources": {"CPU": 2, "GPU": 1, "object_store_memory": 100_000_000},
                "node_config": {},
                "min_workers": 0,
                "max_workers": 0,
            },
        },
    }


@pytest.fixture(scope="module")
def ray_head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayHead]:
    """A head without a core of its own."""
    port = free_port()
    file = tmp_path_factory.mktemp("growing") / "config.json"
    file.write_text(json.dumps(autoscaling_config(f"127.0.0.1:{port}")))
    with running_head(
        port,
        "--num-cpus=0",
        f"--autoscaling-config={file}",
        RAY_FAKE_CLUSTER="1",
        AUTOSCALER_UPDATE_INTERVAL_S="1",
    ) as head:
        yield head


def num_nodes(head: RayHead) -> int:
    """Raylets of this Ray beside the head's own."""
    names = [process.name() for process in head.children()]
    return names.count("raylet") - 1


def test_a_search_that_waits_for_a_node_holds_up_no_other_and_nodes_come_and_go(
    ray_head: RayHead,
    plane: "ControlPlaneServer",
    start: "Start",
    search_of: Callable[..., SearchAssignment],
    new_books: NewBooks,
) -> None:
    wait_for(lambda: num_nodes(ray_head) == 0, seconds=90)  # its own raylet comes after its port
    plane.books = books = new_books(search_of())
    with serving() as other:
        other.books = waiting = new_books(search_of(run_id="s2-search", study_id="s2"))
        waits = start(
            "worker.simulate",
            TAN_API_URL=other.url,
            TAN_RUN_ID="s2-search",
            TAN_GPUS_PER_TRIAL="1",
        )
        wait_for(lambda: waiting.heartbeats, seconds=120)

        driver = start("worker.simulate")
        wait_for(lambda: num_nodes(ray_head) > 0, seconds=120)
        out, _ = driver.communicate(timeout=300)

        assert driver.returncode == 0, out
        assert [finish.outcome for finish in books.finishes] == ["succeeded"]
        assert len(books.trials) == 6
        assert any(trial.state is TrialState.COMPLETED for trial in books.trials.values())
        assert waits.poll() is None
        assert [each for each in waiting.reports if each.state.is_finished] == []

        with other.lock:
            waiting.desired = "cancel"
        assert waits.wait(timeout=120) == 0, waits.communicate()[0]
        assert [finish.outcome for finish in waiting.finishes] == ["cancelled"]
    wait_for(lambda: num_nodes(ray_head) == 0, seconds=90)


def test_ranks_wait_for_the_nodes_that_they_need(
    ray_head: RayHead,
    plane: "ControlPlaneServer",
    start: "Start",
    private_of: Callable[..., PrivateAssignment],
    new_books: NewBooks,
) -> None:
    """Three ranks where there is no core when the run starts, and no node has more than two."""
    wait_for(lambda: num_nodes(ray_head) == 0, seconds=90)
    plane.books = books = new_books(private_of(workers=3))

    driver = start("worker.train", TAN_AUTOSCALING="true")
    wait_for(lambda: num_nodes(ray_head) == MOST_NODES, seconds=120)
    out, _ = driver.communicate(timeout=300)

    assert driver.returncode == 0, out
    (finish,) = books.finishes
    assert finish.outcome == "succeeded"
    assert finish.result is not None
    assert finish.result.steps == 40
    assert books.faults == []

"""docker-compose.yml as it would run on several machines: each service in a host of its own."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from service.datasets.service import DIGITS
from tests.support.hosts import IMAGES, Topology, why_not
from tests.support.live import StudyApi, digits_study

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.long,
    pytest.mark.timeout(600),
]


class Deployed(StudyApi):
    """A topology that is up, and a client from outside of it."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        token = topology.secret("tan_api_token")
        self.client = httpx.Client(
            base_url=topology.url, headers={"Authorization": f"Bearer {token}"}, timeout=30
        )

    def request(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        """What has ended is started again meanwhile, as the file's policies ask for."""
        self.topology.restart_ended()
        return self.client.request(method, path, **kwargs)

    def wait_long(self, study_id: str, **how: Any) -> dict[str, Any]:
        """As :meth:`wait`; what the hosts have printed is told where it is in vain."""
        try:
            return self.wait(study_id, seconds=400, **how)
        except AssertionError as error:
            error.add_note(self.topology.logs())
            raise


@pytest.fixture(scope="module")
def deployed(tmp_path_factory) -> Iterator[Deployed]:
    if missing := why_not():
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("deployed")
    (folder / "data").mkdir()
    topology = Topology(folder, data=folder / "data", workers=2)
    with ExitStack() as stack:
        stack.callback(topology.down)
        topology.up()
        deployed = Deployed(topology)
        stack.enter_context(deployed.client)
        body = DIGITS.model_dump(mode="json", exclude_unset=True)
        response = deployed.client.post("/datasets", json=body)
        assert response.status_code == 201, response.text
        yield deployed


def long_run(name: str) -> dict[str, Any]:
    """A private run of enough steps that something can happen in the middle of it."""
    only = {"trials": 1, "space": {"learning_rate": {"low": 0.25, "high": 0.5, "log": True}}}
    study = digits_study(name, search=only, train={"steps": 1500})
    study["model"] = {"name": "tanh-cnn"}
    return study


def mid_private_run(study: dict[str, Any]) -> bool:
    return bool(study["run"]) and study["run"]["step"] >= 60


def assert_complete(study: dict[str, Any], *, steps: int) -> None:
    assert study["state"] == "completed", (study["reason"], study["error"])
    assert study["run"]["step"] == steps
    assert steps <= study["privacy"]["charged_steps"] <= study["privacy"]["reserved_steps"]


def test_a_study_on_two_nodes_completes(deployed: Deployed) -> None:
    """Two ranks, a core each, and no node has more than one."""
    study_id = deployed.submit(digits_study("two-nodes"))

    assert_complete(deployed.wait_long(study_id), steps=100)
    assert deployed.client.get(f"/studies/{study_id}/statement").status_code == 200
    model = deployed.client.get(f"/studies/{study_id}/model")
    assert model.content


@pytest.mark.parametrize("host", ["ray-head", "ray-worker-1", "ray-worker-2"])
def test_no_host_of_ray_reaches_the_database_or_holds_a_password(
    deployed: Deployed, host: str
) -> None:
    topology = deployed.topology
    address = topology["postgres"].addresses["database"]
    connect = f"import socket; socket.create_connection(({address!r}, 5432), timeout=3)"

    tried = topology[host].run("python", "-c", connect)

    assert "Network is unreachable" in tried.stderr
    assert topology["api"].run("python", "-c", connect).returncode == 0
    assert topology[host].run("ls", "/run/secrets").stdout.split() == ["ray_token"]


@pytest.mark.skipif(
    IMAGES is None, reason="needs TAN_TEST_IMAGES: a shell's own path is the image's"
)
@pytest.mark.parametrize(("host", "program"), [("ray-head", "ray"), ("api", "tan-cli")])
def test_a_login_shell_finds_the_programs(deployed: Deployed, host: str, program: str) -> None:
    """As KubeRay may start Ray, and as people look around."""
    done = deployed.topology[host].run("bash", "-lc", f"{program} --version")

    assert done.returncode == 0, done.stderr


def test_a_caller_without_the_token_gets_nothing(deployed: Deployed) -> None:
    response = httpx.get(f"{deployed.topology.url}/studies")

    assert response.status_code == 401


@pytest.mark.faults
def test_a_worker_host_is_cut_off_and_comes_back(deployed: Deployed) -> None:
    study_id = deployed.submit(long_run("cut-off"))
    deployed.wait_long(study_id, until=mid_private_run)

    deployed.topology.cut("ray-worker-2", is_cut=True)
    time.sleep(45)
    deployed.topology.cut("ray-worker-2", is_cut=False)

    assert_complete(deployed.wait_long(study_id), steps=1500)


@pytest.mark.faults
def test_the_head_of_ray_is_killed_and_comes_back(deployed: Deployed) -> None:
    study_id = deployed.submit(long_run("head-killed"))
    deployed.wait_long(study_id, until=mid_private_run)

    deployed.topology["ray-head"].kill()

    assert_complete(deployed.wait_long(study_id), steps=1500)

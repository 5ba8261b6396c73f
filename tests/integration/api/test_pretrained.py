"""Studies that begin from a checkpoint: which may be named, and what is fixed of them."""

import hashlib
import json

import pytest

from service.db.tables import Run
from service.statements.verify import verify_statement
from tests.fixtures.api import make_settings, make_spec, open_client
from tests.support.world import World

CONTENT = b"weights"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def spec_of(**pretrained):
    begun = {"path": "a.safetensors", "data": "ImageNet; public", **pretrained}
    return make_spec(model={"name": "linear", "pretrained": begun})


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "pretrained"
    folder.mkdir()
    (folder / "a.safetensors").write_bytes(CONTENT)
    (tmp_path / "secret.pt").write_bytes(b"secret")
    (folder / "link.pt").symlink_to(tmp_path / "secret.pt")
    return folder


@pytest.fixture
async def open_settings(settings, folder):
    return make_settings(settings.home, database_url=settings.database_url, pretrained_dir=folder)


@pytest.fixture
async def open_api(digits, open_settings, database):
    async with open_client(open_settings, database) as client:
        yield client


@pytest.mark.parametrize("path", ["/plans", "/studies"])
async def test_no_file_is_read_unless_the_server_allows_it(client, path):
    response = await client.post(path, json=spec_of())

    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert (error["path"], error["value"]) == ("model.pretrained.path", "a.safetensors")
    assert "allowed by TAN_PRETRAINED_DIR: none" in error["message"]


@pytest.mark.parametrize("more", [{}, {"num_examples": 1000}])
@pytest.mark.parametrize("path", ["../secret.pt", "link.pt", "/etc/secret.pt"])
async def test_nothing_is_read_outside_of_the_folder(open_api, folder, path, more):
    response = await open_api.post("/plans", json=spec_of(path=path) | more)

    (error,) = response.json()["errors"]
    assert (error["path"], error["value"]) == ("model.pretrained.path", path)
    assert f"allowed by TAN_PRETRAINED_DIR: {folder}" in error["message"]


async def test_another_file_than_was_stated_is_refused(open_api):
    response = await open_api.post("/studies", json=spec_of(sha256="ab" * 32))

    (error,) = response.json()["errors"]
    assert (error["path"], error["value"]) == ("model.pretrained.sha256", "ab" * 32)
    assert SHA256 in error["message"]


async def test_it_is_named_beside_what_else_is_wrong(open_api):
    response = await open_api.post("/plans", json=spec_of(path="b.pt") | {"dataset": "unknown"})

    paths = [error["path"] for error in response.json()["errors"]]
    assert paths == ["dataset", "model.pretrained.path"]


@pytest.mark.parametrize("stated", [{}, {"sha256": SHA256}])
async def test_the_file_is_fixed_when_the_study_is_submitted(
    open_api, open_settings, database, folder, stated
):
    response = await open_api.post("/studies", json=spec_of(**stated))
    assert response.status_code == 201, response.text
    study = response.json()
    assert study["spec"]["model"]["pretrained"]["sha256"] == SHA256

    world = World(open_api, open_settings, database)
    await world.tick(3)

    (job,) = world.launcher.submitted
    assert job.environment["TAN_PRETRAINED_DIR"] == str(folder)
    async with database.session() as session:
        run = await session.get_one(Run, f"{study['id']}-search")
    assert run.assignment["model"]["pretrained"]["sha256"] == SHA256


async def test_the_same_request_again_is_the_same_study_whatever_became_of_the_file(
    open_api, folder
):
    headers = {"Idempotency-Key": "one"}
    first = await open_api.post("/studies", json=spec_of(), headers=headers)
    (folder / "a.safetensors").write_bytes(b"other weights")
    again = await open_api.post("/studies", json=spec_of(), headers=headers)

    assert first.status_code == 201
    assert again.json()["id"] == first.json()["id"]


async def test_a_model_of_this_service_is_said_to_have_a_price_of_its_own(
    open_api, open_settings, database
):
    """Its own search was not accounted: that is to be read beside the epsilon of whatever goes on from it, too."""
    world = World(open_api, open_settings, database)
    first = await world.trained()
    async with database.session() as session:
        run = await session.get_one(Run, f"{first}-private")
        run.result = {**run.result, "model_sha256": SHA256}
    said = f"it is the model of study {first}, trained on digits (search on private data NOT accounted)"

    plan = (await open_api.post("/plans", json=spec_of())).json()
    second = await world.trained(model=spec_of()["model"])
    await world.tick(3)
    statement = (await open_api.get(f"/studies/{second}/statement")).json()

    assert [each for each in plan["warnings"] if said in each]
    assert said in statement["pretraining"]["note"]
    assert not any(one.is_bad for one in verify_statement(statement))


async def test_nothing_is_said_of_a_file_from_elsewhere(open_api):
    plan = (await open_api.post("/plans", json=spec_of())).json()
    assert not [each for each in plan["warnings"] if "model.pretrained" in each]


async def test_pages_name_the_file_and_say_how_often_the_network_runs(open_api):
    said = "Of this model only the classifier is trained: the features of each record are computed once"
    spec = spec_of(train="classifier")
    study = (await open_api.post("/studies", json=spec)).json()

    checked = await open_api.post("/ui/new", data={"yaml": json.dumps(spec), "action": "check"})
    page = (await open_api.get(f"/ui/studies/{study['id']}")).text

    assert said in checked.text
    assert said in page
    assert "from a.safetensors (train: classifier)" in page

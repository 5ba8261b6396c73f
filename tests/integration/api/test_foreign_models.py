"""Models made by code from elsewhere: who may name which, and what the workers are told."""

import pytest

from tests.fixtures.api import make_settings, make_spec, open_client
from tests.support.world import World

ALLOWED = ("lab.models", "zoo")
NAME = "python:lab.models.cnn:small"
SPEC = make_spec(model={"name": NAME, "options": {"width": 8}})


@pytest.fixture
async def open_settings(settings):
    return make_settings(
        settings.home, database_url=settings.database_url, allowed_model_prefixes=ALLOWED
    )


@pytest.fixture
async def open_api(digits, open_settings, database):
    async with open_client(open_settings, database) as client:
        yield client


@pytest.mark.parametrize("path", ["/plans", "/studies"])
async def test_no_code_is_imported_unless_the_server_allows_it(client, path):
    response = await client.post(path, json=SPEC)

    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert (error["path"], error["value"]) == ("model.name", NAME)
    assert "TAN_ALLOWED_MODEL_PREFIXES: none" in error["message"]


async def test_data_that_are_not_registered_change_nothing(client):
    response = await client.post("/plans", json=SPEC | {"num_examples": 1000})

    assert [error["path"] for error in response.json()["errors"]] == ["model.name"]


@pytest.mark.parametrize("module", ["lab.models_of_others", "lab", "zoology", "os"])
async def test_a_prefix_ends_at_a_dot(open_api, module):
    response = await open_api.post("/plans", json=make_spec(model={"name": f"python:{module}:f"}))

    (error,) = response.json()["errors"]
    assert "TAN_ALLOWED_MODEL_PREFIXES: lab.models, zoo" in error["message"]


@pytest.mark.parametrize("name", [NAME, "python:zoo:lion", "timm:resnet18"])
async def test_what_is_allowed_is_planned_and_its_memory_is_not_known(open_api, name):
    response = await open_api.post("/plans", json=make_spec(model={"name": name}))

    assert response.status_code == 200, response.text
    assert response.json()["cost"]["memory_bytes"] is None


async def test_drivers_are_told_what_they_may_import(open_api, open_settings, database):
    assert (await open_api.post("/studies", json=SPEC)).status_code == 201
    world = World(open_api, open_settings, database)
    await world.tick(3)

    (job,) = world.launcher.submitted
    assert job.environment["TAN_ALLOWED_MODEL_PREFIXES"] == "lab.models,zoo"

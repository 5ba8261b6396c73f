"""A study whose model begins with a frozen extractor: planned by the size of its head."""

import pytest

from tests.fixtures.api import make_spec


@pytest.mark.parametrize("name", ["scatter-linear", "scatter-cnn"])
async def test_it_is_planned_with_the_memory_of_its_head(client, name):
    response = await client.post("/plans", json=make_spec(model={"name": name}))

    assert response.status_code == 200, response.text
    assert response.json()["cost"]["memory_bytes"] > 0


async def test_augmentation_is_refused_by_its_path(client):
    spec = make_spec(model={"name": "scatter-linear"})
    spec["train"] = {**spec.get("train", {}), "horizontal_flip": True}

    response = await client.post("/plans", json=spec)

    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert error["path"] == "train.horizontal_flip"
    assert "computed once" in error["message"]


async def test_a_plan_holds_the_largest_features_that_are_searched(client):
    plain = make_spec(model={"name": "scatter-linear"})
    searched = make_spec(model={"name": "scatter-linear"})
    searched["search"]["space"] = {
        **searched["search"]["space"],
        "patches": {"choices": [False, True]},
        "normalization": {"choices": ["group", "whitened"]},
    }

    of_plain, of_searched = [
        (await client.post("/plans", json=spec)).json()["cost"]["memory_bytes"]
        for spec in (plain, searched)
    ]

    assert of_searched > 2 * of_plain


async def test_the_order_of_choices_does_not_matter_to_a_plan(client):
    """As many parameters with a normalization as without, and more activations."""
    plans = []
    for choices in (["group", "none"], ["none", "group"]):
        spec = make_spec(model={"name": "scatter-linear"})
        spec["search"]["space"]["normalization"] = {"choices": choices}
        plans.append((await client.post("/plans", json=spec)).json()["cost"]["memory_bytes"])

    assert plans[0] == plans[1]

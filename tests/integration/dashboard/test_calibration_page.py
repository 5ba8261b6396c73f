"""The page of calibration, over the real application and database."""

import httpx

from service.context import Context
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import get


async def test_it_counts_as_the_api_does(client: httpx.AsyncClient, context: Context) -> None:
    await seeding.calibrated(context, 12)

    page = await get(client, "/ui/calibration")
    found = (await client.get("/calibration")).json()

    assert page.data["coverage"] == [found["inside"], found["studies"], found["coverage"]]
    assert page.data["groups"] == [found["inside"], found["studies"]]
    error = f"{100 * found['mean_absolute_error']:.1f} points"
    assert error in page.text["coverage"]
    assert error in page.text["groups"]
    assert "neighbours: add or remove one" in "".join(page.text.values())


async def test_its_numbers_are_those_of_the_api(
    client: httpx.AsyncClient, context: Context
) -> None:
    await seeding.calibrated(context, 3)

    response = await client.get("/ui/calibration.csv?dataset=digits")
    found = (await client.get("/calibration?dataset=digits")).json()

    rows = [line.split(",") for line in response.text.splitlines()]
    places = [rows[0].index(name) for name in ("study", "predicted", "reached", "error")]
    assert [[row[place] for place in places] for row in rows[1:]] == [
        [one["study"], str(one["predicted"]), str(one["reached"]), str(one["error"])]
        for one in found["items"]
    ]
    assert (await client.get("/ui/calibration.csv?dataset=other")).text.count("\n") == 1

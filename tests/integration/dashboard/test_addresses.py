"""What the planner, the comparison and the pages of datasets link to and ask for, and what they need."""

import httpx
import pytest
from fastapi import FastAPI

from service.context import Context
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import Page

ASKED = ("href", "src", "action", "hx-get", "hx-post")
DIALS = (
    "dataset=digits&accounting=declared_unaccounted&epsilon=3&batch_size=256&steps=300&model=mlp"
)


@pytest.fixture
async def paths(context: Context) -> list[str]:
    ids = [
        await seeding.completed(context, name="one"),
        await seeding.simulating(context, name="other"),
    ]
    compared = "&".join(f"study={id_}" for id_ in ids)
    pages = ["/ui/datasets", "/ui/datasets/digits", "/ui/calibration", "/ui/datasets/digits/chain"]
    trials = f"/ui/studies/{ids[0]}/trials/compare?trial=0&trial=1"
    return [f"/ui/plan?{DIALS}", f"/ui/compare?{compared}", trials, *pages]


async def test_every_address_keeps_the_prefix_of_a_proxy(app: FastAPI, paths: list[str]) -> None:
    transport = httpx.ASGITransport(app, root_path="/tan")
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for path in [*paths, "/docs"]:
            response = await client.get(f"/tan{path}")
            assert response.status_code == 200
            for _, attributes in Page(response.text).elements:
                for name in ASKED:
                    target = attributes.get(name) or ""
                    assert not target.startswith("/") or target.startswith("/tan/"), target


async def test_what_is_made_is_located_below_the_prefix(app: FastAPI, context: Context) -> None:
    await seeding.ensure_digits(context.database)
    study = seeding.spec().model_dump(mode="json")
    token = {"name": "somebody", "scopes": ["admin"]}
    transport = httpx.ASGITransport(app, root_path="/tan")
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for path, body in (("/tan/studies", study), ("/tan/tokens", token)):
            made = await client.post(path, json=body)
            assert made.status_code == 201, made.text
            assert made.headers["Location"].startswith(f"{path}/")


@pytest.mark.slow
async def test_every_link_leads_somewhere(client: httpx.AsyncClient, paths: list[str]) -> None:
    links: set[str] = set()
    for path in paths:
        for tag, attributes in Page((await client.get(path)).text).elements:
            address = attributes.get("href") or ""
            if tag in ("a", "link") and address.startswith("/"):
                links.add(address)

    for link in sorted(links):
        assert (await client.get(link)).status_code == 200, link


async def test_nothing_needs_more_than_a_strict_policy(
    client: httpx.AsyncClient, paths: list[str]
) -> None:
    for path in paths:
        response = await client.get(path)
        assert "unsafe" not in response.headers["content-security-policy"]
        for tag, attributes in Page(response.text).elements:
            assert "style" not in attributes
            assert tag != "style"
            assert tag != "script" or (attributes.get("src") or "").startswith("/ui/static/")
            assert not [name for name in attributes if name.startswith(("on", "hx-on"))]


async def test_ids_are_unique_and_labels_are_there(
    client: httpx.AsyncClient, paths: list[str]
) -> None:
    for path in paths:
        page = Page((await client.get(path)).text)
        ids = [a["id"] for _, a in page.elements if "id" in a]
        assert len(ids) == len(set(ids)), path
        named = [a["aria-labelledby"] for _, a in page.elements if "aria-labelledby" in a]
        assert set(named) <= set(ids)
        fields = [a for tag in ("input", "select", "textarea") for a in page.all(tag)]
        labelled = {a.get("for") for a in page.all("label")}
        for field in fields:
            assert (
                field.get("type") == "hidden"
                or field.get("aria-label")
                or field.get("id", "its label is around it") in labelled
                or page.is_within_label(field)
            )

"""Whatever is sent to ``POST /studies``, the answer is a problem of the sender's, and nothing is kept."""

import json
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from tests.fixtures.api import make_spec

LONG = "x" * 10**6
HUGE = "1" + "0" * 400
TOO_HUGE = "1" + "0" * 5000
SPEC = json.dumps(make_spec())


def placed(path: str, value: Any) -> dict[str, Any]:
    """The accepted study with one value, new or old, at a dotted path."""
    spec = json.loads(SPEC)
    *parents, last = path.split("/")
    place = spec
    for parent in parents:
        place = place[parent]
    place[last] = value
    return spec


def short(value: str) -> str:
    """An id for a test."""
    return f"{value[:9]!a}-{len(value)}"


async def assert_refused(
    client: httpx.AsyncClient, body: str | bytes, kind: str = "json", *, limit: int = 10_000
) -> None:
    response = await client.post(
        "/studies", content=body, headers={"content-type": f"application/{kind}"}
    )
    told = f"{body[:80]!r} ... {body[-400:]!r}: {response.text[:500]}"
    assert 400 <= response.status_code < 500, told
    assert response.headers["content-type"] == "application/problem+json"
    assert len(response.content) < limit, told
    assert (await client.get("/studies")).json()["items"] == []


STRINGS = [
    "name", "dataset", "promotion", "privacy/accountant", "model/name", "model/width",
    "search/accounting", "search/dataset", "search/rungs", "search/space/optimizer",
    "search/space/learning_rate", "train/steps", "train/optimizer", "train/batch_size",
]  # fmt: skip
NUMBERS = [
    "name", "privacy/epsilon", "privacy/delta", "search/trials", "search/seed", "search/rungs",
    "search/space/learning_rate", "search/space/steps", "search/space/momentum",
    "train/batch_size", "train/steps", "train/noise_multiplier", "train/workers",
    "train/learning_rate", "train/clip_norm", "budget",
]  # fmt: skip


class TestText:
    @pytest.mark.parametrize("value", ["a\x00", "\x00", "\ud800", LONG[:900_000]], ids=short)
    async def test_text_that_cannot_be_stored_is_refused(self, client, value):
        for path in STRINGS:
            await assert_refused(client, json.dumps(placed(path, value)))

    @pytest.mark.parametrize("key", ["a\x00", "\ud800", LONG[:900_000]], ids=short)
    async def test_so_is_a_key(self, client, key):
        for section in ("", "search/space/", "model/", "privacy/"):
            await assert_refused(client, json.dumps(placed(f"{section}{key}", 1)))

    async def test_a_name_has_no_odd_characters(self, client):
        for name in ("digits\n", "digits\t", " digits", "dígits", "x" * 101, ""):
            await assert_refused(client, json.dumps(placed("name", name)))

    async def test_more_than_a_megabyte_is_refused(self, client):
        await assert_refused(client, json.dumps(placed("name", LONG * 2)))

    async def test_an_idempotency_key_that_cannot_be_stored_is_refused(self, client, database):
        for key in (b"a\x00b", b"a\x01", b"\x7f"):
            response = await client.post(
                "/studies", json=make_spec(), headers={b"Idempotency-Key": key}
            )
            assert response.status_code == 422, (key, response.text)
        async with database.session() as session:
            assert await session.scalar(text("SELECT count(*) FROM study")) == 0


class TestNumbers:
    @pytest.mark.parametrize(
        "number", [HUGE, f"-{HUGE}", TOO_HUGE, "1e400", "NaN", "-Infinity"], ids=short
    )
    async def test_a_number_outside_every_domain_is_refused(self, client, number):
        for path in NUMBERS:
            body = json.dumps(placed(path, "HERE")).replace('"HERE"', number)
            await assert_refused(client, body)

    @pytest.mark.parametrize("number", [HUGE, "1e400"], ids=short)
    @pytest.mark.parametrize(
        "shape", ['{"choices": [1, N]}', '{"low": 1, "high": N}', '{"low": N, "high": N}']
    )
    async def test_so_is_a_dimension_that_holds_one(self, client, shape, number):
        for key in ("learning_rate", "steps", "momentum", "model.width"):
            spec = placed("search/space", {key: "HERE"})
            spec["train"]["steps"] = "auto"
            await assert_refused(
                client, json.dumps(spec).replace('"HERE"', shape.replace("N", number))
            )

    async def test_so_is_a_hexadecimal_number_too_long_to_print(self, client):
        for path in NUMBERS:
            body = json.dumps(placed(path, "HERE")).replace('"HERE"', "0x" + "f" * 10_000)
            await assert_refused(client, body, "yaml")


class TestStructure:
    async def test_of_very_many_faults_only_some_are_listed(self, client):
        spec = {**json.loads(SPEC), **{f"key{number}": 1 for number in range(20_000)}}
        await assert_refused(client, json.dumps(spec), limit=50_000)

    @pytest.mark.parametrize("kind", ["json", "yaml"])
    @pytest.mark.parametrize("pair", ["[]", "{}"])
    async def test_deep_nesting_is_refused(self, client, kind, pair):
        for depth in (50, 900, 100_000):
            opened = "[" * depth if pair == "[]" else '{"a":' * depth
            nested = opened + "1" + pair[1] * depth
            await assert_refused(client, nested, kind)
            await assert_refused(client, SPEC.replace("3.0", nested, 1), kind)

    @pytest.mark.parametrize("kind", ["json", "yaml"])
    async def test_a_key_that_is_written_twice_is_refused(self, client, kind):
        body = SPEC.replace('"epsilon": 3.0', '"epsilon": 3.0, "epsilon": 30.0', 1)
        await assert_refused(client, body, kind)

    @pytest.mark.parametrize("kind", ["json", "yaml"])
    async def test_what_is_no_study_is_refused(self, client, kind):
        for body in (b"", b"null", b"[]", b"1", b'"a"', b"\x00", b"\xff\xfe", b"{", b"{}"):
            await assert_refused(client, body, kind)

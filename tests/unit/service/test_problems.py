"""What is wrong with a request is told as what is wrong with a study is: by the caller's own keys."""

from typing import Annotated, Any, Literal

import pytest
from fastapi import FastAPI, Query
from httpx import ASGITransport, AsyncClient, Response
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from service import problems
from service.access.schemas import TokenRequest
from service.body import validate
from service.datasets.schemas import DatasetRegistration
from service.errors import InvalidInputError
from service.ledger.schemas import CapRequest, RepricingRequest, RestoredBackupRequest
from service.plans.schemas import MechanismPlanRequest
from service.studies.schemas import PromoteRequest, StudyEdit
from tan_core.spec.base import Frozen


class Inner(Frozen):
    by_class: Literal["auto"] | StrictBool = "auto"
    params: dict[str, bool | int | float | str] = Field(default={})


class Wanted(Frozen):
    name: str
    inner: Inner = Inner()


class Filters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    state: str | None = None
    limit: int = 50


@pytest.fixture
def client() -> AsyncClient:
    app = FastAPI()
    problems.install(app)

    @app.post("/things")
    def make(thing: Wanted) -> None: ...

    @app.get("/things")
    def find(filters: Annotated[Filters, Query()]) -> None: ...

    @app.get("/one")
    def one(limit: Annotated[int, Query(ge=1)] = 1) -> None: ...

    return AsyncClient(transport=ASGITransport(app), base_url="http://x")


def told(response: Response) -> list[tuple[str, str, Any]]:
    document = response.json()
    assert response.status_code == document["status"] == 422
    assert set(document) == {"type", "title", "status", "detail", "instance", "errors"}
    for error in document["errors"]:
        assert set(error) == {"path", "message", "value"}
        assert f"{error['path']}: {error['message']}" in document["detail"]
    return [(e["path"], e["message"], e["value"]) for e in document["errors"]]


@pytest.mark.parametrize(
    ("body", "path", "message", "value"),
    [
        (
            {"name": "a", "inner": {"by_class": "maybe"}},
            *("inner.by_class", "Input should be 'auto'; or: Input should be a valid boolean", "maybe"),
        ),
        ({"name": "a", "inner": {"params": {"bool": []}}}, "inner.params.bool", "expected a number, a text or true/false", "[]"),
        ({"name": "a", "inner": {"bool": 3}}, "inner.bool", "unknown key; accepted: by_class, params", 3),
        ({"names": "a", "name": "a"}, "names", "unknown key: did you mean name? accepted: name, inner", "a"),
        ({"name": None}, "name", "Input should be a valid string, got null", None),
        ({}, "name", "a value is needed here", None),
        (3, "body", "expected a mapping of keys", 3),
        (None, "body", "a value is needed here", None),
    ],
)  # fmt: skip
async def test_a_body(client: AsyncClient, body: Any, path: str, message: str, value: Any) -> None:
    assert told(await client.post("/things", json=body)) == [(path, message, value)]


async def test_a_query(client: AsyncClient) -> None:
    assert told(await client.get("/things?stat=x&limit=many")) == [
        ("limit", "Input should be a valid integer, unable to parse string as an integer", "many"),
        ("stat", "unknown key: did you mean state? accepted: state, limit", "x"),
    ]
    assert told(await client.get("/one?limit=0")) == [
        ("limit", "Input should be greater than or equal to 1", "0")
    ]


@pytest.mark.parametrize(
    "model",
    [
        *(TokenRequest, DatasetRegistration, StudyEdit, PromoteRequest, MechanismPlanRequest),
        *(CapRequest, RepricingRequest, RestoredBackupRequest),
    ],
)
def test_every_body_says_what_it_accepts(model: type[BaseModel]) -> None:
    with pytest.raises(InvalidInputError) as refused:
        validate(model, {"unheard_of": 1})
    said = {problem.path: problem.message for problem in refused.value.problems}
    assert said["unheard_of"] == f"unknown key; accepted: {', '.join(model.model_fields)}"

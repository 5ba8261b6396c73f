"""Every request has a name that its caller, its answer and its log records share."""

import logging

import pytest

from tan_core import log_records


async def test_a_callers_request_id_is_returned(client):
    answer = await client.get("/healthz", headers={"X-Request-ID": "job-7.retry_2"})
    assert answer.headers["X-Request-ID"] == "job-7.retry_2"


@pytest.mark.parametrize(
    "given", ["", "a b", "a\tb", "x" * 65, "{}", "é".encode().decode("latin-1")]
)
async def test_what_is_no_request_id_is_replaced(client, given):
    answers = [
        await client.get("/healthz", headers={"X-Request-ID": given.encode("latin-1")})
        for _ in range(2)
    ]
    ids = {answer.headers["X-Request-ID"] for answer in answers}
    assert given not in ids
    assert len(ids) == 2


async def test_refused_requests_have_one_too(client):
    answer = await client.get("/healthz", headers={"Host": "evil.example"})
    assert answer.status_code == 400
    assert len(answer.headers["X-Request-ID"]) == 16


async def test_records_of_a_request_name_it_and_its_study(client, monkeypatch, caplog):
    said = []

    def fail(*_: object, **__: object) -> None:
        said.append(dict(log_records.bound()))
        raise RuntimeError("a bug")

    monkeypatch.setattr("service.studies.service.get", fail)
    with caplog.at_level(logging.CRITICAL):
        answer = await client.get("/studies/s-12", headers={"X-Request-ID": "r1"})
    assert answer.status_code == 500
    assert said == [{"request_id": "r1", "study_id": "s-12"}]

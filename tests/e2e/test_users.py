"""User-level privacy end to end: several records per user, on real PostgreSQL, real Ray and real data."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_digits

from service.statements.verify import verify_statement
from tests.e2e.test_study import independent_epsilon
from tests.support.live import LiveService, digits_study

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(900)]

NUM_USERS = 600


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The 1,797 digits as those of 600 users, 1 to some 9 records each; every third one is left-handed."""
    images, labels = load_digits(return_X_y=True)
    generator = np.random.default_rng(0)
    users = np.concatenate(
        [np.arange(NUM_USERS), generator.integers(0, NUM_USERS, len(labels) - NUM_USERS)]
    )
    columns = {f"p{i}": images[:, i].astype(np.float32) / 8 - 1 for i in range(images.shape[1])}
    columns |= {"label": labels.astype(np.int64), "writer": [f"w{user}" for user in users]}
    columns["hand"] = ["left" if user % 3 == 0 else "right" for user in users]
    path = tmp_path_factory.mktemp("users") / "digits.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def check_evaluation(study: dict[str, Any], statement: dict[str, Any]) -> None:
    """Ten classes and two groups, private and not, counted over the very records of the test accuracy."""
    told, run = statement["evaluation"], study["run"]
    assert told == run["evaluation"]
    assert told["covered_by_epsilon"] is False
    assert told["baseline_reason"] is None
    assert [part["name"] for part in told["classes"]] == [str(label) for label in range(10)]
    assert {part["name"] for part in told["groups"]} == {"left", "right"}
    for who in ("private", "baseline"):
        for parts in (told["classes"], told["groups"]):
            assert sum(part[who]["num"] for part in parts) == run["num_test"]
            assert sum(part[who]["correct"] for part in parts) == told["all"][who]["correct"]
    assert told["all"]["private"]["accuracy"] == run["test_accuracy"]
    assert told["all"]["baseline"]["accuracy"] > 0.85


def test_a_study_of_users_ends_in_a_statement_that_says_user(
    service: LiveService, table: Path
) -> None:
    registered = service.request(
        "POST",
        "/datasets",
        json={
            "name": "writers",
            "path": str(table),
            "unit": "writer",
            "records_per_unit": 4,
            "group": "hand",
            "epsilon": 20.0,
            "delta": 1e-4,
            "waiver": "tests: published data",
        },
    )
    assert registered.status_code == 201, registered.text
    num_users = registered.json()["num_train"]
    assert num_users < registered.json()["num_train_records"] <= 4 * num_users
    train = {"batch_size": 64, "steps": 60}
    study = digits_study("users", dataset="writers", search={"trials": 2}, train=train)
    study["evaluation"] = {"baseline": True}

    done = service.complete(service.submit(study), seconds=800)

    assert done["plan"]["reference"]["num_examples"] == num_users
    assert done["run"]["test_accuracy"] > 0.6
    statement = service.get(f"/studies/{done['id']}/statement")
    assert statement["unit"] == "user"
    assert statement["unit_details"] == {"column": "writer", "records_per_unit": 4}
    assert statement["num_examples"]["value"] == num_users
    assert any("one user with a word" in each for each in statement["assumptions"])
    (event,) = statement["events"]
    assert float.fromhex(event["sampling_rate"]) == pytest.approx(64 / num_users)
    epsilon = independent_epsilon(statement["events"], 1e-5)
    assert epsilon <= statement["privacy"]["epsilon"] * (1 + 1e-3) <= 3.0 * (1 + 1e-3)
    assert not any(check.is_bad for check in verify_statement(statement))
    check_evaluation(done, statement)
    assert service.get("/datasets/writers/ledger")["scope"]["unit"] == "user"


def test_a_search_of_users_is_charged_and_its_scores_count_users(
    service: LiveService, table: Path
) -> None:
    registered = service.get("/datasets/writers")
    assert registered["num_validation_users"] < registered["num_validation"]
    study = digits_study(
        "charged-users",
        dataset="writers",
        search={"accounting": "accounted", "trials": 2},
        train={"batch_size": 64, "steps": 60},
    )
    study["privacy"]["epsilon"] = 8.0

    done = service.complete(service.submit(study), seconds=800)

    plan = done["plan"]["charged_search"]
    share = plan["score_noise_multiplier"] / registered["num_validation_users"]
    assert plan["score_std"] == pytest.approx(share, abs=1e-4)
    statement = service.get(f"/studies/{done['id']}/statement")
    assert [event["of"] for event in statement["mechanisms"]] == [
        "private run",
        "trials of the search",
        "scores of the trials",
    ]
    assert any("number of validation users" in each for each in statement["assumptions"])
    epsilon = independent_epsilon(statement["events"], 1e-5)
    assert epsilon <= statement["privacy"]["epsilon"] * (1 + 1e-3) <= 8.0 * (1 + 1e-3)
    assert not any(check.is_bad for check in verify_statement(statement))

"""What a service before the finals had stored stays readable."""

import math
from typing import Any

import psycopg
import pytest
from alembic import command
from psycopg.types.json import Jsonb
from sqlalchemy import create_engine

from service.db.embedded import APP
from service.db.migrate import _config, upgrade
from service.db.session import normalise_url
from tan_core.planner import Plan, plan_study
from tan_core.spec import StudySpec
from tests.fixtures.api import make_spec
from tests.fixtures.postgres import DatabaseUrls

NEW_KEYS = ("sampler", "budget", "warm_start", "first")


def old_spec() -> dict[str, Any]:
    spec = StudySpec.model_validate(make_spec(search={"rungs": [16, 64]})).model_dump(mode="json")
    for key in NEW_KEYS:
        del spec["search"][key]
    return spec


def old_plan(spec: dict[str, Any]) -> dict[str, Any]:
    """As plans were: no trials per simulation, and a ladder beside the simulations."""
    plan = plan_study(StudySpec.model_validate(spec), num_examples=1150).model_dump(mode="json")
    for simulation in plan["simulations"]:
        del simulation["trials"]
    del plan["cost"]["finals_examples"]
    rung = {"expected_batch_size": 16, "noise_multiplier": 0.2, "scale_factor": 16, "trials": 4}
    return {**plan, "ladder": [rung], "cost": {**plan["cost"], "ladder_examples": 6400}}


@pytest.fixture
def upgraded(empty_database: DatabaseUrls) -> psycopg.Connection[Any]:
    """A database of schema 0002 with one study that is simulating, brought to this version."""
    engine = create_engine(normalise_url(empty_database.owner))
    with engine.begin() as connection:
        command.upgrade(_config(connection), "0002")
    engine.dispose()
    spec = old_spec()
    with psycopg.connect(empty_database.owner) as connection:
        connection.execute(
            "INSERT INTO dataset (name, source, label, content_sha256, num_classes, shape, num_train,"
            " num_validation, num_test, unit, public, allowed_modes)"
            " VALUES ('digits', 'digits', 'label', 'x', 10, '[1, 8, 8]', 1150, 288, 359, 'record', true, '[]')"
        )
        connection.execute(
            "INSERT INTO study (id, name, state, spec, plan, dataset, search_dataset, search_accounting)"
            " VALUES ('s-1', 'old', 'simulating', %s, %s, 'digits', 'digits', 'public_proxy')",
            (Jsonb(spec), Jsonb(old_plan(spec))),
        )
        connection.execute(
            "INSERT INTO trial (study_id, number, state, params, scores, attempt)"
            " VALUES ('s-1', 0, 'completed', '{}', '[]', 1)"
        )
        connection.execute(
            "INSERT INTO run (id, study_id, kind, state, assignment)"
            " VALUES ('s-1-search', 's-1', 'search', 'active', '{\"rungs\": [16, 64]}')"
        )
    upgrade(empty_database.owner, APP)
    return psycopg.connect(empty_database.app)


@pytest.mark.slow
def test_studies_plans_trials_and_searches_under_way_are_as_this_version_reads_them(
    upgraded: psycopg.Connection[Any],
) -> None:
    with upgraded as connection:
        row = connection.execute("SELECT spec, plan, promotion FROM study").fetchone()
        assert row is not None
        spec, plan = StudySpec.model_validate(row[0]), Plan.model_validate(row[1])
        (assignment,) = connection.execute("SELECT assignment FROM run").fetchone() or ()
        trial = connection.execute("SELECT repeats, source FROM trial").fetchone()

    assert (spec.search.budget, spec.search.warm_start, row[2]) == (1.0, "auto", None)
    assert plan.rungs == [16, 64]
    assert [simulation.trials for simulation in plan.simulations] == [4, 4]
    assert assignment == {
        "rungs": [16, 64],
        "max_examples": math.ceil(spec.search.budget * plan.cost.private_run_examples),
    }
    assert trial == ([], None)

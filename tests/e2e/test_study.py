"""A study from submission to statement, on real PostgreSQL, real Ray and real data."""

from pathlib import Path

import dp_accounting
import pytest
import yaml
from dp_accounting import pld

from tests.support.live import LiveService, digits_study

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(900)]


def independent_epsilon(events: list[dict], delta: float) -> float:
    """Epsilon of a statement's events by dp_accounting alone, without any code of ours."""
    accountant = pld.PLDAccountant(
        dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-4
    )
    for event in events:
        assert event["kind"] == "dp_sgd"
        assert event["sampling"] == "poisson"
        accountant.compose(
            dp_accounting.PoissonSampledDpEvent(
                float.fromhex(event["sampling_rate"]),
                dp_accounting.GaussianDpEvent(float.fromhex(event["noise_multiplier"])),
            ),
            event["steps"],
        )
    return accountant.get_epsilon(delta)


class TestDigits:
    def test_a_study_walks_from_submission_to_statement(self, service: LiveService) -> None:
        study_id = service.submit(digits_study("walk"))
        study = service.complete(study_id)

        assert study["progress"]["trials_finished"] == 4
        assert study["run"]["test_accuracy"] > 0.7
        assert study["run"]["step"] == 100
        assert study["privacy"]["search_note"] == "search on private data NOT accounted"

        statement = service.get(f"/studies/{study_id}/statement")
        epsilon = independent_epsilon(statement["events"], 1e-5)
        assert epsilon <= statement["privacy"]["epsilon"] * (1 + 1e-3)
        assert 2.85 <= epsilon <= 3.0
        assert study["privacy"]["epsilon_reserved"] <= 3.0

        trials = service.get(f"/studies/{study_id}/trials")["items"]
        assert [trial["number"] for trial in trials] == [0, 1, 2, 3]
        assert service.request("GET", f"/studies/{study_id}/model").content[:8]

    def test_given_hyper_parameters_are_trained_without_a_search(
        self, service: LiveService
    ) -> None:
        study = digits_study("given", train={"learning_rate": 2.0})
        study["search"] = {"accounting": "no_search"}
        done = service.complete(service.submit(study))

        assert (done["progress"]["trials_total"], done["prediction"]) == (0, None)
        assert done["run"]["test_accuracy"] > 0.7
        statement = service.get(f"/studies/{done['id']}/statement")
        assert statement["search"]["accounting"] == "no_search"
        assert 2.85 <= independent_epsilon(statement["events"], 1e-5) <= 3.0
        assert service.get(f"/studies/{done['id']}/trials")["items"] == []

    def test_a_trial_of_searched_steps_is_promoted_by_hand_and_runs_in_bfloat16(
        self, service: LiveService
    ) -> None:
        study = digits_study(
            "manual", promotion="manual", train={"steps": "auto", "precision": "bfloat16"}
        )
        study["search"]["space"]["steps"] = {"choices": [60, 120]}
        study["search"]["rungs"] = [32]  # one rung cuts nobody: every trial may be promoted
        study_id = service.submit(study)
        waiting = service.wait(study_id, lambda study: study["state"] == "awaiting_approval")
        assert waiting["run"] is None
        trials = service.get(f"/studies/{study_id}/trials")["items"]
        chosen = trials[1]
        assert chosen["state"] == "completed"

        response = service.request("POST", f"/studies/{study_id}/promote", json={"trial": 1})
        assert response.status_code in (200, 202), response.text
        done = service.complete(study_id)

        assert done["plan"]["reference"]["precision"] == "bfloat16"
        assert done["best_trial"]["number"] == 1
        assert done["run"]["test_accuracy"] > 0.7
        statement = service.get(f"/studies/{study_id}/statement")
        assert statement["training"] == {"precision": "bfloat16"}
        # Every candidate meets the target, at whichever number of steps.
        assert 2.85 <= independent_epsilon(statement["events"], 1e-5) <= 3.0
        assert statement["events"][0]["steps"] == chosen["params"]["steps"]

    def test_a_hopeless_learning_rate_is_recorded_as_diverged(self, service: LiveService) -> None:
        study = digits_study("diverges", model={"name": "tanh-cnn"}, promotion="manual")
        study["search"]["space"] = {"learning_rate": {"choices": [0.5, 1e6]}}
        study["search"]["trials"] = 6
        study_id = service.submit(study)
        found = service.wait(study_id, lambda study: study["state"] == "awaiting_approval")
        assert service.request("POST", f"/studies/{study_id}/cancel").is_success
        service.wait(study_id)  # what it holds of the budget is given back by then

        trials = service.get(f"/studies/{study_id}/trials")["items"]
        wild = [trial for trial in trials if trial["params"]["learning_rate"] == 1e6]
        assert "diverged" in {trial["state"] for trial in wild}
        # One that is at chance level by luck a little above it may be cut by its curve instead.
        assert all(trial["state"] in ("diverged", "pruned") and trial["reason"] for trial in wild)
        assert found["best_trial"]["params"]["learning_rate"] == 0.5

    def test_a_cancelled_search_gives_its_budget_back(self, service: LiveService) -> None:
        before = service.get("/datasets/digits/ledger")
        study = digits_study("cancel")
        study["search"]["trials"] = 500
        study_id = service.submit(study)
        service.wait(study_id, lambda study: study["progress"]["trials_finished"] >= 1)

        service.request("POST", f"/studies/{study_id}/cancel")
        ended = service.wait(study_id, seconds=90)

        assert ended["state"] == "cancelled"
        after = service.get("/datasets/digits/ledger")
        assert after["committed_epsilon"] == pytest.approx(before["committed_epsilon"])

    def test_a_budget_that_does_not_suffice_is_refused_before_anything_runs(
        self, service: LiveService
    ) -> None:
        study = digits_study("greedy", privacy={"epsilon": 400.0, "delta": 1e-5})
        before = len(service.get("/studies?limit=100")["items"])

        response = service.request("POST", "/studies", json=study)

        assert response.status_code == 409
        assert "budget" in response.json()["detail"]
        assert len(service.get("/studies?limit=100")["items"]) == before


class TestMnist:
    def test_the_example_reaches_95_percent_at_epsilon_3(
        self, service: LiveService, mnist: Path
    ) -> None:
        registered = service.request(
            "POST",
            "/datasets",
            json={
                "name": "mnist",
                "path": str(mnist),
                "epsilon": 100.0,
                "delta": 1e-3,
                "allow": ["declared_unaccounted"],
                "waiver": "tests: MNIST is published data",
            },
        )
        assert registered.status_code == 201, registered.text
        study = yaml.safe_load(Path("examples/mnist.yaml").read_text())

        done = service.complete(service.submit(study), seconds=800)

        assert done["run"]["test_accuracy"] >= 0.95
        statement = service.get(f"/studies/{done['id']}/statement")
        assert 2.85 <= independent_epsilon(statement["events"], 1e-5) <= 3.0
        assert done["privacy"]["epsilon_reserved"] <= 3.0

"""What the commands say of predictions: a study's own, those of its candidates, and how all held."""

import json

from tests.unit.service.cli.conftest import Cli
from tests.unit.service.cli.recorded import STUDY, RecordedServer

ID = STUDY["id"]


class TestPrediction:
    def test_a_study_shows_what_was_foretold_why_and_what_came_of_it(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        shown = cli("show", ID).out

        foretold = (
            "predicted 92.2 % [90.3, 93.8] at B = 256 from 1 batch size, 2 seeds; released weights are taken to be "
            "0.4 points above the mean that is scored, and 2 earlier studies on these data count for 0.3 points less"
        )
        assert foretold in " ".join(shown.split())
        assert shown.count("by the search: trial 1: predicted 92.17%") == 1
        assert "reached 92.5 %: 0.3 above, inside\n" in shown
        assert "2 repetitions of finalists" in shown

    def test_before_the_run_there_is_no_outcome(self, cli: Cli, server: RecordedServer) -> None:
        server.study["prediction"] |= {"reached": None, "error": None, "inside": None}
        server.study["promotion"]["by"] = None
        server.study["state"] = "awaiting_approval"
        server.study["reason"] = f"waiting: {server.study['promotion']['reason']}"

        shown = cli("show", ID).out

        assert "predicted 92.2 %" in shown
        assert "proposed, waits for approval: trial 1" in shown
        assert "awaiting_approval\n" in shown
        assert "waiting: " not in shown
        assert "reached" not in shown

    def test_a_study_that_predicts_nothing_yet_is_shown_without(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        server.study["prediction"] = server.study["promotion"] = None

        done = cli("show", ID)

        assert (done.code, "predicted" in done.out) == (0, False)


class TestCandidates:
    def test_candidates_are_listed_with_what_they_would_reach(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        server.study["promotion"]["by"] = None

        shown = cli("promote", ID, "--list").out

        rows = [line.split() for line in shown.splitlines() if line.strip()[:1].isdigit()]
        assert rows == [
            ["1", "92.2", "%", "[90.3,", "93.8]", "2", "proposed"],
            ["4", "91.5", "%", "[89.6,", "93.2]", "1,", "not", "fresh"],
        ]
        assert "0.70 points above trial 4" in shown
        assert not server.asked(f"POST /studies/{ID}/promote")
        listed = json.loads(cli("promote", ID, "--list", "--json").out)
        assert listed == server.study["promotion"]

    def test_before_the_search_has_ended_there_is_nothing_to_list(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        server.study |= {"promotion": None, "state": "simulating"}

        assert "is simulating: no trial can be promoted yet" in cli("promote", ID, "--list").out

    def test_a_trial_that_cannot_be_promoted_is_refused_beside_those_that_can(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        errors = [{"path": "trial", "message": "not a completed trial of this study", "value": 9}]
        server.answers[f"POST /studies/{ID}/promote"] = (422, {"errors": errors})

        done = cli("promote", ID, "--trial", "9")

        assert (done.code, done.out) == (2, "")
        assert "trial: not a completed trial of this study (got 9)" in done.err
        assert "[89.6, 93.2]   1, not fresh\n" in done.err


class TestCalibration:
    def test_it_says_how_often_intervals_held_and_shows_each_study(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        lines = cli("calibration", "--dataset", "digits", "--limit", "5").out.splitlines()

        assert server.queries == [{"dataset": "digits", "limit": "5"}]
        (row,) = [line for line in lines if "digits-eps3" in line]
        for cell in ("mlp", "2.941", "92.2 %", "[90.3, 93.8]", "92.5 %", "0.3 above", "yes"):
            assert f" {cell}" in row
        assert any("`tan-cli statement STUDY` has its δ" in line for line in lines)
        assert "held in 17 of 20 (90 % meant), mean error 0.4 points" in lines
        assert "the newest 1 of 20; --limit shows more" in lines

    def test_without_a_study_it_says_what_adds_one(self, cli: Cli, server: RecordedServer) -> None:
        server.calibration |= {
            "studies": 0, "inside": 0, "coverage": None, "mean_absolute_error": None, "items": [],
        }  # fmt: skip

        assert "each study that completes a private run adds one" in cli("calibration").out

    def test_json_is_what_the_server_said(self, cli: Cli, server: RecordedServer) -> None:
        assert json.loads(cli("calibration", "--json").out) == server.calibration

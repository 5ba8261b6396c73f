"""What the command line says of a study whose search is charged: its plan, its trials, its statement."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from rich.console import Console, RenderableType

from service import text
from service.cli import plan_plot, plan_view, prediction_view, privacy_view, trials, views
from service.cli.live import TrialPace as Pace
from service.cli.live import render_progress
from service.cli.progress import advance, begun, of_study
from service.cli.story import Story
from service.client import Event
from tan_core.planner import plan_study
from tan_core.planner import privacy as privacy_section
from tan_core.spec import load_study
from tests.unit.service.cli.recorded import STUDY, TRIALS

EXAMPLE = Path(__file__).parents[4] / "examples" / "accounted.yaml"
NOISE = "± 3.5 points"


@pytest.fixture(scope="module")
def plan() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(privacy_section, "PRV_MAX_EPSILON", 0.0)  # a process per answer
        spec = load_study(EXAMPLE.read_text())
        made = plan_study(spec, num_examples=1295, num_validation=143)
    return made.model_dump(mode="json")


@pytest.fixture
def study(plan: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(STUDY)
    made["plan"] = plan
    made["spec"]["search"]["accounting"] = "accounted"
    made["privacy"] |= {"search_accounting": "accounted"}
    return made


def told(shown: RenderableType) -> str:
    console = Console(width=80, markup=False, highlight=False)
    with console.capture() as captured:
        console.print(shown)
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= 80
    return " ".join(" ".join(lines).split())


def test_a_plan_says_what_is_charged_and_what_is_seen_of_it(plan: dict[str, Any]) -> None:
    shown = told(plan_view.plan(plan))

    assert "Privacy of run, trials and scores at δ = 1e-05" in shown
    assert "for the search 7 trials of 200 steps with a score each: the 6 planned, and 1" in shown
    assert f"noise on a score {NOISE}" in shown
    assert "PRV - not asked" in shown
    charged = plan["charged_search"]
    for part, value in (
        ("the private run", charged["epsilon_of_run"]),
        ("its 6 trials", charged["epsilon_of_trials"]),
        ("their scores", charged["epsilon_of_scores"]),
    ):
        assert f"{text.epsilon(value)} {part} alone" in shown


def test_a_plan_of_before_the_parts_were_told_is_shown_without_them(plan: dict[str, Any]) -> None:
    earlier = copy.deepcopy(plan)
    for part in ("run", "trials", "scores"):
        del earlier["charged_search"][f"epsilon_of_{part}"]

    assert " alone" not in told(plan_view.plan(earlier))


def test_a_plan_says_how_much_work_its_trials_are(plan: dict[str, Any]) -> None:
    shown = told(plan_view.plan(plan))

    assert "trials at full batch" in shown
    assert not [
        word for word in ("Simulations", "not private", "if every trial were") if word in shown
    ]


@pytest.mark.slow
def test_the_picture_says_what_is_of_the_run_alone_and_cuts_no_line(plan: dict[str, Any]) -> None:
    figure = Figure()
    plan_plot.draw(figure, plan)

    (axes,) = figure.axes
    drawn = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    curve = dict(drawn["ε by PLD of the private run alone, an upper bound"].get_xydata())
    (label,) = [label for label in drawn if label.startswith("this plan")]
    sigma, epsilon = drawn[label].get_xydata()[0]
    assert 2 * curve[sigma] < epsilon == plan["privacy"]["epsilon"]
    foot = figure.get_supxlabel()
    assert "private run with its trials" in foot
    assert max(map(len, foot.splitlines())) <= 115


def test_every_score_stands_beside_its_noise(study: dict[str, Any]) -> None:
    item = TRIALS[0]
    assert f"noisy by {NOISE}, paid for" in told(views.study(study))
    assert "charged 300 of 312 steps of the run, the rest given back" in told(views.study(study))
    assert "given back" not in told(views.study({**study, "state": "training"}))
    shown = told(trials._table(study, TRIALS))
    assert f"private trials, noisy by {NOISE}, paid for" in shown
    assert "B = 8" not in shown  # one batch: its accuracy is the trial's
    shown = told(trials._one(study, item))
    assert f"private trial, noisy by {NOISE}, paid for" in shown
    assert "Private run of the trial" in shown
    assert not [word for word in ("Simulations", "training loss", "seed") if word in shown]


def test_nothing_is_shown_of_clipping_whatever_a_score_holds(study: dict[str, Any]) -> None:
    study["spec"]["search"]["space"]["clip_norm"] = {"low": 0.1, "high": 1.0}
    assert TRIALS[0]["scores"][-1]["clipped_fraction"] is not None
    for clipping in ("per_example", "automatic"):
        study["spec"]["train"]["clipping"] = clipping
        shown = told(trials._table(study, TRIALS)) + told(trials._one(study, TRIALS[0]))
        assert "clipped" not in shown


def test_candidates_rest_on_scores_and_on_no_seeds(study: dict[str, Any]) -> None:
    shown = told(prediction_view.standings(study))
    assert f"noisy by {NOISE}, paid for" in shown
    assert "seeds" not in shown
    assert "from the noisy scores of all trials, which also chose it" in told(views.study(study))


def test_bars_are_of_the_search_whatever_its_trials_are(study: dict[str, Any]) -> None:
    pace = Pace(lambda: 0.0)
    shown = told(render_progress(study["name"], of_study(study), pace, width=80))
    assert "search" in shown
    assert "simulations" not in shown


def test_who_watches_is_told_of_the_noise_from_the_first_event_on(study: dict[str, Any]) -> None:
    story = Story()
    event = Event(seq=1, kind="state", data={"state": "simulating"})
    story.observe(advance(begun(study), event))
    assert story.of_scores == f"noisy by {NOISE}, paid for"


def test_a_statement_says_what_the_search_came_to() -> None:
    document = json.loads((Path(__file__).parent / "statement.json").read_text())
    note = "search on private data accounted, every trial of it"
    document["search"] |= {"accounting": "accounted", "note": note, "epsilon": 6.82, "trials": 6}
    shown = told(privacy_view.statement(document))
    assert f"accounted: {note}; ε = 6.820 of its 6 trials with their scores alone" in shown


def test_a_study_of_balanced_accuracies_names_each_of_them_so(study: dict[str, Any]) -> None:
    study["spec"]["search"]["metric"] = "balanced_accuracy"
    shown = told(views.study(study))
    assert "balanced validation accuracy" in shown
    assert "balanced test accuracy" in shown
    assert "; balanced accuracies)" in " ".join(told(trials._table(study, TRIALS)).split())
    assert "balanced accuracy" in told(trials._one(study, TRIALS[0]))

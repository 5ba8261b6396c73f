import io

from rich.console import Console

from service.cli.live import (
    LiveDisplay,
    PlainDisplay,
    TrialPace,
    open_display,
    render_progress,
    trials_line,
)
from service.cli.progress import StudyProgress, advance
from service.client import Event
from tests.unit.service.cli.recorded import story


def play(until: int | None = None) -> list[StudyProgress]:
    """The progress after each event of a study that completes."""
    states, now = [], StudyProgress()
    for event in story()[:until]:
        now = advance(now, Event(event["seq"], event["kind"], event))
        states.append(now)
    return states


def rendered(progress: StudyProgress, pace: TrialPace, *, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as capture:
        console.print(render_progress("digits", progress, pace, width=width))
    return capture.get()


class TestAdvance:
    def test_the_story_ends_completed_with_all_its_counts(self) -> None:
        last = play()[-1]
        assert last.is_over
        assert (last.trials_finished, last.trials_diverged, last.best_accuracy) == (2, 1, 0.9301)
        assert (last.step, last.steps) == (300, 300)

    def test_a_kind_of_event_from_the_future_changes_nothing(self) -> None:
        before = play()[3]
        assert advance(before, Event(9, "weather", {"sun": True})) == before

    def test_the_time_left_follows_from_rate_and_steps(self) -> None:
        assert StudyProgress(step=50, steps=150, steps_per_second=20).seconds_left == 5


class TestTrialPace:
    def test_the_time_left_is_extrapolated_from_trials_seen_to_finish(self) -> None:
        now = 0.0
        pace = TrialPace(lambda: now)
        for finished in (0, 1, 2):
            pace.observe(StudyProgress(state="simulating", trials_finished=finished))
            now += 10
        progress = StudyProgress(state="simulating", trials_finished=2, trials_total=5)
        assert pace.seconds_left(progress) == 20  # three of 10 s, of which 10 s have gone by

    def test_nothing_is_promised_before_a_trial_has_finished(self) -> None:
        pace = TrialPace(lambda: 0.0)
        pace.observe(StudyProgress(state="simulating", trials_finished=3))
        assert pace.seconds_left(StudyProgress(trials_total=5)) is None


class TestRender:
    def test_the_picture_holds_phase_bars_counts_rate_and_time_left(self) -> None:
        pace = TrialPace(lambda: 0.0)
        simulating, training = rendered(play(4)[-1], pace), rendered(play(8)[-1], pace)
        assert "1 of 2 trials, 1 diverged" in simulating
        assert "private run" not in simulating
        assert "finals" not in simulating
        assert "best 93.0 %" in training
        assert "step 150 of 300, 50.0 steps/s, 3s left" in training

    def test_on_a_narrow_terminal_every_word_is_there(self) -> None:
        progress = StudyProgress(
            state="training", trials_total=400, trials_finished=60, trials_pruned=45, trials_diverged=1,
            best_accuracy=0.96, step=150, steps=3000, steps_per_second=50.0,
        )  # fmt: skip
        wide, narrow = (
            rendered(progress, TrialPace(lambda: 0.0), width=width) for width in (120, 40)
        )
        assert max(map(len, narrow.splitlines())) <= 40
        bars = str.maketrans("", "", "━╸╺ ")
        assert "".join(narrow.split()).translate(bars) == "".join(wide.split()).translate(bars)

    def test_the_finals_are_shown_and_the_trials_have_no_time_left(self) -> None:
        now = 0.0
        pace = TrialPace(lambda: now)
        for progress in play(6):
            pace.observe(progress)
            now += 10

        finals = rendered(play(6)[-1], pace)

        assert "2 repetitions of finalists with fresh seeds" in finals
        assert " left" not in finals

    def test_features_that_are_computed_have_a_bar_of_their_own(self) -> None:
        features = {"done": 12_000, "number": 45_000, "seconds_left": 1320.0}
        progress = StudyProgress(state="simulating", trials_total=8, features=features)

        picture = rendered(progress, TrialPace(lambda: 0.0))

        assert "12,000 of 45,000 records, 22m00s left" in picture
        assert "0 of 8 trials" in picture

    def test_a_second_attempt_is_said(self) -> None:
        progress = StudyProgress(state="training", attempt=2)
        assert "training (attempt 2)" in rendered(progress, TrialPace(lambda: 0.0))

    def test_counts_of_nothing_are_left_out(self) -> None:
        assert trials_line(StudyProgress(trials_total=3)) == "0 of 3 trials"


class TestDisplays:
    def test_a_log_gets_lines_and_a_terminal_gets_bars(self) -> None:
        assert isinstance(open_display(Console(file=io.StringIO()), "x"), PlainDisplay)
        terminal = Console(file=io.StringIO(), force_terminal=True)
        assert isinstance(open_display(terminal, "x"), LiveDisplay)

    def test_a_log_gets_each_phase_and_trial_once_and_no_control_codes(self) -> None:
        file = io.StringIO()
        with PlainDisplay(Console(file=file, width=200), "digits", lambda: 0.0) as display:
            for progress in play():
                display.update(progress)
                display.update(progress)
        assert file.getvalue().splitlines() == [
            "digits",
            "queued",
            "simulating",
            "  trial 0 diverged; 1 of 2 trials, 1 diverged",
            "  trial 1 completed 93.0 %; 2 of 2 trials, best 93.0 %, 1 diverged",
            "  2 repetitions of finalists with fresh seeds",
            "training",
            "completed",
        ]

    def test_a_log_says_now_and_then_how_far_features_are(self) -> None:
        file, now = io.StringIO(), 0.0
        with PlainDisplay(Console(file=file, width=200), "digits", lambda: now) as display:
            for done in range(0, 90, 10):
                features = {"done": done, "number": 90, "seconds_left": None}
                display.update(StudyProgress(state="simulating", features=features))
                now += 2.0

        assert file.getvalue().splitlines() == [
            "digits",
            "simulating",
            "  features: 30 of 90 records",
            "  features: 60 of 90 records",
        ]

    def test_a_log_says_what_a_study_waits_for_meanwhile(self) -> None:
        file, waits = io.StringIO(), "waiting for a place with 1 CPU: the Ray cluster has none"
        with PlainDisplay(Console(file=file, width=200), "digits", lambda: 0.0) as display:
            for reason in ("trial 1", None, waits, waits, None):
                display.update(StudyProgress(state="training", reason=reason))

        assert file.getvalue().splitlines() == ["digits", "training: trial 1", f"  {waits}"]

    def test_a_terminal_gets_the_picture(self) -> None:
        file = io.StringIO()
        console = Console(file=file, width=120, force_terminal=True, color_system=None)
        with LiveDisplay(console, "digits") as display:
            for progress in play():
                display.update(progress)
            display.note("the connection broke")
        assert "the connection broke" in file.getvalue()
        assert "step 300 of 300" in file.getvalue()

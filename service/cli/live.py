"""Shows progress while it happens: bars and plots on a terminal, plain lines in a log."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from service import text
from service.cli.picture import plots
from service.cli.progress import StudyProgress, of_study
from service.cli.story import Story

BAR_WIDTH = 32
NARROW_BAR_WIDTH = 10
NARROW = 72
"""Below so many columns words stand below their bars."""
WIDE = 90
"""From so many columns on there is room for whole bars."""
PLAIN_SECONDS = 5.0


class Display(Protocol):
    """Something that shows a study's progress; a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def update(self, progress: StudyProgress) -> None:
        """Show this from now on."""
        ...

    def note(self, message: str) -> None:
        """Say something once."""
        ...


def open_display(console: Console, title: str) -> Display:
    """Bars where there is a terminal, lines where there is none."""
    return LiveDisplay(console, title) if console.is_terminal else PlainDisplay(console, title)


class LiveDisplay:
    """Redraws a few lines in place."""

    def __init__(self, console: Console, title: str) -> None:
        self._title = title
        self._pace = TrialPace(time.monotonic)
        self._progress = StudyProgress()
        self._story = Story()
        self._console = console
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def update(self, progress: StudyProgress) -> None:
        """Show this from now on."""
        self._progress = progress
        self._pace.observe(progress)
        self._story.observe(progress)

    def note(self, message: str) -> None:
        """Say something above the bars."""
        self._live.console.print(message, style="yellow")

    def _render(self) -> RenderableType:
        width = self._console.width
        bars = render_progress(self._title, self._progress, self._pace, width=width)
        return Group(bars, plots(self._story, width=width))


class PlainDisplay:
    """Prints a line when there is something new to say."""

    def __init__(
        self, console: Console, title: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._clock = clock
        self._said = StudyProgress(state="")
        self._said_at = clock()
        self._title = title

    def __enter__(self) -> Self:
        self._console.print(self._title)
        return self

    def __exit__(self, *_: object) -> None: ...

    def update(self, progress: StudyProgress) -> None:
        """Print what changed: a phase, a finished trial or repetition, what is waited for, now and then the steps."""
        before, line = self._said, None
        if progress.state != before.state:
            line = _phase(progress)
        elif progress.trials_finished != before.trials_finished:
            line = f"  {_trial(progress)}{trials_line(progress)}"
        elif progress.repeats_finished != before.repeats_finished:
            line = f"  {finals_line(progress)}"
        elif progress.attempt != before.attempt and (progress.attempt or 0) > 1:
            line = f"  attempt {progress.attempt} goes on"
        elif progress.reason and progress.reason != before.reason:
            line = f"  {progress.reason}"
        elif progress.step != before.step and self._is_due(progress):
            line = f"  {steps_line(progress)}"
        elif progress.features and self._is_due(progress):
            line = f"  features: {features_line(progress.features)}"
        if line is not None:
            self._console.print(line)
            self._said, self._said_at = progress, self._clock()

    def note(self, message: str) -> None:
        """Say something once."""
        self._console.print(message)

    def _is_due(self, progress: StudyProgress) -> bool:
        is_last = progress.step is not None and progress.step == progress.steps
        return is_last or self._clock() - self._said_at >= PLAIN_SECONDS


class TrialPace:
    """Seconds to the end of the search, from the trials seen to finish."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._start: tuple[float, int] | None = None
        self._last: tuple[float, int] | None = None

    def observe(self, progress: StudyProgress) -> None:
        """Take note of the time when another trial has finished."""
        if progress.state != "simulating":
            return
        now = (self._clock(), progress.trials_finished)
        if self._start is None:
            self._start = now
        if self._last is None or self._last[1] != now[1]:
            self._last = now

    def seconds_left(self, progress: StudyProgress) -> float | None:
        """None until a trial has finished while we watched, and when none is left."""
        if progress.trials_finished >= progress.trials_total:
            return None
        if self._start is None or self._last is None or self._last[1] <= self._start[1]:
            return None
        each = (self._last[0] - self._start[0]) / (self._last[1] - self._start[1])
        since = self._clock() - self._last[0]
        return max(0.0, each * (progress.trials_total - progress.trials_finished) - since)


def render_progress(
    title: str, progress: StudyProgress, pace: TrialPace, *, width: int = 120
) -> RenderableType:
    """The phases, a few lines high; on a narrow terminal with their words below their bars."""
    bar = BAR_WIDTH if width >= WIDE else NARROW_BAR_WIDTH
    left = pace.seconds_left(progress) if progress.state == "simulating" else None
    words = trials_line(progress) + (f", {text.duration(left)} left" if left is not None else "")
    rows: list[tuple[str, RenderableType, str]] = []
    if progress.features:
        made = _bar(progress.features["done"], progress.features["number"], bar)
        rows.append(("features", made, features_line(progress.features)))
    if progress.trials_total:
        finished = _bar(progress.trials_finished, progress.trials_total, bar)
        rows.append(("search", finished, words))
    if progress.repeats_finished:
        rows.append(("finals", "", finals_line(progress)))
    if progress.steps:
        done = _bar(progress.step or 0, progress.steps, bar)
        rows.append(("private run", done, steps_line(progress)))
    grid = Table.grid(padding=(0, 1))
    if width >= NARROW:
        for _ in range(3):
            grid.add_column(no_wrap=True)
        for row in rows:
            grid.add_row(*row)
    else:
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for name, drawn, said in rows:
            grid.add_row(name, drawn)
            grid.add_row("", said)
    return Group(Text(title, style="bold"), Text(_phase(progress)), grid)


def still(study: dict[str, Any], trials: Sequence[dict[str, Any]], *, width: int) -> RenderableType:
    """A study and its trials as they stand, without anybody waiting for more."""
    pace = TrialPace(time.monotonic)
    bars = render_progress(study["name"], of_study(study), pace, width=width)
    return Group(bars, plots(Story.of_study(study, trials), width=width))


def trials_line(progress: StudyProgress) -> str:
    """Trials done, the best so far, and the ones that came to nothing."""
    line = f"{progress.trials_finished} of {progress.trials_total} trials"
    if progress.best_accuracy is not None:
        line += f", best {text.percent(progress.best_accuracy)}"
    for count, word in (
        (progress.trials_running, "running"),
        (progress.trials_diverged, "diverged"),
        (progress.trials_pruned, "pruned"),
        (progress.trials_failed, "failed"),
    ):
        line += f", {count} {word}" if count else ""
    return line


def finals_line(progress: StudyProgress) -> str:
    """How often finalists were repeated; nothing before they are."""
    if not progress.repeats_finished:
        return ""
    return f"{text.counted(progress.repeats_finished, 'repetition')} of finalists with fresh seeds"


def features_line(features: dict[str, Any]) -> str:
    """Records whose features are there, of a split of so many, and what is left."""
    line = f"{features['done']:,} of {features['number']:,} records"
    if features["seconds_left"]:
        line += f", {text.duration(features['seconds_left'])} left"
    return line


def steps_line(progress: StudyProgress) -> str:
    """Steps of the private run, their rate and what is left."""
    line = f"step {progress.step or 0:,} of {progress.steps or 0:,}"
    if progress.steps_per_second:
        line += f", {progress.steps_per_second:.1f} steps/s"
    if progress.state == "training" and progress.seconds_left:
        line += f", {text.duration(progress.seconds_left)} left"
    return line


def _phase(progress: StudyProgress) -> str:
    words = progress.state.replace("_", " ")
    if progress.attempt and progress.attempt > 1 and not progress.is_over:
        words += f" (attempt {progress.attempt})"
    return f"{words}: {progress.reason}" if progress.reason else words


def _trial(progress: StudyProgress) -> str:
    trial = progress.last_trial
    if trial is None or trial["state"] == "running":
        return ""
    score = f" {text.percent(trial['value'])}" if trial.get("value") is not None else ""
    return f"trial {trial['number']} {trial['state']}{score}; "


def _bar(done: int, total: int, width: int) -> ProgressBar:
    return ProgressBar(total=max(total, 1), completed=done, width=width)

"""Display running trials and estimate the remaining time of a sweep."""

from typing import TYPE_CHECKING

from orchestrator.cli.display.console import BreakableName
from orchestrator.conductor.outlook import RemainingWork, RunningTrial, estimate_remaining
from orchestrator.trials import numbered

if TYPE_CHECKING:
    from rich.table import Table

MAX_LISTED_TRIALS = 8
"""Maximum number of running trials that are listed; the others are counted."""
MIN_SILENCE_S = 600.0
"""Seconds without a report after which the duration of the silence is displayed."""
MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0


def running_table(outlook: RemainingWork) -> "Table":
    """Return a table with one row per running trial."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    trials = outlook.running[:MAX_LISTED_TRIALS]
    metrics = {trial.metric for trial in trials if trial.value is not None}
    common_metric = metrics.pop() if len(metrics) == 1 else ""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("running trial", overflow="fold")
    for header in ("step", "steps/s", common_metric or "last value", "its end in"):
        table.add_column(header, justify="right", no_wrap=True)
    for trial in trials:
        name = BreakableName(
            f"{trial.arm} {trial.phase} {numbered(trial.repeat, trial.number)}{silence_text(trial)}"
        )
        time_left = "" if trial.left_s is None else format_rough_seconds(trial.left_s)
        value = _value_text(trial, with_metric=not common_metric)
        table.add_row(name, _step_text(trial), _rate_text(trial), value, time_left)
    if (num_hidden := len(outlook.running) - MAX_LISTED_TRIALS) > 0:
        table.add_row(f"... and {num_hidden} more", "", "", "", "")
    return table


def silence_text(trial: RunningTrial) -> str:
    """Return the time since the trial's last report, as text; empty if the report is recent."""
    if trial.silent_s is None or trial.silent_s < MIN_SILENCE_S:
        return ""
    return f", silent for {format_rough_seconds(trial.silent_s)}"


def format_rough_seconds(seconds: float) -> str:
    """Format seconds with the precision of an estimate: `40s`, `12m`, `2h 10m`, `3 days`."""
    if seconds < 1.5 * MINUTE_S:
        return f"{max(1, round(seconds / 10)) * 10}s"
    if seconds < HOUR_S - MINUTE_S / 2:
        return f"{round(seconds / MINUTE_S)}m"
    tens = round(seconds / (10 * MINUTE_S))
    if tens < 60:
        return f"{tens // 6}h {tens % 6}0m"
    if seconds < 2 * DAY_S:
        return f"{round(seconds / HOUR_S)}h"
    return f"{round(seconds / DAY_S)} days"


def seconds_left(outlook: RemainingWork, speed: float | None) -> float | None:
    """Return the estimated wall-clock seconds left; None if no estimate is possible.

    Args:
        outlook: Running trials and trials still to come.
        speed: Seconds of work per wall-clock second.
    """
    work = estimate_remaining(outlook)
    if work is None or not speed or not (work.seconds or work.num_unknown):
        return None
    return max(work.longest_s, work.seconds / speed)


def time_left_text(outlook: RemainingWork, speed: float | None, *, may_end_early: bool = False) -> str:
    """Return the end of a progress line, e.g. `, about 12m left (from 6 ended trials)`.

    The text is empty if no estimate is possible.

    Args:
        outlook: Running trials and trials still to come.
        speed: Seconds of work per wall-clock second.
        may_end_early: Whether trials may be skipped or end early.
    """
    seconds, work = seconds_left(outlook, speed), estimate_remaining(outlook)
    if seconds is None or work is None:
        return ""
    return f", {'at most ' * may_end_early}about {format_rough_seconds(seconds)} left ({work.basis})"


def _step_text(trial: RunningTrial) -> str:
    if not trial.seconds:
        return "starting"
    return f"{trial.step:,}" + (f"/{trial.steps:,}" if trial.steps is not None else "")


def _rate_text(trial: RunningTrial) -> str:
    return "" if trial.rate is None else f"{trial.rate:.3g}"


def _value_text(trial: RunningTrial, *, with_metric: bool) -> str:
    return "" if trial.value is None else f"{trial.metric} " * with_metric + f"{trial.value:.4g}"


class WorkRate:
    """Estimate of the seconds of work per wall-clock second, since the first observed work."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._began = self._worked = 0.0
        self._most_running = 1

    def speed(self, work_seconds: float, now: float, running: int) -> float | None:
        """Return the speed; None before the first work is observed.

        It is at most the greatest number of trials that ran at a time, which does not fall while one trial
        ends and the next one starts.

        Args:
            work_seconds: Seconds of work so far.
            now: Time in seconds.
            running: Number of running trials.
        """
        self._most_running = max(self._most_running, running)
        if self._first is None:
            self._first = self._worked = work_seconds
        if self._worked == self._first:  # exclude loading of code and data, which happens only once
            self._began, self._worked = now, work_seconds
            return None
        if now <= self._began or work_seconds <= self._worked:
            return None
        return min((work_seconds - self._worked) / (now - self._began), float(self._most_running))

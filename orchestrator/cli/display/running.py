"""What trials are doing at this moment, and how long a sweep still takes, for people."""

from typing import TYPE_CHECKING

from orchestrator.cli.display.console import Name
from orchestrator.conductor.outlook import Outlook, RunningTrial, remaining
from orchestrator.trials import numbered

if TYPE_CHECKING:
    from rich.table import Table

SHOWN = 8
"""Running trials that are listed; of more, how many more there are."""
SILENT_SHOWN_S = 600.0
"""Seconds without a report after which the duration of the silence is shown."""
MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0


def running_table(outlook: Outlook) -> "Table":
    """One row a running trial."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    shown = outlook.running[:SHOWN]
    metrics = {each.metric for each in shown if each.value is not None}
    common = metrics.pop() if len(metrics) == 1 else ""
    made = Table(box=SIMPLE_HEAD, pad_edge=False)
    made.add_column("running trial", overflow="fold")
    for header in ("step", "steps/s", common or "last value", "its end in"):
        made.add_column(header, justify="right", no_wrap=True)
    for each in shown:
        trial = Name(f"{each.arm} {each.phase} {numbered(each.repeat, each.number)}{silence(each)}")
        left = "" if each.left_s is None else roughly(each.left_s)
        made.add_row(trial, _step(each), _rate(each), _value(each, named=not common), left)
    if (more := len(outlook.running) - SHOWN) > 0:
        made.add_row(f"... and {more} more", "", "", "", "")
    return made


def silence(trial: RunningTrial) -> str:
    """Return the time since the trial's last report as text; empty if the time is short."""
    if trial.silent_s is None or trial.silent_s < SILENT_SHOWN_S:
        return ""
    return f", silent for {roughly(trial.silent_s)}"


def roughly(seconds: float) -> str:
    """No more exactly than an estimate is: `40s`, `12m`, `2h 10m`, `3 days`."""
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


def seconds_left(outlook: Outlook, speed: float | None) -> float | None:
    """Wall-clock seconds, at `speed` seconds of work in each; None where there is no ground to say so."""
    left = remaining(outlook)
    if left is None or not speed or not (left.seconds or left.unknown):
        return None
    return max(left.longest_s, left.seconds / speed)


def time_left(outlook: Outlook, speed: float | None, *, shorter: bool = False) -> str:
    """What a line ends with: `, about 12m left (from 6 ended trials)`; empty where nothing is known.

    `shorter`: trials may be skipped or end early.
    """
    seconds, left = seconds_left(outlook, speed), remaining(outlook)
    if seconds is None or left is None:
        return ""
    return f", {'at most ' * shorter}about {roughly(seconds)} left ({left.ground})"


def _step(trial: RunningTrial) -> str:
    if not trial.seconds:
        return "starting"
    return f"{trial.step:,}" + (f"/{trial.steps:,}" if trial.steps is not None else "")


def _rate(trial: RunningTrial) -> str:
    return "" if trial.rate is None else f"{trial.rate:.3g}"


def _value(trial: RunningTrial, *, named: bool) -> str:
    return "" if trial.value is None else f"{trial.metric} " * named + f"{trial.value:.4g}"


class Pace:
    """How many seconds of work are done in a wall-clock second, since work was first seen to be done here."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._began = self._worked = 0.0

    def speed(self, worked_s: float, now: float, running: int) -> float | None:
        """With `worked_s` done by `now`; None before there is any, and never above what can run at once."""
        if self._first is None:
            self._first = self._worked = worked_s
        if self._worked == self._first:  # loading code and data is no pace: it is done once
            self._began, self._worked = now, worked_s
            return None
        if now <= self._began or worked_s <= self._worked:
            return None
        return min((worked_s - self._worked) / (now - self._began), max(1.0, float(running)))

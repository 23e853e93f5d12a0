"""Display the progress of a sweep: a table for `status` and the live view, plain lines for logs."""

import time
from collections.abc import Callable, Sequence
from itertools import chain
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Self

from orchestrator.cli.display.console import (
    BreakableName,
    VisibleText,
    mark_live_display,
    out,
    print_error,
    print_line,
)
from orchestrator.cli.display.data_progress import LINE_INTERVAL_S, PROGRESS_DELAY_S, format_share
from orchestrator.cli.display.running_trials import (
    HOUR_S,
    WorkRate,
    format_rough_seconds,
    running_table,
    seconds_left,
    silence_text,
    time_left_text,
)
from orchestrator.conductor.messages import Progress
from orchestrator.conductor.outlook import RemainingWork
from orchestrator.files.redact import redact
from orchestrator.plan.display.format import format_decimals
from orchestrator.plan.planned_trials import replacement_trials
from orchestrator.plan.types import Plan
from orchestrator.spec.scopes import counted_name
from orchestrator.trials import Outcome, numbered

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from orchestrator.execution.live_view import Snapshot
    from orchestrator.execution.signals import SignalEffect
    from orchestrator.ledger.sql.outage import Outage

QUIET_S = 600.0
"""Seconds without an ended trial after which a log gets a line on a running trial."""
MAX_REASON_LENGTH = 300
INTERRUPT_MESSAGES = {
    "DRAIN": "stopping: running trials end at their next report, with a checkpoint if their code saves one; "
    "Ctrl-C again stops at once",
    "EXIT": "stopping; Ctrl-C again stops at once",
    "EXIT_NOW": "stopping at once",
}


def progress_table(progress: Sequence[Progress], objective: str) -> "Table":
    """Return a table with one row per arm; numbers never wrap, and names break at punctuation."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(caption=f"best: of {objective}" if objective else None, caption_justify="right")
    grid.add_column("arm", overflow="fold")
    infeasible = ["infeasible"] if any(arm.infeasible for arm in progress) else []
    best = ["best"] if objective else []
    for header in ("ended", "running", "pruned", *infeasible, "failed", *best, "work"):
        grid.add_column(header, justify="right", no_wrap=True)
    for arm in progress:
        grid.add_row(
            BreakableName(arm.arm),
            f"{arm.ended}/{arm.planned}",
            str(arm.running),
            str(arm.pruned),
            *(str(arm.infeasible) for _ in infeasible),
            Text(str(arm.failed), style="red" if arm.failed else ""),
            *("-" if arm.best is None else format_decimals(arm.best, 3) for _ in best),
            short_duration(arm.seconds),
        )
    return grid


def progress_line(progress: Sequence[Progress], time_left: str) -> str:
    """Return the progress of the sweep as one line."""
    num_ended, planned = sum(arm.ended for arm in progress), sum(arm.planned for arm in progress)
    running, num_failed = sum(arm.running for arm in progress), sum(arm.failed for arm in progress)
    pruned, num_skipped = sum(arm.pruned for arm in progress), sum(arm.skipped for arm in progress)
    skipped_text = f", {num_skipped} skipped" if num_skipped else ""
    if infeasible := sum(arm.infeasible for arm in progress):
        skipped_text += f", {infeasible} infeasible"
    failed_text = f" ({num_failed} of them failed)" if num_failed else ""
    ended = f"{num_ended}/{planned} ended{failed_text}"
    return f"{ended}, {running} running, {pruned} pruned{skipped_text}{time_left}"


def short_duration(seconds: float) -> str:
    """Format a duration, e.g. `42s`, `3m 20s`, `2h 05m`."""
    total = round(seconds)
    if total < 60:
        return f"{total}s"
    minutes, remainder = divmod(total, 60)
    return f"{minutes}m {remainder:02d}s" if minutes < 60 else f"{minutes // 60}h {minutes % 60:02d}m"


class View:
    """View of a running sweep: a live table on a terminal, occasional lines elsewhere."""

    def __init__(
        self,
        plan: Plan,
        *,
        clock: Callable[[], float] = time.monotonic,
        live: bool = True,
        hint: str = "Ctrl-C stops cleanly, `haltsweep resume` continues",
    ) -> None:
        self._objective = counted_name(plan.search.objectives[0]) if plan.search else ""
        self._clock = clock
        self._began = clock()
        self._plan = plan
        self._hint = hint
        self._pace = WorkRate()
        self._shorter = may_end_early(plan)
        self._snapshot: Snapshot | None = None
        self._tracking_since: float | None = None
        self._last_at = -LINE_INTERVAL_S
        self._last_text = self._data = ""
        self._data_since = self._began
        self._wants_live = live
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._wants_live and out().is_terminal:
            from rich.live import Live

            self._live = Live(console=out(), refresh_per_second=4, transient=True)
            self._live.start()
            mark_live_display(begins=True)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._live is not None:
            mark_live_display(begins=False)
            self._live.stop()

    def show(self, snapshot: "Snapshot") -> None:
        """Display the progress of the sweep."""
        now, arms = self._clock(), snapshot.arms
        if self._snapshot is None:
            self._began = now
        self._snapshot = snapshot
        progress = progress_line(arms, "") + (
            f"; stopping: {snapshot.drain_reason}" if snapshot.drain_reason else ""
        )
        time_left = "" if snapshot.drain_reason else self._time_left_text(snapshot, now)
        if self._live is not None:
            hint = "" if snapshot.drain_reason else f"; {self._hint}"
            self._draw(progress + time_left + hint, *progress_tables(arms, self._objective, snapshot.outlook))
        elif now - self._last_at >= LINE_INTERVAL_S or all(arm.ended == arm.planned for arm in arms):
            is_quiet = progress == self._last_text and now - self._last_at >= QUIET_S
            if is_quiet:
                self._last_text = ""
            self._print_if_new(progress, now, time_left + (_running_text(snapshot) if is_quiet else ""))

    def show_starting(self, step: str) -> None:
        """Display a step before or after the trials, e.g. the start of Ray or the report."""
        if self._live is None:
            print_line(f"[{short_duration(self._clock() - self._began)}] {step}")
            return
        arms = self._snapshot.arms if self._snapshot is not None else ()
        self._draw(step, *([progress_table(arms, self._objective)] if arms else []))

    def show_data(self, task: str, split: str, ready: int, total: int) -> None:
        """Display which split is being built."""
        is_ready = ready == total
        self._data = f"data: {task}/{split} ({ready + 1} of {total})"
        self._data_since, self._last_at = self._clock(), -LINE_INTERVAL_S
        if is_ready:
            self._data = f"data: {total} splits of {task} ready"
        if self._live is not None:
            self._draw(self._data)
        elif is_ready:
            print_line(self._data)

    def show_build(self, step: str, done: int, total: int) -> None:
        """Display the progress of the split being built; in a log only if the build takes long."""
        text = f"{self._data}: {format_share(done, total)} of {total:,} {step}"
        now = self._clock()
        if self._live is not None:
            self._draw(text)
        elif (
            done < total
            and now - self._data_since >= PROGRESS_DELAY_S
            and now - self._last_at >= LINE_INTERVAL_S
        ):
            self._print_if_new(text, now)

    def show_interrupt(self, interrupt: "SignalEffect") -> None:
        """Display the effect of Ctrl-C; called in another thread."""
        print_error(INTERRUPT_MESSAGES[interrupt.name])

    def show_outage(self, outage: "Outage | None") -> None:
        """Display that the ledger's database is unreachable or reachable again; called in any thread."""
        if outage is None:
            print_error("the ledger's database is reachable again; buffered reports are now being written")
            return
        since, until = (time.strftime("%H:%M:%S", time.localtime(at)) for at in (outage.since, outage.until))
        print_error(
            f"the ledger's database is unreachable since {since} ({redact(outage.cause)}); running trials "
            f"continue and buffer their reports; if it stays away, the sweep stops at {until}; resume it "
            "later"
        )

    def show_tracking(self, subject: str) -> None:
        """Display that no trial is running and the sweep waits for MLflow."""
        now = self._clock()
        if self._tracking_since is None:
            self._tracking_since = now
        if now - self._tracking_since < PROGRESS_DELAY_S:
            return
        text = f"no trial is running; waiting for MLflow: {subject}; Ctrl-C postpones it to `haltsweep sync`"
        if self._live is not None:
            self._draw(text)
        elif now - self._last_at >= LINE_INTERVAL_S:
            self._print_if_new(text, now)

    def _draw(self, text: str, *below: "Table") -> None:
        """Draw the line above the tables, since the terminal cuts off the end of a tall display."""
        from rich.console import Group
        from rich.text import Text

        assert self._live is not None, "only a terminal has a live display"
        self._live.update(VisibleText(Group(Text(text), *below)))

    def _print_if_new(self, text: str, now: float, suffix: str = "") -> None:
        """Print a line if `text` is new; a change of `suffix` alone prints nothing."""
        if text != self._last_text:
            print_line(f"[{short_duration(now - self._began)}] {text}{suffix}")
            self._last_text, self._last_at = text, now

    def _time_left_text(self, snapshot: "Snapshot", now: float) -> str:
        """Return the estimated time left, or the time until the wall-clock budget ends the sweep."""
        worked = sum(arm.seconds for arm in snapshot.arms)
        speed = self._pace.speed(worked, now, snapshot.running)
        work_left_s, hours = seconds_left(snapshot.outlook, speed), self._plan.wall_clock_hours
        until = inf if hours is None else hours * HOUR_S - snapshot.open_seconds
        if work_left_s is not None and until < work_left_s:
            return f", the budget of {hours:g} h ends it in about {format_rough_seconds(max(0.0, until))}"
        return time_left_text(snapshot.outlook, speed, may_end_early=self._shorter)


def progress_tables(arms: Sequence[Progress], objective: str, outlook: RemainingWork) -> "list[Table]":
    """Return the table of arms, and the table of running trials if any run."""
    return [progress_table(arms, objective), *([running_table(outlook)] if outlook.running else [])]


def make_failure_warning(plan: Plan, status: str) -> Callable[[str, Outcome], None]:
    """Return a callback that prints a warning for the first failed trial only.

    One mistake may fail all later trials. The view counts them, and the command `status` lists them.
    """
    has_warned = False

    def warn_once(trial_id: str, outcome: Outcome) -> None:
        nonlocal has_warned
        if has_warned:
            return
        has_warned = True
        trials = chain(plan.trials, replacement_trials(plan))
        trial = next(candidate for candidate in trials if candidate.trial_id == trial_id)
        place = f"{trial.arm} {trial.phase} {numbered(trial.repeat, trial.number)} ({trial_id})"
        reason = first_line(outcome.reason)
        print_error(f"first failure: {place} {outcome.kind}: {reason}; `{status}` lists others")

    return warn_once


def first_line(reason: str) -> str:
    """Return the first line of a reason, without a traceback that follows it."""
    first = reason.partition("\n")[0]
    return first[:MAX_REASON_LENGTH] + ("..." if len(first) > MAX_REASON_LENGTH else "")


def may_end_early(plan: Plan) -> bool:
    """Return whether trials may be skipped, so that the planned number is an upper bound."""
    return (plan.confirm is not None and plan.confirm.stop is not None) or (
        plan.limits is not None and plan.limits.each_arm is not None
    )


def _running_text(snapshot: "Snapshot") -> str:
    """Return the progress of running trials, for a log in which no trial has ended for a long time."""
    running = snapshot.outlook.running
    trials = [trial for trial in running if silence_text(trial)] or running[:1]
    return "".join(
        f"; {trial.arm} {trial.phase} {numbered(trial.repeat, trial.number)} is at step {trial.step:,}"
        f"{silence_text(trial)}"
        for trial in trials
    )

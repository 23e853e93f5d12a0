"""Display the progress of data builds: a bar on a terminal, occasional lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from orchestrator.cli.display.console import err, print_error
from search_spaces.wording import escape_to_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PROGRESS_DELAY_S = 2.0
"""Seconds of work before progress is printed in a log."""
LINE_INTERVAL_S = 10.0
"""Minimum seconds between two lines in a log."""


class ProgressBars:
    """Progress bars on standard error for data that are built or read; at most one is displayed at a time."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bars: Progress | None = None
        self._bar: TaskID | None = None
        self._name = ""
        self._began = self._shown_at = 0.0

    def __enter__(self) -> Self:
        if err().is_terminal:
            from rich import progress

            self._bars = progress.Progress(
                progress.SpinnerColumn(),
                progress.TextColumn("{task.description}", markup=False),
                progress.BarColumn(),
                progress.TaskProgressColumn(),
                progress.TimeElapsedColumn(),
                console=err(),
                transient=True,
            )
            self._bars.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._bars is not None:
            self._bars.stop()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Display progress reported inside the context as progress of `name`."""
        from trainables.data.progress import Watcher, report_to

        self._name, self._began, self._shown_at = name, self._clock(), float("-inf")
        if self._bars is not None:
            self._bar = self._bars.add_task(escape_to_line(name), total=None)
        try:
            with report_to(Watcher(self._show_step, print_error)):
                yield
        finally:
            if self._bars is not None and self._bar is not None:
                self._bars.remove_task(self._bar)

    def _show_step(self, step: str, done: int, total: int) -> None:
        if self._bars is not None and self._bar is not None:
            description = escape_to_line(f"{self._name}: {step}")
            self._bars.update(self._bar, description=description, completed=done, total=total)
            return
        now = self._clock()
        if done == total:
            return
        if now - self._began >= PROGRESS_DELAY_S and now - self._shown_at >= LINE_INTERVAL_S:
            print_error(f"{self._name}: {format_share(done, total)} of {total:,} {step}")
            self._shown_at = now


def format_share(done: int, total: int) -> str:
    """Return the ratio as a percentage, e.g. `45%`."""
    return f"{done / total:.0%}" if total else "100%"

"""Display what a command waits for: on a terminal at once, in a log after a delay and then occasionally."""

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from orchestrator.cli.display.console import err, print_error
from orchestrator.cli.display.data_progress import LINE_INTERVAL_S

if TYPE_CHECKING:
    from rich.status import Status

REFRESH_S = 0.25
FIRST_LINE_S = 1.0
"""Seconds of waiting before a line is printed in a log, unless `first_s` overrides it."""


class WaitDisplay:
    """Context that displays the latest `update`, and the time since it, while a command waits.

    Args:
        hint: How to end the wait.
        activity: Purpose of the wait.
        first_s: Seconds of waiting before a line is printed in a log.
    """

    def __init__(self, hint: str, activity: str, *, first_s: float = FIRST_LINE_S) -> None:
        self._hint, self._doing = hint, activity
        self._update = ("starting", time.monotonic())
        self._shown_at = time.monotonic() + first_s - LINE_INTERVAL_S
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._refresh_until_end, name="waiting", daemon=True)
        self._status: Status | None = None

    def update(self, step: str) -> None:
        """Set the current step of the wait."""
        self._update = (step, time.monotonic())

    def __enter__(self) -> Self:
        if err().is_terminal:
            self._status = err().status(self._doing)
            self._status.start()
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        if self._status is not None:
            self._status.stop()

    def _refresh_until_end(self) -> None:
        while not self._over.wait(REFRESH_S):
            step, since = self._update
            now = time.monotonic()
            age = f" (since {now - since:.0f} s)" if now - since >= FIRST_LINE_S else ""
            text = f"{self._doing}: {step}{age}; {self._hint}"
            if self._status is not None:
                from rich.text import Text

                self._status.update(Text(text))
            elif now - self._shown_at >= LINE_INTERVAL_S:
                self._shown_at = now
                print_error(text)

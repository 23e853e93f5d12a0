"""Where trials that share a process wait for each other, to take their training steps together.

Each runs in a thread of its own, and one of them at a time. At its next step a trial hands in what the step
is of and waits; where all have come, the last one runs the step for all that are least far, and the others
find its result. Who ends, or fails, leaves: nobody waits for it any more. Loads no torch.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final

LEFT: Final = "the other trials of this process were given up"


class GivenUp(BaseException):
    """Nobody hears any more of what the trials of a meeting do."""


@dataclass(eq=False, slots=True)
class _Arrival:
    """One member at its next step."""

    step: int
    what: Any
    found: Any = None
    """What the step gave, or what it raised."""
    done: bool = False
    seconds: float = 0.0
    """The member's share of the time that its step took."""


Together = Callable[[Sequence[Any], int], Sequence[Any]]
"""Takes one step of all that are given, and its number: a result, or an exception, for each."""


@dataclass
class Meeting:
    """Of the trials of one process."""

    kept: dict[str, Any] = field(default_factory=dict)
    """What those who run steps keep from one step to the next."""
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _members: int = 0
    _busy: bool = False
    """Whether some member runs."""
    _waiting: list[_Arrival] = field(default_factory=list)
    _over: bool = False

    def expect(self, members: int) -> None:
        """So many will come: nobody's step begins before."""
        with self._changed:
            self._members += members

    @contextmanager
    def member(self) -> Iterator[None]:
        """To be open for as long as the thread of an expected member runs."""
        token = _MEETING.set(self)
        self._take_turn()
        try:
            yield
        finally:
            _MEETING.reset(token)
            with self._changed:
                self._busy = False
                self._members -= 1
                self._changed.notify_all()

    @contextmanager
    def away(self) -> Iterator[None]:
        """To be open while a member waits for anything else: another one runs meanwhile."""
        with self._changed:
            self._busy = False
            self._changed.notify_all()
        try:
            yield
        finally:
            self._take_turn()

    def step(self, what: Any, step: int, run: Together) -> tuple[Any, float]:
        """What step number `step` of the member that hands in `what` gives, and its share of the seconds.

        Raises what `run` found for it, and GivenUp.
        """
        mine = _Arrival(step, what)
        with self._changed:
            self._waiting.append(mine)
            self._busy = False
            self._changed.notify_all()
            while self._busy or not (mine.done or self._runs(mine)):
                self._changed.wait()
                self._end_if_over()
            self._busy = True
        if not mine.done:
            self._run(step, run)
        if isinstance(mine.found, BaseException):
            raise mine.found
        return mine.found, mine.seconds

    def give_up(self) -> None:
        """End all members at their next step or wait."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def check(self) -> None:
        """Raises GivenUp if it is over."""
        with self._changed:
            self._end_if_over()

    def _runs(self, mine: _Arrival) -> bool:
        """Whether it is for this member to run a step: all have come, and it is the first of the hindmost."""
        if len(self._waiting) < self._members:
            return False
        least = min(each.step for each in self._waiting)
        return mine is next(each for each in self._waiting if each.step == least)

    def _run(self, step: int, run: Together) -> None:
        """One step of all that are as far; as they all wait, nothing of theirs changes meanwhile."""
        group = [each for each in self._waiting if each.step == step]
        begin = perf_counter()
        try:
            found: Sequence[Any] = run([each.what for each in group], step)
        except Exception as error:
            found = [error] * len(group)
        seconds = (perf_counter() - begin) / len(group)
        with self._changed:
            for each, result in zip(group, found, strict=True):
                each.found, each.seconds, each.done = result, seconds, True
                self._waiting.remove(each)
            self._changed.notify_all()

    def _take_turn(self) -> None:
        with self._changed:
            while self._busy:
                self._changed.wait()
                self._end_if_over()
            self._end_if_over()
            self._busy = True

    def _end_if_over(self) -> None:
        if self._over:
            raise GivenUp(LEFT)


_MEETING: ContextVar[Meeting | None] = ContextVar("meeting", default=None)


def meeting() -> Meeting | None:
    """That of the trials that the present one takes its steps with; None where it is alone."""
    return _MEETING.get()

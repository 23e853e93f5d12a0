"""Says so where code of others ends the interpreter while a spec is looked at: nothing can be caught then."""

import atexit
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from orchestrator.cli.display.console import complain
from orchestrator.spec.document import read_file
from search_spaces.paths import ROOTS
from trainables import catalog
from trainables.custom.extensions import is_module_name

ENDED = 2
"""Exit code of bad input, as of all else that is wrong with a spec."""
INTERRUPTED = 130
LEAVE_S = 2.0
"""How long a copy has to end after Ctrl-C, which code of others may not let it hear."""
LOOK_S = 0.25
LINE_BYTES = 4096
_KINDS: Mapping[str, catalog.Kind] = {"model": "models", "task": "tasks"}


def guard(paths: Sequence[Path], overrides: Sequence[str] = ()) -> None:
    """Go on in a copy of this process, which waits for its end, where a spec names code of others.

    A copy costs next to nothing as long as PyTorch is not loaded; where it is, or threads run, as in a
    notebook or a test, nothing is done.
    """
    if not (named := _named(paths, overrides)):
        return
    read_end, at_end = os.pipe()
    if (copy := _copied()) == 0:
        os.close(read_end)
        # What has been said stays said, whatever ends this process.
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        # An end that leaves out what Python does at its end is none of ours.
        atexit.register(os.write, at_end, b".")
        return
    os.close(at_end)
    killed: list[int] = []

    def kill(*_: object) -> None:
        killed.append(copy)
        os.kill(copy, signal.SIGKILL)

    # A terminal sends Ctrl-C to both, and the copy says what there is to say, if it hears of it.
    signal.signal(signal.SIGALRM, kill)
    signal.signal(signal.SIGINT, lambda *_: signal.setitimer(signal.ITIMER_REAL, LEAVE_S))
    signal.signal(signal.SIGTERM, lambda number, _: os.kill(copy, number))
    status = _awaited(copy, read_end, named, killed)
    if killed:
        complain("interrupted")
        os._exit(INTERRUPTED)
    os._exit(ENDED if status is None else os.waitstatus_to_exitcode(status) % 256)


def rehearse(plan: Callable[[], object], paths: Sequence[Path], overrides: Sequence[str] = ()) -> None:
    """Plan in a copy of this process first, where a spec names code of others; exits if that ends the copy.

    For a process that others know and stop by its number, which must not go on in a copy. What the copy says
    is said when this process plans. Nothing is done where `guard` does nothing.
    """
    if not (named := _named(paths, overrides)):
        return
    from orchestrator.cli.display.waiting import echo
    from orchestrator.cli.planning import planning

    (read_end, at_end), (heard, said) = os.pipe(), os.pipe()
    if (copy := _copied()) == 0:
        os.set_blocking(said, False)
        echo(said)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.dup2(nowhere, sys.stderr.fileno())
        with suppress(BaseException):  # reported when it is raised again
            plan()
        os.write(at_end, b".")
        os._exit(0)
    os.close(at_end)
    os.close(said)
    killed: list[int] = []
    names = dict.fromkeys(each for names in named.values() for each in names)
    with _ended_with_this(copy, killed), planning(list(names)) as waiting, _followed(heard, waiting.update):
        ended = _awaited(copy, read_end, named, killed)
    if killed:
        raise KeyboardInterrupt
    if ended is None:
        raise SystemExit(ENDED)


@contextmanager
def _ended_with_this(copy: int, killed: list[int]) -> Iterator[None]:
    """Inside, who ends this process or interrupts it ends the copy; one interrupted is among the `killed`."""

    def end_both(number: int, _: object) -> None:
        os.kill(copy, signal.SIGKILL)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def kill(*_: object) -> None:
        killed.append(copy)
        os.kill(copy, signal.SIGKILL)

    before = signal.signal(signal.SIGTERM, end_both), signal.signal(signal.SIGINT, kill)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])


@contextmanager
def _followed(heard: int, tell: Callable[[str], None]) -> Iterator[None]:
    """Inside, `tell` is called with the newest line from the pipe `heard`, which is closed then."""
    over = threading.Event()

    def follow() -> None:
        while not over.is_set():
            if not select.select([heard], [], [], LOOK_S)[0]:
                continue
            if not (came := os.read(heard, LINE_BYTES)):
                return
            if lines := came.decode(errors="replace").split("\n")[:-1]:
                tell(lines[-1])

    thread = threading.Thread(target=follow, name="followed", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        os.close(heard)


def may_be_copied() -> bool:
    """Whether a copy of this process can go on like it: PyTorch is not loaded, and no other thread runs.

    Also of those threads that Python's `threading` does not know.
    """
    if not hasattr(os, "fork") or "torch" in sys.modules or threading.active_count() > 1:
        return False
    tasks = Path("/proc/self/task")
    return not tasks.is_dir() or len(list(tasks.iterdir())) == 1


def _named(paths: Sequence[Path], overrides: Sequence[str]) -> Mapping[Path, tuple[str, ...]]:
    """Code of others by the spec that names it; empty where no copy can be made."""
    if not may_be_copied():
        return {}
    return {path: names for path in paths if (names := outside_names(path, overrides))}


def _copied() -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    return os.fork()


def _awaited(
    copy: int, read_end: int, named: Mapping[Path, tuple[str, ...]], killed: Sequence[int]
) -> int | None:
    """How the process `copy` ended; None, and why is said, where code of others ended it.

    It writes to the other end of the pipe `read_end` before it ends by itself. If it is among the `killed`,
    somebody here did not want to wait for it.
    """
    _, status = os.waitpid(copy, 0)
    os.set_blocking(read_end, False)  # what that code began may still hold the other end
    try:
        finished = bool(os.read(read_end, 1))
    except BlockingIOError:
        finished = False
    os.close(read_end)
    if copy in killed and os.WIFSIGNALED(status):
        return status
    stopped = os.WIFSIGNALED(status) and os.WTERMSIG(status) in {signal.SIGINT, signal.SIGTERM}
    if stopped or (finished and not os.WIFSIGNALED(status)):
        return status
    which = (
        signal.Signals(os.WTERMSIG(status)).name
        if os.WIFSIGNALED(status)
        else f"exit code {os.waitstatus_to_exitcode(status)}"
    )
    for path, names in named.items():
        complain(
            f"{path}: the interpreter was ended ({which}) while {', '.join(names)} was imported or proved, "
            "by that code or for want of memory; run that code by itself to see which"
        )
    return None


def outside_names(path: Path, overrides: Sequence[str] = ()) -> tuple[str, ...]:
    """Modules, and names of installed ones, that planning the spec at `path` may import.

    Nothing is found in a file that no spec can be read from. A pipe is read once, as for planning.
    """
    written = read_file(path).data
    set_here = {key: value for key, _, value in (each.partition("=") for each in overrides)}
    return tuple(dict.fromkeys((*_named_in(written, ""), *_named_in(set_here, ""))))


def _named_in(written: Any, at: str) -> Iterator[str]:
    if isinstance(written, Mapping):
        for key, value in written.items():
            yield from _named_in(value, f"{at}.{key}")
    elif isinstance(written, list):
        for value in written:
            yield from _named_in(value, at)
    elif isinstance(written, str) and _is_outside(written.strip(), at.split(".")):
        yield written.strip()


def _is_outside(value: str, at: Sequence[str]) -> bool:
    """Whether the text `value` at this place can be code of others; paths of settings are none."""
    if at[-1] == "trainable":
        return True
    if at[-1] == "name" and at[-2] in _KINDS:
        return catalog.is_outside(_KINDS[at[-2]], value)
    return is_module_name(value) and value.partition(".")[0] not in ROOTS

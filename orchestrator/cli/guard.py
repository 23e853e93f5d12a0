"""Says so where code of others ends the interpreter while a spec is looked at: nothing can be caught then."""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from orchestrator.cli.console import complain
from orchestrator.cli.outside_names import outside_names

ENDED = 2
"""Exit code of bad input, as of all else that is wrong with a spec."""


def guard(paths: Sequence[Path], overrides: Sequence[str] = ()) -> None:
    """Go on in a copy of this process, which waits for its end, where a spec names code of others.

    A copy costs next to nothing as long as PyTorch is not loaded; where it is, or threads run, as in a
    notebook or a test, nothing is done.
    """
    named = {path: names for path in paths if (names := outside_names(path, overrides))}
    if not named or not hasattr(os, "fork") or "torch" in sys.modules or threading.active_count() > 1:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    if (copy := os.fork()) == 0:
        # What has been said stays said, whatever ends this process.
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        return
    os._exit(_awaited(copy, named))


def _awaited(copy: int, named: dict[Path, tuple[str, ...]]) -> int:
    """The exit code of the command that the process `copy` runs."""
    # A terminal sends Ctrl-C to both, and the copy says what there is to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, _: os.kill(copy, number))
    _, status = os.waitpid(copy, 0)
    if not os.WIFSIGNALED(status) or os.WTERMSIG(status) in {signal.SIGINT, signal.SIGTERM}:
        return os.waitstatus_to_exitcode(status) % 256
    which = signal.Signals(os.WTERMSIG(status)).name
    for path, names in named.items():
        complain(
            f"{path}: the interpreter was ended ({which}) while {', '.join(names)} was imported or proved, "
            "by that code or for want of memory; run that code by itself to see which"
        )
    return ENDED

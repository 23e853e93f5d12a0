"""Stops in Python's debugger where a trial has failed, for `--driver inline --pdb`."""

import pdb  # noqa: T100 - a debugger is what is asked for
import sys
from contextlib import redirect_stdout

from orchestrator.trials import OutcomeKind

SHOWN = frozenset({OutcomeKind.CRASHED, OutcomeKind.OUT_OF_MEMORY})
"""Outcomes that an exception of the trial's own code leads to, other than by its design."""


def post_mortem(kind: OutcomeKind, error: BaseException) -> bool:
    """Let somebody look at the frames of `error`, which ends a trial as `kind`; whether they gave `quit`.

    Anything else that leaves the debugger, such as `continue`, lets the sweep go on.
    """
    if kind not in SHOWN or error.__traceback__ is None:
        return False
    # The terminal itself: what is typed and shown here is no output of the trial.
    with redirect_stdout(sys.__stdout__):
        debugger = pdb.Pdb()
        debugger.message(f"{type(error).__name__}: {error}")
        debugger.message("the trial has failed; `continue` goes on with the next one, `quit` ends the sweep")
        debugger.reset()
        debugger.interaction(None, error.__traceback__)
        return bool(debugger.quitting)

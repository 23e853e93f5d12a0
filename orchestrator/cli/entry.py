"""Start the process of a command; Ctrl-C is handled before slow imports."""

import atexit
import os
import sys
import threading
import time
from contextlib import suppress

from orchestrator.cli.ctrl_c import handle_ctrl_c, was_interrupted

THREAD_TIMEOUT_S = 5.0
"""Seconds to wait after a command until the threads of custom code end."""


def run() -> None:
    """Run the command line and exit. Ctrl-C during imports exits without a traceback."""
    handle_ctrl_c()
    try:
        from orchestrator.cli import main
    except BaseException:
        if not was_interrupted():
            raise
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        sys.exit(130)
    try:
        main.run()
    except SystemExit as error:
        _end_despite_threads(error.code if isinstance(error.code, int) else int(error.code is not None))
        raise


def _end_despite_threads(exit_code: int) -> None:
    """End this process if threads of custom code still run; Python would wait for them forever."""
    deadline = time.monotonic() + THREAD_TIMEOUT_S
    threads, main_thread = threading.enumerate(), threading.main_thread()
    custom_threads = [thread for thread in threads if not thread.daemon and thread is not main_thread]
    with suppress(KeyboardInterrupt):
        for thread in custom_threads:
            thread.join(max(0.0, deadline - time.monotonic()))
    names = [thread.name for thread in custom_threads if thread.is_alive()]
    if not names:
        return
    with suppress(OSError):  # the reader of a pipe has closed it
        sys.stderr.write(
            f"Warning: the command ends although threads of custom code still run: {', '.join(names)}\n"
        )
        sys.stderr.flush()
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
    os._exit(exit_code)

"""Start the process of a command; Ctrl-C is handled before slow imports."""

import sys

from orchestrator.cli.ctrl_c import handle_ctrl_c, was_pressed


def run() -> None:
    """Run the command line and exit. Ctrl-C during imports exits without a traceback."""
    handle_ctrl_c()
    try:
        from orchestrator.cli import main
    except BaseException:
        if not was_pressed():
            raise
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        sys.exit(130)
    main.run()

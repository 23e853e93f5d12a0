"""Start the process of a command; Ctrl-C is handled before slow imports."""

import sys

from orchestrator.cli.ctrl_c import hear, was_heard


def run() -> None:
    """Run the command line and exit. Ctrl-C during imports exits without a traceback."""
    hear()
    try:
        from orchestrator.cli import main
    except BaseException:
        if not was_heard():
            raise
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        sys.exit(130)
    main.run()

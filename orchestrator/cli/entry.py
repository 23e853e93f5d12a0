"""Where the process of a command begins: Ctrl-C is heard before anything is loaded that takes time."""

import sys

from orchestrator.cli.ctrl_c import hear, was_heard


def run() -> None:
    """Run the command line and exit; Ctrl-C while modules are loaded ends it without a traceback."""
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

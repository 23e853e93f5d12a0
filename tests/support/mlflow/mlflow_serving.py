"""Run `mlflow server` in one process, because the command and its server would import the same modules.

`python -m tests.support.mlflow.mlflow_serving [OPTION]...`
"""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import mlflow.server
from mlflow.cli import cli
from uvicorn.main import main


def _run_uvicorn_here(command: Sequence[str], *, extra_env: Mapping[str, str], **_: Any) -> None:
    """Run uvicorn in this process instead of starting `python -m uvicorn ...`."""
    os.environ.update(extra_env)
    main(command[command.index("uvicorn") + 1 :])


if __name__ == "__main__":
    mlflow.server._exec_cmd = _run_uvicorn_here
    cli(["server", *sys.argv[1:]])

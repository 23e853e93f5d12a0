"""Run slow first calls once, in the fork server of the tests; no other module imports this one.

The module builds the command line and plans a small spec, so that PyTorch, pydantic and SQLAlchemy initialise
what they create at first use.
"""

import gc
import tempfile
from pathlib import Path

import torch

from orchestrator.cli import main
from orchestrator.plan.planner import plan
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.report.writers import page
from orchestrator.spec.load import read_spec
from tests.support.processes import child_servers
from tests.support.processes.commands import TINY

child_servers.install()
main.command()
page.page_environment().get_template("page.jinja")
if torch.version.cuda is None:  # with CUDA a backward pass starts threads, and forks need a single thread
    with tempfile.TemporaryDirectory() as _folder:
        _spec = Path(_folder) / "tiny.yaml"
        _spec.write_text(TINY, encoding="utf-8")
        from_json(to_json(plan(read_spec(_spec))))
gc.freeze()  # the garbage collector of a fork would touch, and thereby copy, all loaded objects

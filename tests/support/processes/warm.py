"""Imported by the process that tests fork, and by nothing else: what every command does anew, done once.

There the command line is made and a small spec has been planned, so that PyTorch, pydantic and SQLAlchemy
have made what they make at first use.
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
page._template()
if torch.version.cuda is None:  # elsewhere a backward pass starts threads, after which no fork can make one
    with tempfile.TemporaryDirectory() as _folder:
        _spec = Path(_folder) / "tiny.yaml"
        _spec.write_text(TINY, encoding="utf-8")
        from_json(to_json(plan(read_spec(_spec))))
tempfile.tempdir = None  # forks may have another
gc.freeze()  # what is loaded stays: no fork need look through it, and thereby copy it

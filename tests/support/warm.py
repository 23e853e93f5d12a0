"""Imported by the process that tests fork, and by nothing else: what every command does anew, done once.

There the command line is made and a small spec has been planned, so that PyTorch, pydantic and SQLAlchemy
have made what they make at first use. The short trainings by which a plan learns what a setting of training
does are the same for all specs, and known to all forks.
"""

import gc
import tempfile
from pathlib import Path

import torch

from orchestrator.cli import main
from orchestrator.plan import probe
from orchestrator.plan.planner import plan
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.report import page
from orchestrator.spec.load import read_spec
from tests.support import child_servers
from tests.support.commands import TINY
from trainables.training.rehearsal import Rehearsals

TRAINED = Rehearsals()
"""Of all plans in a fork."""

child_servers.install()
main.command()
page._template()
if torch.version.cuda is None:  # elsewhere a backward pass starts threads, after which no fork can make one
    probe.Rehearsals = lambda: TRAINED
    with tempfile.TemporaryDirectory() as _folder:
        _spec = Path(_folder) / "tiny.yaml"
        _spec.write_text(TINY, encoding="utf-8")
        from_json(to_json(plan(read_spec(_spec))))
tempfile.tempdir = None  # forks may have another
gc.freeze()  # what is loaded stays: no fork need look through it, and thereby copy it

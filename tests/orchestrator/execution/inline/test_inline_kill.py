"""Processes of trials are killed, and the launching process between changes: resuming leaves no trace."""

import random
import signal

import pytest

from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.store import Ledger
from orchestrator.trials import OutcomeKind
from tests.support.processes.forks import run_module
from tests.support.processes.logs import content
from tests.support.sweeps.inline_sweep import plan

MOMENTS = random.Random(20).choices(range(1, 9), k=12)


def session(root, *changes):
    process = run_module("tests.support.sweeps.inline_sweep", root, *changes)
    process.communicate()
    code = process.returncode
    assert code in {0, -signal.SIGKILL}
    return code == 0


def events(root):
    with Ledger.open(SweepFolder(root).ledger_url, "synthetic") as ledger:
        return list(ledger.events())


def check(root):
    """Every trial ended once and well, with every step; what the log says of each."""
    log = events(root)
    finals = [
        each.trial_id
        for each in log
        if each.kind is EventKind.ENDED and OutcomeKind(each.payload["kind"]).final
    ]
    assert sorted(finals) == sorted(each.trial_id for each in plan().trials)
    assert {each.ended["kind"] for each in content(log).values()} == {"finished"}
    for history in content(log).values():
        steps = [each["step"] for each in history.measured]
        assert steps == ([4] if history.asked["phase"] == "posthoc" else [1, 2, 3, 4])
    return {trial_id: (each.asked, each.measured) for trial_id, each in content(log).items()}


@pytest.fixture(scope="module")
def with_killed_trials(tmp_path_factory):
    """A sweep of one session, some of whose trials kill their process."""
    root = tmp_path_factory.mktemp("deadly")
    assert session(root), "the death of a trial's process is no death of the launching process"
    return root


def test_a_trial_that_kills_its_process_costs_nothing_but_its_last_step(with_killed_trials):
    check(with_killed_trials)
    assert [
        each
        for each in events(with_killed_trials)
        if each.kind is EventKind.ENDED and each.payload.get("lost")
    ]
    steps = (with_killed_trials / "data/steps.txt").read_text().splitlines()
    repeated = {line for line in steps if steps.count(line) > 1}
    assert {line.rsplit(maxsplit=1)[-1] for line in repeated} == {"3"}, "the step it died in is repeated"


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_the_same(tmp_path, with_killed_trials):
    for moment in MOMENTS:
        session(tmp_path, moment)
    while not session(tmp_path):
        pass
    assert check(tmp_path) == check(with_killed_trials)

"""Users' own training code, in every form: searched, killed, resumed, confirmed, read again, reported."""

import json
import os
import signal
from contextlib import suppress

import pytest

from orchestrator.errors import StoreError
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.store import Ledger
from tests.support.processes.commands import Shell, wait_for
from tests.support.processes.forked_pytest import pytest_in
from tests.support.training_code.own_code import FORMS

pytestmark = pytest.mark.slow
QUICK = ("--driver", "inline")


def shell_at(root, form):
    root.mkdir()
    name, code, spec = FORMS[form]
    shell = Shell.at(root, spec)
    (shell.folder / "tiny.yaml").rename(shell.folder / "own.yaml")
    (shell.folder / f"{name}.py").write_text(code)
    return shell


def results(haltsweep, shell):
    """What the report of the sweep says of every arm and metric, and how many trials ended how."""
    shown = haltsweep("report", str(shell.folder / "runs" / "own"), "--json")
    assert shown.code == 0, shown
    report = json.loads(shown.out)
    return report["cells"], report["effects"], [each["outcomes"] for each in report["tallies"]]


def seen(shell, kind):
    sweep = SweepFolder(shell.folder / "runs" / "own")
    with suppress(StoreError), Ledger.open(sweep.ledger_url, "own") as ledger:  # it may be coming into being
        return sum(event.kind is kind for event in ledger.events())
    return 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.longest
def test_killed_and_resumed_it_finds_what_it_finds_undisturbed(tmp_path, haltsweep, form):
    calm, disturbed = shell_at(tmp_path / "calm", form), shell_at(tmp_path / "disturbed", form)
    shown = calm.run("launch", "own.yaml", *QUICK)
    assert shown.code == 0, shown
    with disturbed.started("launch", "own.yaml", *QUICK) as process:
        wait_for(lambda: seen(disturbed, EventKind.MEASURED) >= 3, process)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    shown = disturbed.run("resume", "own", *QUICK)
    assert shown.code == 0, shown
    assert results(haltsweep, disturbed) == results(haltsweep, calm)
    shown = calm.run("verify", "own")
    assert shown.code == 0, shown


@pytest.mark.longest
def test_on_ray_from_another_folder_too(tmp_path, haltsweep):
    """What the other driver began."""
    shell = shell_at(tmp_path / "ray", "torch")
    given = ("baseline.pause=0.5", "--cpus", "2", "--driver", "inline")
    with shell.started("launch", "own.yaml", *given) as process:
        wait_for(lambda: seen(shell, EventKind.CHECKPOINTED) >= 2, process)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    elsewhere = Shell(tmp_path, shell.home)
    shown = elsewhere.run("resume", str(shell.folder / "runs" / "own"), "--driver", "ray")
    assert shown.code == 0, shown
    cells, _, tallies = results(haltsweep, shell)
    assert {cell["arm"] for cell in cells if cell["metric"] == "test/accuracy"} == {"baseline", "minus-gate"}
    assert (
        tallies == [{"confirm": {"finished": 2}, "posthoc": {"finished": 2}, "search": {"finished": 2}}] * 2
    )


def test_specs_are_tests(tmp_path):
    shell = shell_at(tmp_path / "specs", "torch")
    asked = ("-q", "-p", "no:cacheprovider", "--haltsweep", ".")
    code, shown, _ = pytest_in(shell.folder, asked, shell.environment)
    assert code == 0, shown
    (shell.folder / "digits.py").write_text(FORMS["torch"][1].replace("trial.report(", "trial.reprot("))
    code, shown, _ = pytest_in(shell.folder, asked, shell.environment)
    assert code == 1
    assert "baseline: the first report must come, got crashed: AttributeError" in shown

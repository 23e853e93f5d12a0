"""Changed training code within one sweep: refusals and warnings."""

import re

import pytest

from orchestrator import read
from orchestrator.identity import SweepFolder
from orchestrator.ledger.store import Ledger
from tests.support.processes.commands import tree
from tests.support.training_code.own_code import BONUS, forgotten, interrupt_first_trial

pytestmark = pytest.mark.usefixtures("untracked")

INLINE = ("--driver", "inline")
IDLE_ARM = "arms.idle={why: does nothing, set: {idle: 1}}"
SPEC = """
name: changing
question: Is it the code?
trainable: changing:train
baseline: {bonus: 0.0, idle: 0}
arms: {plus: {why: bonus, set: {bonus: 0.1}}}
confirm: {seeds: [1, 2, 3], splits: [test]}
"""


@pytest.fixture
def code(tmp_path):
    (tmp_path / "changing.yaml").write_text(SPEC)
    (tmp_path / "changing.py").write_text(BONUS)
    return tmp_path / "changing.py"


@pytest.fixture
def run_fresh(haltsweep, tmp_path):
    """Return a function that runs a command with newly imported training code."""

    def run_command(*arguments):
        with forgotten(tmp_path):
            return haltsweep(*arguments)

    return run_command


def sweep_content(folder):
    """Return all files of the sweep and its number of events; a lease changes the ledger file."""
    files = {name: digest for name, digest in tree(folder / "runs").items() if "ledger.db" not in name}
    with Ledger.open(SweepFolder(folder / "runs/changing").ledger_url, "changing") as ledger:
        return files, ledger.last_seq()


def test_extend_refuses_changed_code_and_the_report_discloses_it(code, run_fresh, tmp_path):
    assert run_fresh("launch", "changing.yaml", *INLINE).code == 0
    code.write_text(BONUS.replace("0.5", "0.7"))
    content_before = sweep_content(tmp_path)
    result = run_fresh("extend", "changing", IDLE_ARM, *INLINE)
    assert result.code == 2
    assert "--changed-code" in result.err
    assert sweep_content(tmp_path) == content_before
    assert run_fresh("resume", "changing", *INLINE).code == 0, "nothing is left to run"
    result = run_fresh("extend", "changing", IDLE_ARM, "--changed-code", *INLINE)
    assert result.code == 0, result
    disclosure = read.report("changing").code_versions
    assert re.search(r" 2 .*\(changing:train\)", disclosure)
    assert disclosure[:40] in result.err
    assert f"**{disclosure}**" in (tmp_path / "runs/changing/report/report.md").read_text()
    code.write_text("# a comment\n\n" + BONUS.replace("0.5", "(0.5)"))
    assert run_fresh("extend", "changing", "--seeds", "[4]", *INLINE).code == 0, "trials ran this version"


def test_resume_and_continue_refuse_changes_of_an_imported_module(code, run_fresh, monkeypatch):
    code.write_text("import half\n\n" + BONUS.replace("0.5", "half.HALF"))
    helper = code.with_name("half.py")
    helper.write_text("HALF = 0.5\n")
    with interrupt_first_trial(monkeypatch):
        assert run_fresh("launch", "changing.yaml", *INLINE).code == 130
    helper.write_text("HALF = 0.7\n")
    for command in (("resume", "changing"), ("launch", "changing.yaml", "--continue")):
        result = run_fresh(*command, *INLINE)
        assert (result.code, "(1 trial)" in result.err) == (2, True)
    assert run_fresh("launch", "changing.yaml", "--continue", "--changed-code", *INLINE).code == 0


def test_extend_refuses_a_changed_file_that_a_setting_names(code, run_fresh):
    named_file = code.with_name("wide.json")
    named_file.write_text("{}")
    code.with_suffix(".yaml").write_text(SPEC.replace("idle: 0", "idle: wide.json"))
    assert run_fresh("launch", "changing.yaml", *INLINE).code == 0
    named_file.write_text("[]")
    result = run_fresh("extend", "changing", "--seeds", "[4]", *INLINE)
    assert (result.code, "file wide.json" in result.err) == (2, True)

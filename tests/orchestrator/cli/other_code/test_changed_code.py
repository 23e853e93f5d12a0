"""Trials of one sweep that would run different training code: refused, or told first."""

import pytest

from orchestrator import read
from orchestrator.identity import SweepFolder
from orchestrator.ledger.store import Ledger
from tests.support.processes.commands import tree
from tests.support.training_code.own_code import BONUS, forgotten, interrupt_first_trial

pytestmark = pytest.mark.usefixtures("untracked")

INLINE = ("--driver", "inline")
IDLE = "arms.idle={why: does nothing, set: {idle: 1}}"
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
def anew(haltsweep, tmp_path):
    """A command as in a new process, which imports the code again."""

    def run(*arguments):
        with forgotten(tmp_path):
            return haltsweep(*arguments)

    return run


def kept(folder):
    """All files of sweeps, and how many events there are: a refusal holds and gives back a lease."""
    files = {name: digest for name, digest in tree(folder / "runs").items() if "ledger.db" not in name}
    with Ledger.open(SweepFolder(folder / "runs/changing").ledger_url, "changing") as ledger:
        return files, ledger.last_seq()


def test_extend_refuses_changed_code_and_the_report_discloses_it(code, anew, tmp_path):
    assert anew("launch", "changing.yaml", *INLINE).code == 0
    assert "versions of" not in (tmp_path / "runs/changing/report/report.md").read_text()
    code.write_text(BONUS.replace("0.5", "0.7"))
    before = kept(tmp_path)
    shown = anew("extend", "changing", IDLE, *INLINE)
    assert shown.code == 2
    assert "changing:train of changing changed after trials had run: digest " in shown.err
    assert " (6 trials), now " in shown.err
    assert "--changed-code" in shown.err
    assert kept(tmp_path) == before
    again = anew("resume", "changing", *INLINE)
    assert again.code == 0, "nothing is left to run"
    shown = anew("extend", "changing", IDLE, "--changed-code", *INLINE)
    assert shown.code == 0, shown
    sentence = read.report("changing").code_versions
    assert sentence.startswith("Trials ran 2 versions of the training code (changing:train) (digest ")
    assert ": 6 trials; " in sentence
    assert sentence.endswith(": 3 trials): differences between arms may be caused by the code.")
    assert sentence[:40] in shown.err
    page, text = ((tmp_path / f"runs/changing/report/report.{kind}").read_text() for kind in ("html", "md"))
    assert text.index(f"**{sentence}**") < text.index("## Answer")
    assert page.index(sentence) < page.index('id="answer"')
    code.write_text(BONUS)
    assert anew("extend", "changing", "--seeds", "[4]", *INLINE).code == 0, "trials have run this"


@pytest.fixture(params=["the trainable", "what it imports beside it"])
def half(request, code):
    """A file that holds the half of a score."""
    if request.param == "the trainable":
        return code
    code.write_text(BONUS.replace("0.5", "near.half.HALF").replace("def", "import near.half\n\n\ndef", 1))
    (code.parent / "near").mkdir()
    helper = code.parent / "near/half.py"
    helper.write_text("HALF = 0.5\n")
    return helper


def test_resume_and_continue_refuse_changed_code(half, anew, monkeypatch):
    with interrupt_first_trial(monkeypatch):
        assert anew("launch", "changing.yaml", *INLINE).code == 130
    half.write_text(half.read_text().replace("0.5", "0.7"))
    for command in (("resume", "changing"), ("launch", "changing.yaml", "--continue")):
        shown = anew(*command, *INLINE)
        assert shown.code == 2, shown
        assert "must run the same training code" in shown.err
        assert "(1 trial), now " in shown.err
    assert anew("launch", "changing.yaml", "--continue", "--changed-code", *INLINE).code == 0


def test_comments_and_formatting_are_no_change_of_code(code, anew):
    assert anew("launch", "changing.yaml", *INLINE).code == 0
    code.write_text("# a comment\n\n" + BONUS.replace("0.5", "(0.5)"))
    assert anew("extend", "changing", IDLE, *INLINE).code == 0

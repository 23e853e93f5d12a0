"""`haltsweep report`: figures and LaTeX on request, and a report that follows a sweep that runs."""

import pytest

from orchestrator.cli.commands.track import WATCH_S, write_report, write_while_running
from orchestrator.cli.stored_sweep import open_stored_sweep
from orchestrator.files.file_digests import damaged_files
from orchestrator.ledger import events as log
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.specs.plans import make_plan
from tests.support.sweeps.finished import finished
from tests.support.sweeps.histories import measurement, trial_of
from tests.support.sweeps.launched import launched

PLAN = make_plan(2)


@pytest.mark.slow
@pytest.mark.drawn
def test_figures_and_latex_are_written_where_the_report_is(haltsweep, tmp_path, monkeypatch):
    folder = finished(tmp_path, PLAN)
    monkeypatch.chdir(tmp_path)
    assert haltsweep("report", "synthetic", "--figures", "svg", "--latex").code == 0
    kinds = {path.suffix for path in (folder.report / "figures").iterdir()}
    assert kinds == {".svg", ".pdf"}
    assert (folder.report / "report.tex").read_text().startswith(r"\documentclass")
    damaged = damaged_files(folder.report)
    assert "figures/outcome-1.svg" in damaged
    assert not any(damaged.values())
    assert haltsweep("report", "synthetic").code == 0
    assert not (folder.report / "figures").exists(), "a report holds what was asked for last"


def test_figures_of_another_kind_are_refused(haltsweep, tmp_path, monkeypatch):
    finished(tmp_path, PLAN)
    monkeypatch.chdir(tmp_path)
    shown = haltsweep("report", "synthetic", "--figures", "gif")
    assert shown.code == 2
    assert "'gif' is not one of" in shown.err


def test_watching_is_for_people(haltsweep):
    shown = haltsweep("report", "any", "--watch", "--json")
    assert shown.code == 2
    assert "--watch and --json" in shown.err


def test_a_report_follows_a_sweep_until_nobody_runs_it(tmp_path, capsys):
    folder = launched(tmp_path, PLAN)
    with Ledger.open(folder.ledger_url, PLAN.name) as ledger:
        lease = ledger.claim(Holder.current())
        first = trial_of(PLAN, 0)
        ended = [
            log.asked(1.0, first),
            log.started(1.0, first.trial_id, 1),
            log.measured(2.0, first.trial_id, measurement(1)),
            log.ended(3.0, first.trial_id, Outcome(OutcomeKind.FINISHED, "done")),
        ]
        steps = iter([lambda: None, lambda: ledger.append(ended, lease), lambda: ledger.release(lease)])
        slept, written = [], []

        def sleep(seconds):
            slept.append(seconds)
            next(steps)()

        with open_stored_sweep("synthetic", folder.root.parent) as sweep:

            def write():
                written.append(write_report(sweep))
                return written[-1]

            last = write_while_running(sweep, write, sleep)
    assert [each.left for each in written] == [len(PLAN.trials), len(PLAN.trials) - 1, len(PLAN.trials) - 1]
    assert last is written[-1]
    assert min(slept) >= WATCH_S
    assert f"{len(PLAN.trials) - 1} trials left; " in capsys.readouterr().out


def test_a_sweep_that_nobody_runs_is_written_once(tmp_path):
    folder = finished(tmp_path, PLAN)
    with open_stored_sweep("synthetic", folder.root.parent) as sweep:
        write_while_running(sweep, lambda: write_report(sweep), lambda _: pytest.fail("nothing to wait for"))
    assert (folder.report / "report.html").exists()

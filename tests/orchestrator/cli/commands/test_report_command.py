"""`haltsweep report`: figures, LaTeX and reports of running sweeps."""

import pytest

from orchestrator.cli.commands.track import MIN_PAUSE_S, write_report, write_while_running
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
def test_report_command_writes_figures_and_latex(haltsweep, tmp_path):
    folder = finished(tmp_path, PLAN)
    assert haltsweep("report", "synthetic", "--figures", "svg", "--latex").code == 0
    kinds = {path.suffix for path in (folder.report / "figures").iterdir()}
    assert kinds == {".svg", ".pdf"}
    assert (folder.report / "report.tex").read_text().startswith(r"\documentclass")
    damages = damaged_files(folder.report)
    assert "figures/outcome-1.svg" in damages
    assert not any(damages.values())
    assert haltsweep("report", "synthetic").code == 0
    assert not (folder.report / "figures").exists(), "the second command asks for no figures"


def test_watch_rewrites_the_report_until_the_sweep_ends(tmp_path):
    folder = launched(tmp_path, PLAN)
    with Ledger.open(folder.ledger_url, PLAN.name) as ledger:
        lease = ledger.claim(Holder.current())
        first_trial = trial_of(PLAN, 0)
        trial_events = [
            log.params_event(1.0, first_trial),
            log.start_event(1.0, first_trial.trial_id, 1),
            log.measurement_event(2.0, first_trial.trial_id, measurement(1)),
            log.end_event(3.0, first_trial.trial_id, Outcome(OutcomeKind.FINISHED, "done")),
        ]
        steps = iter(
            [lambda: None, lambda: ledger.append(trial_events, lease), lambda: ledger.release(lease)]
        )
        waits, reports = [], []

        def sleep(seconds):
            waits.append(seconds)
            next(steps)()

        with open_stored_sweep("synthetic", folder.root.parent) as sweep:

            def write_next_report():
                reports.append(write_report(sweep))
                return reports[-1]

            last_report = write_while_running(sweep, write_next_report, sleep)
    num_trials = len(PLAN.trials)
    assert [report.left for report in reports] == [num_trials, num_trials - 1, num_trials - 1]
    assert last_report is reports[-1]
    assert min(waits) >= MIN_PAUSE_S

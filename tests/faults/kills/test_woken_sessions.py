"""A suspended session wakes up after another session has taken over its sweep."""

import signal
from pathlib import Path

import pytest

from orchestrator.errors import StoreError
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import Event, EventKind
from orchestrator.ledger.store import Ledger
from tests.support.processes.commands import Shell, answer, tree, wait_for


def events(shell: Shell) -> list[Event]:
    """Return all events of the sweep so far."""
    try:
        with Ledger.open(SweepFolder(shell.folder / "runs" / "tiny").ledger_url, "tiny") as ledger:
            return list(ledger.events())
    except StoreError:  # the launch has not created the ledger yet
        return []


def has_started_trial(shell: Shell) -> bool:
    """Return whether a trial of the sweep has started."""
    return any(event.kind is EventKind.STARTED for event in events(shell))


@pytest.mark.slow
def test_session_that_wakes_up_after_a_take_over_writes_nothing(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path)
    with shell.started("launch", "tiny.yaml", "--profile", "short", "--driver", "inline") as suspended:
        wait_for(lambda: has_started_trial(shell), suspended)
        suspended.send_signal(signal.SIGSTOP)
        refused_command = shell.run("resume", "tiny")
        assert refused_command.code == 2
        assert "--take-over" in refused_command.err
        takeover = shell.run("resume", "tiny", "--take-over")
        assert takeover.code == 0, takeover.err
        assert f"process {suspended.pid} " in " ".join(takeover.err.split())
        assert "trials: 4 finished" in takeover.out
        files_before, earlier_events = tree(shell.folder / "runs"), events(shell)
        suspended.send_signal(signal.SIGCONT)
        woken = answer(suspended)
    assert woken.code == 1
    assert "'tiny'" in " ".join(woken.err.split())
    assert "Traceback" not in woken.err
    assert events(shell) == earlier_events
    files_after = tree(shell.folder / "runs")
    changed = {
        name for name in {*files_before, *files_after} if files_before.get(name) != files_after.get(name)
    }
    # The last process that closes a SQLite database moves the log into it; the events are compared above.
    assert not {name for name in changed if not name.startswith("tiny/ledger.db")}

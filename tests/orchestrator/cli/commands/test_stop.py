"""`haltsweep stop`: who is asked, what is waited for, what is said. Real sessions are in tests/faults."""

import pytest

from orchestrator.cli.commands import stop as module
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from tests.support.specs.plans import make_plan
from tests.support.sweeps.launched import launched


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(launched(tmp_path, make_plan(1)).ledger_url, "synthetic") as opened:
        yield opened


def test_a_sweep_that_nobody_runs_is_no_error(haltsweep, ledger):
    result = haltsweep("stop", "synthetic")
    assert (result.code, result.err) == (0, "")
    assert result.out == "synthetic: no process runs it; continue with: haltsweep resume synthetic\n"


@pytest.mark.parametrize(("options", "at_once"), [((), False), (("--now",), True)])
def test_the_holder_is_asked_without_its_lease(haltsweep, ledger, options, at_once):
    lease = ledger.claim(Holder.current())
    result = haltsweep("stop", "synthetic", "--no-wait", *options)
    assert result.code == 0
    how = "at once" if at_once else "after each trial has stored a checkpoint at its next report"
    assert result.out.endswith(f" was asked to stop {how}\n")
    request = ledger.stop_asked(lease)
    assert request.at_once is at_once
    assert ledger.renew(lease).token == lease.token, "the holder still holds it"


def test_it_waits_until_the_holder_has_let_go(haltsweep, ledger, monkeypatch):
    lease = ledger.claim(Holder.current())
    monkeypatch.setattr(module, "REPEATED_EVERY_S", 0.0)
    monkeypatch.setattr(module.time, "sleep", lambda _: ledger.release(lease))
    result = haltsweep("stop", "synthetic")
    assert result.code == 0
    assert "waiting 0 s for the next report of its trials; --now does not wait for it\n" in result.out
    assert result.out.endswith("synthetic: stopped; continue with: haltsweep resume synthetic\n")


def test_a_session_after_the_one_that_was_asked_is_not_waited_for(haltsweep, ledger, monkeypatch):
    lease = ledger.claim(Holder.current())

    def resume(_):
        ledger.release(lease)
        ledger.claim(Holder.current())

    monkeypatch.setattr(module.time, "sleep", resume)
    assert haltsweep("stop", "synthetic").code == 0


def test_waiting_has_an_end(haltsweep, ledger):
    ledger.claim(Holder.current())
    result = haltsweep("stop", "synthetic", "--timeout", "0")
    assert result.code == 1
    assert "has not stopped within 0 s" in result.err
    assert "repeat with --now" in result.err


def test_a_database_is_enough_where_the_folder_is_not_here(haltsweep, tmp_path):
    url = f"sqlite:///{tmp_path / 'team.db'}"
    with Ledger.open(url, "far", create=True) as ledger:
        lease = ledger.claim(Holder.current())
        result = haltsweep("stop", "far", "--storage", url, "--no-wait")
        assert (result.code, result.err) == (0, "")
        assert ledger.stop_asked(lease) is not None
    result = haltsweep("stop", "fra", "--storage", url)
    assert result.code == 1
    assert "no sweep 'fra' in the ledger at" in result.err


def test_unknown_names_are_refused(haltsweep, ledger):
    result = haltsweep("stop", "synthetik")
    assert result.code == 2
    assert "Did you mean 'synthetic'?" in result.err

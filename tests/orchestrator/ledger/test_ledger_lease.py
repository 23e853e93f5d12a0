"""A living holder keeps its lease, a dead one loses it, and a holder on another host keeps it until it
expires."""

import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from orchestrator.errors import LeaseLost
from orchestrator.ledger import events as log
from orchestrator.ledger import store
from orchestrator.ledger.lease import LEASE_S, Holder, Lease, LeaseHeldError
from orchestrator.ledger.store import Ledger
from tests.support.processes.logs import Clock
from tests.support.sweeps.histories import DEAD
from trainables.process_identity import boot_id, process_start


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def timed_ledger(url, clock):
    with Ledger.open(url, "sweep", create=True, clock=clock) as ledger:
        yield ledger


@pytest.fixture
def child():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    process.stdin.close()


def make_holder(pid: int) -> Holder:
    started_at = process_start(pid)
    assert started_at is not None
    return Holder(socket.gethostname(), pid, boot_id(), started_at, 0.0)


def test_living_local_process_keeps_an_expired_lease(timed_ledger, clock, child):
    timed_ledger.claim(make_holder(child.pid))
    clock.now += 100 * LEASE_S
    with pytest.raises(LeaseHeldError, match=f"process {child.pid} .*'{socket.gethostname()}'"):
        timed_ledger.claim(Holder.current())
    assert timed_ledger.is_held()


def test_killed_local_process_loses_its_lease_at_once(timed_ledger, child):
    old_lease = timed_ledger.claim(make_holder(child.pid))
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie, whose pid is still in use
    assert not timed_ledger.is_held()
    assert timed_ledger.claim(Holder.current()).token == old_lease.token + 1


def test_process_with_a_reused_pid_is_not_the_holder(timed_ledger, child):
    timed_ledger.claim(replace(make_holder(child.pid), process_started_at=1.0))
    assert not timed_ledger.is_held()
    timed_ledger.claim(Holder.current())


@pytest.mark.parametrize(
    "foreign_holder", [DEAD, replace(Holder.current(), boot_id="before the reboot", pid=2**30)]
)
def test_lease_on_another_host_is_valid_until_it_expires(timed_ledger, clock, foreign_holder):
    timed_ledger.claim(foreign_holder)
    clock.now += LEASE_S - 1
    assert timed_ledger.is_held()
    with pytest.raises(LeaseHeldError, match=rf"process {foreign_holder.pid} .* 1 s "):
        timed_ledger.claim(Holder.current())
    clock.now += 1
    assert not timed_ledger.is_held()
    timed_ledger.claim(Holder.current())


def test_renewing_and_appending_extend_the_lease(timed_ledger, clock):
    lease = timed_ledger.claim(DEAD)
    for renew in (
        lambda: timed_ledger.renew(lease),
        lambda: timed_ledger.append([log.release_event(1.0, "done")], lease),
    ):
        clock.now += LEASE_S - 1
        renew()
        current = timed_ledger.lease()
        assert current.expires_at == clock.now + LEASE_S


CLOCK_ERROR_S = 40 * 24 * 3600.0
"""Error of a clock that is ahead."""


def test_lease_of_a_clock_far_ahead_is_free_after_a_moment(timed_ledger, clock, monkeypatch):
    monkeypatch.setattr(store, "VOID_LEASE_WAIT_S", 0.2)
    monkeypatch.setattr(store, "POLL_S", 0.05)
    clock.now += CLOCK_ERROR_S
    old_lease = timed_ledger.claim(DEAD)
    clock.now -= CLOCK_ERROR_S
    assert not timed_ledger.is_held()
    new_lease = timed_ledger.claim(Holder.current())
    assert new_lease.token == old_lease.token + 1
    assert new_lease.expires_at == clock.now + LEASE_S


def test_take_over_names_and_fences_a_living_holder(timed_ledger, child):
    old_lease = timed_ledger.claim(make_holder(child.pid))
    fenced: list[Lease] = []
    new_lease = timed_ledger.claim(Holder.current(), on_fenced=fenced.append)
    assert fenced == [old_lease]
    with pytest.raises(LeaseLost, match=f"process {os.getpid()}"):
        timed_ledger.append([log.release_event(1.0, "done")], old_lease)
    with pytest.raises(LeaseLost):
        timed_ledger.renew(old_lease)
    timed_ledger.release(old_lease)
    assert timed_ledger.lease() == new_lease


def test_removal_waits_long_for_a_silent_holder_on_another_host(timed_ledger, clock):
    timed_ledger.claim(DEAD)
    clock.now += 10 * LEASE_S
    with pytest.raises(LeaseHeldError, match=" 600 s "):
        timed_ledger.claim(Holder.current(), grace_s=CLOCK_ERROR_S)
    clock.now += CLOCK_ERROR_S
    timed_ledger.claim(Holder.current(), grace_s=CLOCK_ERROR_S)

"""Who may hold a sweep: the living keep it, the dead lose it, strangers are believed until they are late."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from orchestrator.errors import InputError, LeaseLost
from orchestrator.ledger import events as log
from orchestrator.ledger import store
from orchestrator.ledger.lease import LEASE_S, Holder, Lease, LeaseHeldError
from orchestrator.ledger.store import Ledger
from tests.support.sweeps.histories import DEAD
from trainables.process_identity import boot_id, process_start


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timed(url: str, clock: Clock) -> Iterator[Ledger]:
    with Ledger.open(url, "sweep", create=True, clock=clock) as ledger:
        yield ledger


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def holder_of(pid: int) -> Holder:
    started_at = process_start(pid)
    assert started_at is not None
    return Holder(socket.gethostname(), pid, boot_id(), started_at, 0.0)


def test_a_living_process_of_this_machine_keeps_its_lease_however_late(
    timed: Ledger, clock: Clock, child: subprocess.Popen[bytes]
) -> None:
    timed.claim(holder_of(child.pid))
    clock.now += 100 * LEASE_S
    with pytest.raises(
        LeaseHeldError, match=rf"process {child.pid} on host '{socket.gethostname()}' holds it"
    ) as refusal:
        timed.claim(Holder.current())
    assert f"kill {child.pid}" in str(refusal.value)
    assert "haltsweep status sweep" in str(refusal.value)
    assert isinstance(refusal.value, InputError)
    assert refusal.value.lease.holder.pid == child.pid
    assert timed.held()


def test_a_killed_process_of_this_machine_loses_its_lease_at_once(
    timed: Ledger, child: subprocess.Popen[bytes]
) -> None:
    old = timed.claim(holder_of(child.pid))
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # now a zombie, its pid still taken
    assert not timed.held()
    assert timed.claim(Holder.current()).token == old.token + 1


def test_a_reused_pid_is_not_the_holder(timed: Ledger, child: subprocess.Popen[bytes]) -> None:
    timed.claim(replace(holder_of(child.pid), process_started_at=1.0))
    assert not timed.held()
    timed.claim(Holder.current())


@pytest.mark.parametrize(
    "stranger", [DEAD, replace(Holder.current(), boot_id="before the reboot", pid=2**30)]
)
def test_elsewhere_only_the_expiry_counts(timed: Ledger, clock: Clock, stranger: Holder) -> None:
    timed.claim(stranger)
    clock.now += LEASE_S - 1
    assert timed.held()
    with pytest.raises(
        LeaseHeldError,
        match=rf"process {stranger.pid} on host .*if that process is gone wait 1 s and try again",
    ):
        timed.claim(Holder.current())
    clock.now += 1
    assert not timed.held()
    timed.claim(Holder.current())


def test_renewing_and_appending_put_the_expiry_off(timed: Ledger, clock: Clock) -> None:
    lease = timed.claim(DEAD)
    for renew in (lambda: timed.renew(lease), lambda: timed.append([log.closed(1.0, "done")], lease)):
        clock.now += LEASE_S - 1
        renew()
        current = timed.lease()
        assert current is not None
        assert current.expires_at == clock.now + LEASE_S


def test_a_process_does_not_take_the_sweep_from_itself_by_accident(timed: Ledger, clock: Clock) -> None:
    timed.claim(Holder.current())
    with pytest.raises(LeaseHeldError, match=f"process {os.getpid()}"):
        timed.claim(Holder.current())
    clock.now += LEASE_S
    timed.claim(Holder.current())


def test_a_released_sweep_is_free(timed: Ledger, child: subprocess.Popen[bytes]) -> None:
    lease = timed.claim(holder_of(child.pid))
    timed.release(lease)
    timed.claim(Holder.current())


FAR = 40 * 24 * 3600.0
"""Seconds by which a clock was ahead."""


def test_a_lease_of_a_clock_that_was_far_ahead_is_free_after_a_moment(
    timed: Ledger, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "WATCHED_S", 0.2)
    monkeypatch.setattr(store, "LOOK_S", 0.05)
    clock.now += FAR
    old = timed.claim(DEAD)
    clock.now -= FAR
    assert not timed.held()
    new = timed.claim(Holder.current())
    assert new.token == old.token + 1
    assert new.expires_at == clock.now + LEASE_S


def test_a_holder_that_renews_keeps_its_lease_though_the_clock_was_set_back(
    timed: Ledger, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "WATCHED_S", 30.0)
    lease = timed.claim(DEAD)
    clock.now -= 3.0
    monkeypatch.setattr(store.time, "sleep", lambda _: timed.renew(lease))
    with pytest.raises(LeaseHeldError, match="--take-over of launch, resume and remove"):
        timed.claim(Holder.current())
    timed.renew(lease)


def test_taking_over_names_and_fences_a_living_holder(timed: Ledger, child: subprocess.Popen[bytes]) -> None:
    old = timed.claim(holder_of(child.pid))
    fenced: list[Lease] = []
    new = timed.claim(Holder.current(), on_fenced=fenced.append)
    assert fenced == [old]
    with pytest.raises(LeaseLost, match=f"taken by process {os.getpid()}"):
        timed.append([log.closed(1.0, "done")], old)
    with pytest.raises(LeaseLost):
        timed.renew(old)
    timed.release(old)
    assert timed.lease() == new


def test_taking_over_a_free_sweep_names_nobody(timed: Ledger) -> None:
    fenced: list[Lease] = []
    timed.claim(Holder.current(), on_fenced=fenced.append)
    assert fenced == []


def test_removal_spares_a_silent_holder_that_nobody_can_look_up(timed: Ledger, clock: Clock) -> None:
    timed.claim(DEAD)
    clock.now += 10 * LEASE_S
    with pytest.raises(LeaseHeldError, match=r"last sign of life was 600 s ago"):
        timed.claim(Holder.current(), grace_s=FAR)
    clock.now += FAR
    timed.claim(Holder.current(), grace_s=FAR)

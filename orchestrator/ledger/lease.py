"""Leases of sweeps: the process that holds a sweep, and whether it may still be alive."""

import time
from dataclasses import asdict, dataclass

from orchestrator.errors import InputError
from trainables.process_identity import ProcessIdentity, ProcessState, this_process

LEASE_S = 60.0
"""Seconds without renewal after which a lease is free, if the holder's process cannot be checked."""


@dataclass(frozen=True, slots=True)
class Holder(ProcessIdentity):
    """A process that claims a sweep."""

    started_at: float
    """Unix time in seconds at which the process claimed the sweep."""

    @classmethod
    def current(cls) -> "Holder":
        """Return this process as a holder."""
        return cls(**asdict(this_process()), started_at=time.time())

    def __str__(self) -> str:
        """Return the process id and the host as text."""
        return f"process {self.pid} on host {self.host!r}"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write to a sweep until another process claims it with a higher token."""

    sweep: str
    token: int
    """Fencing token, which increases with every claim."""
    holder: Holder
    expires_at: float
    """Unix time in seconds, by the clock of the store."""

    def is_holder_alive(self, now: float) -> bool:
        """Return whether the holder is alive.

        If the process cannot be checked, return whether it renewed the lease within `LEASE_S`.

        Args:
            now: Unix time in seconds by the clock of the store.
        """
        state = self.holder.state()
        if state is ProcessState.UNKNOWN:
            return self.expires_at > now and not self.is_void(now)
        return state is ProcessState.ALIVE

    def is_void(self, now: float) -> bool:
        """Return whether the expiry is too late to come from a renewal by a correct clock."""
        return self.expires_at > now + LEASE_S

    def silent_s(self, now: float) -> float | None:
        """Return the seconds since the lease was last renewed; None if the expiry is void."""
        return None if self.is_void(now) else now + LEASE_S - self.expires_at


class LeaseHeldError(InputError):
    """Another process holds the sweep, or may hold it."""

    def __init__(self, lease: Lease, now: float) -> None:
        """Create a message that names the holder and the next action of the user.

        Args:
            lease: The lease of that process.
            now: Unix time in seconds by the clock of the store.
        """
        holder, sweep, silent_s = lease.holder, lease.sweep, lease.silent_s(now)
        if holder.state() is ProcessState.ALIVE:
            holder_text = (
                f"{holder} holds it; stop it (`haltsweep stop {sweep}`, or kill {holder.pid}) and try again"
            )
        elif silent_s is not None and silent_s < LEASE_S:
            holder_text = (
                f"{holder} holds it; stop it (`haltsweep stop {sweep}`), or if that process is gone wait "
                f"{LEASE_S - silent_s:.0f} s and try again"
            )
        else:
            renewal_text = "at an unknown time" if silent_s is None else f"{silent_s:.0f} s ago"
            holder_text = (
                f"{holder} held the sweep and last renewed its lease {renewal_text}; this machine cannot "
                "check whether the process is alive, so check on its host first"
            )
        super().__init__(
            f"sweep {sweep!r} can have only one holder, but {holder_text}. `haltsweep status {sweep}` "
            "displays the holder; --take-over of launch, resume and remove excludes that process"
        )
        self.lease = lease

"""Who holds a sweep, and whether that process may still be alive."""

import time
from dataclasses import asdict, dataclass

from orchestrator.errors import InputError
from trainables.process_identity import ProcessIdentity, ProcessState, this_process

LEASE_S = 60.0
"""A lease that is not renewed for so long is free for processes that cannot look its holder up."""


@dataclass(frozen=True, slots=True)
class Holder(ProcessIdentity):
    """A process that asked for a sweep."""

    started_at: float
    """Unix seconds at which it asked for the sweep."""

    @classmethod
    def current(cls) -> "Holder":
        """Return this process as a holder."""
        return cls(**asdict(this_process()), started_at=time.time())

    def __str__(self) -> str:
        """Return process and host in words."""
        return f"process {self.pid} on host {self.host!r}"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write to a sweep until somebody claims it with a higher token."""

    sweep: str
    token: int
    """Fencing token: grows with every claim."""
    holder: Holder
    expires_at: float
    """Unix seconds, by the clock of the store."""

    def stands(self, now: float) -> bool:
        """Return whether the holder is alive, or renewed the lease within `LEASE_S` if nobody can tell.

        Args:
            now: Unix seconds by the clock of the store.
        """
        state = self.holder.state()
        if state is ProcessState.UNKNOWN:
            return self.expires_at > now and not self.is_void(now)
        return state is ProcessState.ALIVE

    def is_void(self, now: float) -> bool:
        """Return whether the expiry is later than any renewal by a clock that shows `now` would set it."""
        return self.expires_at > now + LEASE_S

    def silent_s(self, now: float) -> float | None:
        """Return the seconds since the lease was last renewed; None if the expiry is void."""
        return None if self.is_void(now) else now + LEASE_S - self.expires_at


class LeaseHeld(InputError):
    """Another process runs the sweep, or may run it."""

    def __init__(self, lease: Lease, now: float) -> None:
        """Say who holds the sweep and what to do.

        Args:
            lease: The lease of that process.
            now: Unix seconds by the clock of the store.
        """
        holder, sweep, silent_s = lease.holder, lease.sweep, lease.silent_s(now)
        if holder.state() is ProcessState.ALIVE:
            known = (
                f"{holder} holds it; stop it (`haltsweep stop {sweep}`, or kill {holder.pid}) and try again"
            )
        elif silent_s is not None and silent_s < LEASE_S:
            known = (
                f"{holder} holds it; stop it (`haltsweep stop {sweep}`), or if that process is gone wait "
                f"{LEASE_S - silent_s:.0f} s and try again"
            )
        else:
            sign = "at an unknown time" if silent_s is None else f"{silent_s:.0f} s ago"
            known = (
                f"{holder} held it, whose last sign of life was {sign}; nobody can tell from here whether it "
                "is still alive, so look there first"
            )
        super().__init__(
            f"sweep {sweep!r} must have one holder at a time, and {known}. `haltsweep status {sweep}` shows "
            "it; --take-over of launch, resume and remove shuts that process out"
        )
        self.lease = lease

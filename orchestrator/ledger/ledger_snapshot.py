"""The snapshot of a sweep as a value, apart from its table so that workers import no database library."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """The state after the event at position `seq`."""

    seq: int
    made_for: str
    """Digest of the plan and of the format of the content: another plan or format cannot use it."""
    content: bytes

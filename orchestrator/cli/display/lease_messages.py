"""Print messages about sessions that lost their lease or may still be alive."""

from typing import TYPE_CHECKING

from orchestrator.cli.display.console import print_error
from orchestrator.cli.display.running_trials import format_rough_seconds

if TYPE_CHECKING:
    from orchestrator.ledger.lease import Lease
    from orchestrator.ledger.store import Ledger


def report_fenced(lease: "Lease") -> None:
    """Print which session held `lease` and can no longer write."""
    print_error(
        f"{lease.sweep}: taken over from session {lease.token}, {lease.holder}; that session can write "
        f"nothing more. If its process is still there, end it (kill {lease.holder.pid}), since its trials "
        "use that machine"
    )


def describe_silent_holder(ledger: "Ledger") -> str:
    """Return a sentence about a silent lease holder whose process cannot be checked; empty if none exists."""
    silence = ledger.silent_holder()
    if silence is None:
        return ""
    holder, silent_s = silence
    renewal_text = "at an unknown time" if silent_s is None else f"{format_rough_seconds(silent_s)} ago"
    return (
        f"{holder} held it and last renewed its lease {renewal_text}; this machine cannot check whether that "
        "process is alive"
    )

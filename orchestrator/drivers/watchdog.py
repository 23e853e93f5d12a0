"""How long a trial may be silent: one that hangs never reports, so that nobody can tell it to stop."""

from dataclasses import dataclass

from orchestrator.plan.types import SILENT_PAUSES, SILENT_S
from orchestrator.spec.section import Resources

GRACE_S = 30.0
"""For what is no work of the trial: restoring, checkpoints, a busy machine."""


@dataclass(frozen=True, slots=True)
class SilenceLimit:
    """How long trials of a sweep may be silent."""

    least_s: float
    times: float = 0.0

    def limit_s(self, longest_s: float) -> float:
        """Seconds for a trial whose longest pause between two reports was `longest_s` so far."""
        return max(self.least_s, self.times * longest_s)


def silence_of(resources: Resources) -> SilenceLimit:
    """With a limit of work: after it a silent trial has surely used up its minutes."""
    if resources.minutes is None:
        return SilenceLimit(SILENT_S, SILENT_PAUSES)
    return SilenceLimit(resources.minutes * 60 + GRACE_S)


def hang_reason(limit_s: float) -> str:
    """Why a silent trial was ended."""
    return (
        f"a trial must report within resources.minutes, or by default within {SILENT_S / 60:.0f} minutes or "
        f"{SILENT_PAUSES} times its longest pause, got nothing for {limit_s:.0f} s; unless it hangs, raise "
        "resources.minutes or lower train.report_every"
    )

"""Limit how long a trial may be silent, since a trial that hangs cannot be asked to stop."""

from orchestrator.spec.section import Resources

GRACE_S = 30.0
"""Extra seconds for restoring, for checkpoints and for a busy machine."""


def silence_limit(resources: Resources) -> float | None:
    """Return the seconds without a report after which a trial times out; None for no limit.

    A trial that was silent for longer than `resources.minutes` has used up its minutes.
    """
    limits = []
    if resources.silent_minutes is not None:
        limits.append(resources.silent_minutes * 60)
    if resources.minutes is not None:
        limits.append(resources.minutes * 60 + GRACE_S)
    return min(limits, default=None)


def hang_reason(limit_s: float) -> str:
    """Return the reason to record when a silent trial is killed."""
    return (
        "a trial must report within resources.silent_minutes and resources.minutes, got nothing for "
        f"{limit_s:.0f} s; unless it hangs, raise these limits or report more often"
    )

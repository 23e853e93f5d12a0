"""The limit of a trial's silence."""

from orchestrator.execution.trial.watchdog import GRACE_S, silence_limit
from orchestrator.spec.section import Resources


def test_only_the_spec_limits_silence_and_the_shortest_limit_counts():
    assert silence_limit(Resources()) is None
    assert silence_limit(Resources(silent_minutes=1.5)) == 90
    assert silence_limit(Resources(silent_minutes=1, minutes=2)) == 60
    assert silence_limit(Resources(silent_minutes=60, minutes=2)) == 120 + GRACE_S

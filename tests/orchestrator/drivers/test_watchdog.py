"""How long a trial may be silent."""

from orchestrator.drivers.watchdog import GRACE_S, SilenceLimit, silence_of
from orchestrator.spec.section import Resources


def test_the_limit_is_that_of_the_trial_and_a_grace():
    assert silence_of(Resources(minutes=2)) == SilenceLimit(120 + GRACE_S)


def test_without_minutes_the_pauses_of_the_trial_set_the_limit():
    silence = silence_of(Resources())
    assert silence.limit_s(0.0) == silence.limit_s(90.0) == 1800
    assert silence.limit_s(600.0) == 12000
